// The common part of decoder-only models of Hugging Face: reading their keys, and writing their spec.
//
// Sources: transformers 4.57.3, models/*/configuration_*.py for defaults, models/*/modeling_*.py for the keys that are
// read, modeling_rope_utils.py for those of the rotary table; transformers 5.24.0 for "rope_parameters".
//
// Not modeled: scalings of the rotary table except "llama3", "linear" and "yarn", the auxiliary loss of routers.

#include "core/formats/hf_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/formats/hf_config.h"

namespace fsdp::hf_models {

namespace {

constexpr std::string_view kInitialSource = "initializer_range of config.json; PreTrainedModel._init_weights";
constexpr std::string_view kLocalTable = "rotary_emb_local";  ///< transformers 4 alone has it.
constexpr std::string_view kSlidingAttention = "sliding_attention";
constexpr std::string_view kFullAttention = "full_attention";
/// The rates of decays are drawn between 0.01 and 16; this is the mean of their logarithms, log(16) - 1.
constexpr double kMeanLogOfRates = 1.7726;
constexpr std::string_view kFallbackNote =
    "Linear attention is planned as transformers runs it in PyTorch's own calls, without flash-linear-attention and "
    "causal-conv1d. With these packages, which transformers calls if they are installed, a step is faster and needs "
    "less memory.";
constexpr std::string_view kSpreadNote =
    "Tokens are taken to be spread evenly over the experts; a skewed router needs more memory than predicted.";

bool is_object(const JsonValue* value) {
  return value != nullptr && value->type == JsonType::Object;
}

bool is_given(const JsonValue* value) {
  return value != nullptr && value->type != JsonType::Null;
}

void need(HfConfigReader& config, const JsonValue& value, std::string_view type,
          std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (value.find(key) != nullptr) continue;
    config.errors().add(value, fmt::format("A \"{}\" scaling without \"{}\".", type, key),
                        "config.json of the published model has it.");
  }
}

/// 0.1 * mscale * log(scale) + 1: modeling_rope_utils.py, get_mscale.
double mscale_of(double scale, double mscale) {
  return scale <= 1 ? 1 : 0.1 * mscale * std::log(scale) + 1;
}

void read_yarn(HfConfigReader& scaling, Rotary& rotary) {
  rotary.factor = scaling.positive("factor", 1);
  rotary.original_positions = scaling.size("original_max_position_embeddings", 8192);
  rotary.beta_fast = scaling.positive("beta_fast", 32);
  rotary.beta_slow = scaling.positive("beta_slow", 1);
  rotary.truncate = scaling.flag("truncate", true);
  const auto mscale = scaling.positive_or_null("mscale", {});
  const auto all = scaling.positive_or_null("mscale_all_dim", {});
  rotary.mscale_all = all.value_or(0);
  const bool has_both = mscale && all;
  const double usual =
      has_both ? mscale_of(rotary.factor, *mscale) / mscale_of(rotary.factor, *all) : mscale_of(rotary.factor, 1);
  rotary.attention_factor = scaling.positive_or_null("attention_factor", {}).value_or(usual);
}

std::string read_rope_type(HfConfigReader& scaling, const Rotary& rotary, bool is_hunyuan) {
  if (is_hunyuan) return scaling.text("rope_type", "default", {"default", "dynamic"});
  if (!rotary.has_sections) return scaling.text("rope_type", "default", {"default", "llama3", "linear", "yarn"});
  return scaling.text("rope_type", "default", {"default", "mrope", "llama3", "linear", "yarn"});
}

/// "mrope_section".
void read_sections(HfConfigReader& scaling, Rotary& rotary) {
  if (!rotary.has_sections) return;
  const JsonValue* sections = scaling.find("mrope_section");
  if (sections != nullptr) read_json(*sections, rotary.sections, scaling.errors(), IntegerRange{0, kLargestConfigSize});
  scaling.pass_over({"mrope_interleaved"});
}

}  // namespace

void read_rope_scaling(HfConfigReader& config, const JsonValue& value, Rotary& rotary, double& partial) {
  if (value.type != JsonType::Object) {
    config.errors().add(value, fmt::format("The scaling of the rotary table is {}.", describe(value)),
                        "It is an object with a \"rope_type\", or null.");
    return;
  }
  HfConfigReader scaling(value, config.whose(), config.errors());
  scaling.alias("rope_type", "type");
  const bool is_hunyuan = config.whose() == "hunyuan_v1_dense";
  const std::string type = read_rope_type(scaling, rotary, is_hunyuan);
  read_sections(scaling, rotary);
  rotary.theta = scaling.positive("rope_theta", rotary.theta);
  // Ministral 3: factors of queries by their positions, which are 1 in the positions of pre-training.
  if (rotary.has_position_scale) scaling.pass_over({"llama_4_scaling_beta", "max_position_embeddings"});
  partial = scaling.positive("partial_rotary_factor", partial);
  if (type != "default" && type != "dynamic" && type != "mrope") rotary.scaling = type;
  if (type == "dynamic") {
    // A larger base, with the power d / (d - 2) for heads of d numbers, which the caller applies.
    rotary.alpha = scaling.positive("alpha", 1);
    scaling.pass_over({"beta_fast", "beta_slow", "factor", "mscale", "mscale_all_dim"});
  } else if (type == "llama3") {
    need(config, value, type, {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
    rotary.factor = scaling.positive("factor", 8);
    rotary.low_freq_factor = scaling.positive("low_freq_factor", 1);
    rotary.high_freq_factor = scaling.positive("high_freq_factor", 4);
    rotary.original_positions = scaling.size("original_max_position_embeddings", 8192);
  } else if (type == "linear") {
    need(config, value, type, {"factor"});
    rotary.factor = scaling.positive("factor", 1);
    scaling.pass_over({"original_max_position_embeddings"});
  } else if (type == "yarn") {
    need(config, value, type, {"factor", "original_max_position_embeddings"});
    read_yarn(scaling, rotary);
  }
  // A key of another kind of scaling is an error; otherwise nobody would notice that it has no effect.
  const JsonValue* named = scaling.find("rope_type");
  if (named != nullptr && named->text != type) return;
  for (const std::string& key : scaling.unread()) {
    config.errors().add(*value.find(key), fmt::format("\"{}\" belongs to no scaling that is read.", key),
                        "Leave it out, or " + std::string(kCaptureInstead));
  }
}

namespace {

void read_rotary(HfConfigReader& config, Decoder& model, const Defaults& defaults) {
  model.rotary.theta = config.positive("rope_theta", defaults.rope_theta);
  model.rotary.has_sections = defaults.has_sections;
  model.rotary.has_position_scale = defaults.has_position_scale;
  double partial = config.positive("partial_rotary_factor", defaults.partial_rotary.value_or(1));
  const JsonValue* scaling = config.find("rope_scaling");
  // transformers 5 writes this instead of both keys.
  const JsonValue* parameters = config.find("rope_parameters");
  const bool by_type = is_object(parameters) &&
                       (parameters->find(kFullAttention) != nullptr || parameters->find(kSlidingAttention) != nullptr);
  if (is_given(scaling) && is_given(parameters)) {
    config.fail("rope_parameters", "\"rope_scaling\" and \"rope_parameters\" both set the scaling of the rotary table.",
                "Leave one of the two out.");
  } else if (is_given(scaling) || (is_given(parameters) && !by_type)) {
    read_rope_scaling(config, is_given(scaling) ? *scaling : *parameters, model.rotary, partial);
  } else if (by_type && !model.has_rotary_by_type) {
    config.fail("rope_parameters", "\"rope_parameters\" has a table for each type of layer.",
                fmt::format("A {} has one for all.", config.whose()));
  }
  if (partial != 1 && !defaults.partial_rotary)
    config.fail("partial_rotary_factor", fmt::format("\"partial_rotary_factor\" is the number {}.", partial),
                "It is 1 here.");
  const auto turned = static_cast<std::int64_t>(static_cast<double>(model.head_dim) * partial);
  const bool is_cut = partial != 1 && defaults.partial_rotary;
  if (is_cut && (partial > 1 || turned < 2 || turned % 2 != 0)) {
    config.fail("partial_rotary_factor",
                fmt::format("{} of the {} numbers of a head would be turned.", turned, model.head_dim),
                "They are an even number.");
  }
  model.rotary_dim = partial > 1 || turned < 2 || turned % 2 != 0 ? model.head_dim : turned;
  if (!(model.rotary.theta > 1)) config.fail("rope_theta", "\"rope_theta\" is not above 1.", "It is the base.");
}

}  // namespace

void read_rotaries_by_type(HfConfigReader& config, std::string_view local_key, double local_theta, Decoder& model) {
  Rotary local{.theta = local_key.empty() ? model.rotary.theta : config.positive(local_key, local_theta)};
  const JsonValue* parameters = config.find("rope_parameters");
  double partial = 1;
  if (is_object(parameters)) {
    const auto read = [&](std::string_view type, Rotary& rotary) {
      const JsonValue* one = parameters->find(type);
      if (is_given(one)) read_rope_scaling(config, *one, rotary, partial);
    };
    read(kFullAttention, model.rotary);
    read(kSlidingAttention, local);
  }
  const bool slides = std::any_of(model.windows.begin(), model.windows.end(), [](auto each) { return each > 0; });
  if (slides) model.local_rotary = local;
}

Decoder read_decoder(HfConfigReader& config, const Defaults& defaults) {
  Decoder model{.family = std::string(defaults.family), .has_rotary_by_type = defaults.has_rotary_by_type};
  model.vocab_size = config.size("vocab_size", defaults.vocab_size);
  model.hidden_size = config.size("hidden_size", defaults.hidden_size);
  model.intermediate_size = config.size("intermediate_size", defaults.intermediate_size);
  model.layers = config.size("num_hidden_layers", defaults.layers, kMostConfigLayers);
  model.heads = config.size("num_attention_heads", defaults.heads);
  // In every class, null means the number of query heads.
  model.kv_heads = config.size_or_null("num_key_value_heads", defaults.kv_heads).value_or(model.heads);
  const auto head_dim = config.size_or_null("head_dim", defaults.head_dim);
  model.states_head_dim = head_dim.has_value();
  if (!head_dim) check_heads(config, "hidden_size", model.hidden_size, "num_attention_heads", model.heads);
  model.head_dim = head_dim.value_or(std::max<std::int64_t>(model.hidden_size / model.heads, 1));
  if (model.head_dim % 2 != 0 && (head_dim || model.hidden_size % model.heads == 0)) {
    config.fail("head_dim", fmt::format("Heads are {} wide, and rotary positions turn pairs.", model.head_dim),
                "Take an even number.");
  }
  if (model.heads % model.kv_heads != 0) {
    config.fail("num_key_value_heads",
                fmt::format("{} heads do not divide into {} of keys and values.", model.heads, model.kv_heads),
                "It divides \"num_attention_heads\".");
  }
  model.positions = config.size("max_position_embeddings", defaults.positions);
  model.norm_eps = config.positive(defaults.eps_key, defaults.norm_eps);
  model.initial_std = config.positive("initializer_range", defaults.initial_std);
  model.tied = config.flag("tie_word_embeddings", defaults.tied);
  model.padding = config.padding_index("pad_token_id", defaults.pad_token, model.vocab_size);
  model.attention_dropout = config.probability("attention_dropout", 0);
  read_rotary(config, model, defaults);
  return model;
}

void read_activation(HfConfigReader& config, std::string_view key, std::string_view otherwise, Decoder& model) {
  const std::string name =
      config.text(key, otherwise, {"silu", "swish", "gelu_pytorch_tanh", "gelu", "gelu_new", "relu2"});
  model.activation = name == "silu" || name == "swish" ? "" : name == "gelu_pytorch_tanh" ? "gelu_tanh" : name;
}

std::optional<std::vector<bool>> read_layers_of_type(HfConfigReader& config, std::string_view kind,
                                                     std::int64_t layers) {
  const JsonValue* types = config.find("layer_types");
  if (types == nullptr || types->type == JsonType::Null) return std::nullopt;
  std::vector<bool> found;
  if (!expect_type(*types, JsonType::Array, "a list of one type per layer, or null", config.errors())) return found;
  for (const JsonValue& type : types->elements) {
    const bool is_known = type.type == JsonType::String && (type.text == kind || type.text == kFullAttention);
    if (!is_known) {
      config.errors().add(type, fmt::format("The attention of a layer is {}.", describe(type)),
                          fmt::format("The blocks of a {} have \"{}\" and \"{}\"; for another, {}", config.whose(),
                                      kFullAttention, kind, kCaptureInstead));
    }
    found.push_back(type.text == kind);
  }
  if (std::ssize(found) == layers) return found;
  config.errors().add(*types,
                      fmt::format("\"layer_types\" has {} entries, and there are {} layers.", found.size(), layers),
                      "It has one for each layer.");
  return std::vector<bool>{};
}

void note_older_release(Target& target, std::string_view detail) {
  const std::string& version = target.transformers_version;
  if (version.empty() || is_version5(target)) return;
  target.notes.push_back(
      fmt::format("{} was written by transformers {}; the model is planned as transformers 5 builds it{}.", kHfNote,
                  version, detail));
}

void read_layer_types(HfConfigReader& config, std::optional<std::int64_t> window, Decoder& model,
                      bool (*otherwise)(std::int64_t layer, std::int64_t first), std::int64_t first) {
  std::vector<bool> slides;
  if (auto given = read_layers_of_type(config, kSlidingAttention, model.layers)) {
    slides = *std::move(given);
  } else {
    for (std::int64_t i = 0; i < model.layers; ++i) slides.push_back(window && otherwise(i, first));
  }
  const bool any = std::find(slides.begin(), slides.end(), true) != slides.end();
  if (any && !window) {
    config.fail("layer_types", "Layers have sliding attention, and there is no window.",
                "\"sliding_window\" is its size, unless \"use_sliding_window\" switches it off.");
  }
  for (const bool slides_here : slides) model.windows.push_back(slides_here ? window.value_or(0) : 0);
}

void slide_everywhere(std::optional<std::int64_t> window, Decoder& model) {
  if (window) model.windows.assign(static_cast<std::size_t>(model.layers), *window);
}

void read_experts(HfConfigReader& config, std::string_view count_key, std::int64_t experts, std::int64_t per_token,
                  Decoder& model) {
  config.text("hidden_act", "silu", {"silu", "swish"});
  model.num_experts = config.count(count_key, experts, kMostExpertsOfLayer);
  model.experts_per_token = config.size("num_experts_per_tok", per_token);
  if (model.num_experts > 0 && model.experts_per_token > model.num_experts) {
    config.fail("num_experts_per_tok",
                fmt::format("A token is sent to {} of {} experts.", model.experts_per_token, model.num_experts),
                fmt::format("It is at most \"{}\".", count_key));
  }
  config.only("output_router_logits", false);
  config.pass_over({"router_aux_loss_coef"});
}

namespace {

void write_rotary(JsonWriter& json, const Decoder& model, const Rotary& rotary) {
  json.member("head_dim", model.rotary_dim);
  json.member("family", model.family);
  json.member("rope_theta", rotary.theta);
  if (model.wide_rotary) json.member("wide", true);
  if (model.is_gpt_oss) json.member("by_halves", true);
  if (model.is_version5 && !model.is_gpt_oss) json.member("elementwise", true);
  if (model.complex_rotary) json.member("complex", true);
  if (model.turns_in_fp32 && model.interleaved) json.member("interleaved", true);
  if (model.tables_by_sample) json.member("by_sample", true);
  if (rotary.scaling.empty()) return;
  json.member("rope_scaling", rotary.scaling);
  json.member("rope_factor", rotary.factor);
  if (rotary.scaling == "linear") return;
  json.member("original_max_positions", rotary.original_positions);
  if (rotary.scaling == "llama3") {
    json.member("low_freq_factor", rotary.low_freq_factor);
    json.member("high_freq_factor", rotary.high_freq_factor);
    return;
  }
  json.member("beta_fast", rotary.beta_fast);
  json.member("beta_slow", rotary.beta_slow);
  json.member("truncate", rotary.truncate);
  json.member("attention_factor", rotary.attention_factor);
}

/// Writes an option that may differ by layer; `usual` is its default. Returns whether it belongs into "per_layer".
template <class T>
bool write_alike(JsonWriter& json, std::string_view name, const std::vector<T>& values, T usual) {
  const bool alike = std::all_of(values.begin(), values.end(), [&](T each) { return each == values.front(); });
  if (!alike) return true;
  if (!values.empty() && values.front() != usual) json.member(name, static_cast<T>(values.front()));
  return false;
}

void write_by_layer(JsonWriter& json, const Decoder& model, std::int64_t first, std::int64_t last) {
  const auto cut = [&](const auto& all) {
    return all.empty() ? all : std::decay_t<decltype(all)>(all.begin() + first, all.begin() + last + 1);
  };
  const std::vector<std::int64_t> windows = cut(model.windows);
  const std::vector<bool> rope = cut(model.rope);
  std::vector<bool> local;
  if (model.local_rotary) {
    for (const std::int64_t window : windows) local.push_back(window > 0);
  }
  const bool differ_windows = write_alike<std::int64_t>(json, "sliding_window", windows, 0);
  const bool differ_rope = write_alike<bool>(json, "rope", rope, true);
  const std::vector<bool> linear = model.linear ? cut(model.linear->is_here) : std::vector<bool>{};
  const bool differ_local = write_alike<bool>(json, "local_rope", local, false);
  const bool differ_linear = write_alike<bool>(json, "linear_attention", linear, false);
  if (!differ_windows && !differ_rope && !differ_local && !differ_linear) return;
  json.key("per_layer");
  json.begin_object(JsonLayout::OneLine);
  if (differ_windows) json.member("sliding_window", windows);
  if (differ_rope) json.member("rope", rope);
  if (differ_local) json.member("local_rope", local);
  if (differ_linear) json.member("linear_attention", linear);
  json.end_object();
}

void write_norms(JsonWriter& json, const Decoder& model) {
  if (model.is_gemma || model.unit_offset) json.member("unit_offset", true);
  if (model.wide_norms) json.member("wide_weight", true);
}

void write_linear_heads(JsonWriter& json, const LinearHeads& linear) {
  json.member("linear_num_key_heads", linear.key_heads);
  json.member("linear_num_value_heads", linear.heads);
  json.member("linear_key_head_dim", linear.key_dim);
  json.member("linear_value_head_dim", linear.value_dim);
  json.member("linear_conv_kernel_dim", linear.kernel);
  if (linear.is_fused) json.member("fused_linear_projections", true);
}

void write_attention(JsonWriter& json, const Decoder& model, std::int64_t first, std::int64_t last) {
  json.member("family", model.family);
  json.member("num_attention_heads", model.heads);
  json.member("num_key_value_heads", model.kv_heads);
  if (model.states_head_dim) json.member("head_dim", model.head_dim);
  if (model.qkv_bias) json.member("qkv_bias", true);
  if (model.output_bias) json.member("output_bias", true);
  if (model.qk_norm) json.member("qk_norm", true);
  if (model.attention_dropout > 0) json.member("attention_dropout", model.attention_dropout);
  if (model.attention_softcap) json.member("attention_softcap", *model.attention_softcap);
  if (model.query_scalar > 0) json.member("query_pre_attn_scalar", model.query_scalar);
  json.member("norm_eps", model.norm_eps);
  write_norms(json, model);
  if (model.qk_norm_of_all_heads) json.member("qk_norm_of_all_heads", true);
  if (model.fused_qkv) json.member("fused_qkv", true);
  if (model.cuts_heads) json.member("partial_rotary", true);
  if (model.interleaved) json.member("interleaved_rotary", true);
  if (model.turns_in_fp32) json.member("wide_rotary", true);
  if (model.qk_norm_last) json.member("qk_norm_last", true);
  if (model.scaled_queries) json.member("scaled_queries", true);
  if (model.qk_l2_norm) json.member("qk_l2_norm", true);
  if (model.temperature_tuning) json.member("temperature_tuning", true);
  if (model.is_llama4) json.member("complex_rotary", true);
  if (!model.norm.empty()) json.member("norm", model.norm);
  if (model.is_dense_named) json.member("output_projection", "dense");
  if (model.is_gpt_oss) {
    json.member("rotary_by_halves", true);
    json.member("sinks", true);
  }
  if (model.latent) {
    if (model.latent->q_rank > 0) json.member("q_lora_rank", model.latent->q_rank);
    json.member("kv_lora_rank", model.latent->kv_rank);
    json.member("qk_nope_head_dim", model.latent->plain);
    json.member("qk_rope_head_dim", model.latent->turned);
    json.member("v_head_dim", model.latent->value);
    if (model.complex_rotary) json.member("complex_rotary", true);
  }
  if (model.has_gated_output) json.member("gated_output", true);
  if (model.linear) write_linear_heads(json, *model.linear);
  write_by_layer(json, model, first, last);
}

void write_dense_layer(JsonWriter& json, const Decoder& model, std::int64_t first, std::int64_t last) {
  write_attention(json, model, first, last);
  json.member("intermediate_size", model.intermediate_size);
  if (model.mlp_bias) json.member("mlp_bias", true);
  if (!model.mlp.empty()) json.member("mlp", model.mlp);
  if (!model.activation.empty()) json.member("activation", model.activation);
  if (model.residual_dropout > 0) json.member("residual_dropout", model.residual_dropout);
  if (model.fused_gate_up) json.member("fused_gate_up", true);
  if (!model.norms.empty()) json.member("norms", model.norms);
  if (model.layer_dropout > 0) json.member("layer_dropout", model.layer_dropout);
  if (model.scales) json.member("residual_multiplier", model.residual_scale);
}

void write_expert_layer(JsonWriter& json, const Decoder& model, std::int64_t first, std::int64_t last) {
  write_attention(json, model, first, last);
  json.member("num_experts", model.num_experts);
  json.member("num_experts_per_tok", model.experts_per_token);
  json.member("norm_topk_prob", model.norm_topk_prob);
  json.member("moe_intermediate_size", model.expert_size);
  if (model.is_mixtral) json.member("naming", "mixtral");
  if (model.has_gated_share) json.member("naming", "qwen2");
  if (model.is_gpt_oss) {
    json.member("naming", "gpt_oss");
    json.member("swiglu_alpha", model.swiglu_alpha);
    json.member("swiglu_limit", model.swiglu_limit);
  }
  if (model.stacked) json.member("stacked", true);
  if (model.shared_size > 0) json.member("shared_intermediate_size", model.shared_size);
  if (model.mlp_bias) json.member("mlp_bias", true);
  if (model.router.empty()) return;
  json.member("router", model.router);
  if (model.router == "narrow_sigmoid") return;
  if (model.groups > 0) json.member("n_group", model.groups);
  json.member("topk_group", model.topk_groups);
  json.member("routed_scaling_factor", model.routed_scale);
}

void write_llama4_layer(JsonWriter& json, const Decoder& model, std::int64_t first, std::int64_t last, bool is_dense) {
  write_attention(json, model, first, last);
  json.member("intermediate_size", is_dense ? model.dense_size : model.expert_size);
  if (is_dense) return;
  json.member("num_experts", model.num_experts);
  json.member("num_experts_per_tok", model.experts_per_token);
}

/// Writes equal layers as one row.
void write_layers(HfSpecText& spec, const Decoder& model) {
  const auto is_dense = [&](std::int64_t layer) {
    return model.num_experts == 0 || (!model.dense.empty() && model.dense[layer]);
  };
  for (std::int64_t first = 0, last = 0; first < model.layers; first = last + 1) {
    last = first;
    while (last + 1 < model.layers && is_dense(last + 1) == is_dense(first)) ++last;
    const std::string row = repeated_name(model.around.at + ".layers", first, last);
    if (model.is_llama4) {
      const bool has_mlp = is_dense(first);
      spec.module(row, "llama4_layer",
                  [&](JsonWriter& json) { write_llama4_layer(json, model, first, last, has_mlp); });
    } else if (is_dense(first)) {
      spec.module(row, "decoder_layer", [&](JsonWriter& json) { write_dense_layer(json, model, first, last); });
    } else {
      spec.module(row, "moe_layer", [&](JsonWriter& json) { write_expert_layer(json, model, first, last); });
    }
  }
}

void write_last_norm(HfSpecText& spec, const Decoder& model, std::string_view name) {
  const auto options = [&](JsonWriter& json) {
    write_norms(json, model);
    if (model.is_llama4) json.member("brief", true);
    if (model.norm == "layer_unit") json.member("unit_offset", true);
    if (model.norm == "layer_wide") {
      json.member("bias", false);
      json.member("wide_weight", true);
    }
    json.member("eps", model.norm_eps);
  };
  if (model.norm.empty()) return spec.module(name, "rms_norm", options, model.family + "RMSNorm");
  const std::string own = model.norm == "layer" ? "LayerNorm" : model.family + "LayerNorm";
  spec.module(name, "layer_norm", options, model.norm == "layer_unit" ? own + "1P" : own);
}

std::vector<std::pair<std::string, std::string>> classes_of(const Decoder& model, const Target& target) {
  const Around& around = model.around;
  const std::string decoder_class = around.decoder_class.empty() ? model.family + "Model" : around.decoder_class;
  std::vector<std::pair<std::string, std::string>> classes = {{"", target.architecture}};
  classes.insert(classes.end(), around.classes.begin(), around.classes.end());
  classes.emplace_back(around.at, decoder_class);
  return classes;
}

std::vector<HfSpecText::Initial> initial_exceptions(const Decoder& model) {
  if (model.is_gpt_oss) {
    return {{"*.experts.*_bias", "constant", 0}, {"*.router.bias", "normal", model.initial_std}};
  }
  if (model.linear) return {{"*.dt_bias", "constant", 1}, {"*.A_log", "constant", kMeanLogOfRates}};
  return {};
}

/// In their order.
std::vector<std::string> registered_modules(const Decoder& model) {
  const Around& around = model.around;
  std::vector<std::string> registered = around.registered;
  if (!registered.empty()) registered.push_back(around.at);
  const std::string_view last_norm = model.is_dense_named ? "final_layernorm" : "norm";
  for (const std::string_view name : {std::string_view("embed_tokens"), std::string_view("layers"), last_norm}) {
    registered.push_back(fmt::format("{}.{}", around.at, name));
  }
  registered.push_back(fmt::format("{}.{}", around.at, model.rotary_name));
  if (model.local_rotary && model.local_name != model.rotary_name) {
    registered.push_back(fmt::format("{}.{}", around.at, model.local_name));
  }
  return registered;
}

}  // namespace

bool is_version5(const Target& target) {
  const std::string& version = target.transformers_version;
  return !version.empty() && version.front() >= '5' && version.front() <= '9';
}

std::string spec_of_decoder(Decoder model, Target& target) {
  // The mixtures that only transformers 5 builds as planned, and what it wrote itself.
  model.is_version5 = model.is_gpt_oss || model.latent || model.linear || !model.router.empty() ||
                      model.has_gated_share || model.scaled_queries || model.is_llama4 || is_version5(target);
  if (model.is_version5 && model.local_name == kLocalTable) model.local_name = model.rotary_name;
  HfSpecText spec(target.name, target.source, target.dtype, {{"batch", 1}, {"seq", usual_seq(model.positions)}});
  spec.inputs({{"input_ids", {"batch", "seq"}}, {"labels", {"batch", "seq"}}});
  const Around& around = model.around;
  spec.classes(classes_of(model, target));
  spec.module(around.at + ".embed_tokens", "token_embedding", [&](JsonWriter& json) {
    json.member("vocab_size", model.vocab_size);
    json.member("hidden_size", model.hidden_size);
    if (model.padding) json.member("padding_idx", *model.padding);
    if (model.scales) json.member("scale", model.embedding_scale);
    if (!model.is_gemma) return;
    json.member("scale", std::sqrt(static_cast<double>(model.hidden_size)));
    json.member("round_scale", true);
  });
  if (around.write) around.write(spec);
  if (model.embedding_dropout > 0) {
    spec.op("", {}, [&](JsonWriter& json) {
      json.member("op", "dropout");
      json.member("inputs", std::vector<std::string>{"hidden"});
      json.member("probability", model.embedding_dropout);
      json.member("outputs", std::vector<std::string>{"hidden"});
    });
  }
  const bool is_one_module = model.local_rotary && model.local_name == model.rotary_name;
  const auto table = [&](const std::string& name, const Rotary& rotary, bool is_local) {
    spec.module(fmt::format("{}.{}", around.at, name), "rotary_table", [&](JsonWriter& json) {
      write_rotary(json, model, rotary);
      if (is_local) json.member("local", true);
      if (is_one_module) json.member("layer_type", is_local ? kSlidingAttention : kFullAttention);
      if (model.is_gpt_oss) json.member("numeric_masks", true);
      if (model.is_llama4) json.member("chunked_mask", true);
      const auto window = std::find_if(model.windows.begin(), model.windows.end(), [](auto each) { return each > 0; });
      const bool is_last = is_local || !model.local_rotary;
      if (is_last && window != model.windows.end() && !model.attention_softcap) json.member("sliding_window", *window);
    });
  };
  table(model.rotary_name, model.rotary, false);
  if (model.local_rotary) table(model.local_name, *model.local_rotary, true);
  write_layers(spec, model);
  const std::string last_norm = fmt::format("{}.{}", around.at, model.is_dense_named ? "final_layernorm" : "norm");
  write_last_norm(spec, model, last_norm);
  spec.module(around.head, "lm_head", [&](JsonWriter& json) {
    json.member("vocab_size", model.vocab_size);
    if (model.head_bias) json.member("bias", true);
    if (model.scales || model.scales_logits) json.member("scale", model.logit_scale);
  });
  spec.module("", "cross_entropy", [&](JsonWriter& json) {
    json.member("shift", true);
    if (model.logit_softcap) json.member("softcap", *model.logit_softcap);
  });
  spec.end_modules();
  spec.registration(registered_modules(model));
  const std::string embedding = around.at + ".embed_tokens.weight";
  if (model.tied) spec.tied({{around.head + ".weight", embedding}});
  spec.initial_values(kInitialSource, model.initial_std, initial_exceptions(model));
  spec.recipes(kWeightDecay, true);
  if (model.linear) target.notes.insert(target.notes.begin(), std::string(kFallbackNote));
  // No tensor of a grouped product depends on the spread.
  if (model.num_experts > 0 && !model.stacked) target.notes.insert(target.notes.begin(), std::string(kSpreadNote));
  return std::move(spec).finish(target.notes);
}

}  // namespace fsdp::hf_models
