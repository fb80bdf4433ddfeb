// Decoder-only language models of Hugging Face as specs: Llama, Mistral, Qwen2, Qwen3, Gemma-2, the mixtures of Mixtral
// and Qwen3-MoE, and GPT-2.
//
// The first seven share one shape, blocks "decoder_layer" and "moe_layer", with other defaults and a few keys of their
// own. Each key has the meaning that transformers gives it, and an absent one the default of its configuration class:
// Qwen3 has heads of 128 whatever its width, Mistral looks 4096 tokens back unless the key is null.
//
// Sources: transformers 4.57.3, models/*/configuration_*.py for defaults, models/*/modeling_*.py for the keys that are
// read, modeling_rope_utils.py for those of the rotary table.
//
// Not modeled: scalings of the rotary table except Llama-3's, the auxiliary loss of routers, jitter of their inputs.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/formats/hf_models.h"
#include "core/formats/hf_spec_text.h"

namespace fsdp::hf_models {

namespace {

constexpr std::int64_t kMostExpertsOfLayer = 4096;
constexpr double kWeightDecay = 0.1;
constexpr std::string_view kInitialSource = "initializer_range of config.json; PreTrainedModel._init_weights";
constexpr std::string_view kSlidingAttention = "sliding_attention";
constexpr std::string_view kFullAttention = "full_attention";
constexpr std::string_view kSpreadNote =
    "Tokens are taken to be spread evenly over the experts; a skewed router needs more memory than predicted.";

/// Defaults of a family's configuration class for absent keys.
struct Defaults {
  std::string_view family;  ///< First word of its classes.
  std::int64_t vocab_size = 32000;
  std::int64_t hidden_size = 4096;
  std::int64_t intermediate_size = 14336;
  std::int64_t layers = 32;
  std::int64_t heads = 32;
  std::optional<std::int64_t> kv_heads;  ///< Defaults to the number of query heads.
  std::optional<std::int64_t> head_dim;  ///< Defaults to the width over the heads.
  std::int64_t positions = 32768;
  double norm_eps = 1e-6;
  double rope_theta = 10000;
  bool tied = false;
  std::optional<std::int64_t> pad_token = {};
};

constexpr Defaults kLlama = {.family = "Llama", .intermediate_size = 11008, .positions = 2048};
constexpr Defaults kMistral = {.family = "Mistral", .kv_heads = 8, .positions = 131072};
constexpr Defaults kMixtral = {
    .family = "Mixtral", .kv_heads = 8, .positions = 131072, .norm_eps = 1e-5, .rope_theta = 1e6};
constexpr Defaults kQwen2 = {.family = "Qwen2", .vocab_size = 151936, .intermediate_size = 22016, .kv_heads = 32};
constexpr Defaults kQwen3 = {
    .family = "Qwen3", .vocab_size = 151936, .intermediate_size = 22016, .kv_heads = 32, .head_dim = 128};
constexpr Defaults kQwen3Moe = {.family = "Qwen3Moe",
                                .vocab_size = 151936,
                                .hidden_size = 2048,
                                .intermediate_size = 6144,
                                .layers = 24,
                                .kv_heads = 4};
constexpr Defaults kGemma2 = {.family = "Gemma2",
                              .vocab_size = 256000,
                              .hidden_size = 2304,
                              .intermediate_size = 9216,
                              .layers = 26,
                              .heads = 8,
                              .kv_heads = 4,
                              .head_dim = 256,
                              .positions = 8192,
                              .tied = true,
                              .pad_token = 0};

struct Rotary {
  double theta = 10000;
  bool is_llama3 = false;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_positions = 1;
};

struct Decoder {
  std::string family;
  std::int64_t vocab_size = 1, hidden_size = 1, intermediate_size = 1, layers = 1, heads = 1, kv_heads = 1;
  std::int64_t head_dim = 1;
  bool states_head_dim = false;
  std::int64_t positions = 1;
  double norm_eps = 1e-6;
  double initial_std = kUsualInitialStd;
  bool tied = false;
  std::optional<std::int64_t> padding;
  double attention_dropout = 0;
  Rotary rotary = {};
  // Settings of some families.
  bool qkv_bias = false, output_bias = false, mlp_bias = false, qk_norm = false, is_gelu = false;
  std::vector<std::int64_t> windows = {};  ///< For each layer; 0 means all tokens. Empty means 0 for all.
  bool is_gemma = false;
  std::optional<double> attention_softcap = {}, logit_softcap = {};
  double query_scalar = 0;
  std::int64_t num_experts = 0, experts_per_token = 0, expert_size = 0;
  bool norm_topk_prob = true;
  bool is_mixtral = false;
  std::vector<bool> dense = {};  ///< For each layer: one MLP instead of experts.
};

/// The scaling of the rotary table, from an object that is not null.
void read_rope_scaling(HfConfigReader& config, const JsonValue& value, Rotary& rotary) {
  if (value.type != JsonType::Object) {
    config.errors().add(value, fmt::format("The scaling of the rotary table is {}.", describe(value)),
                        "It is an object with a \"rope_type\", or null.");
    return;
  }
  HfConfigReader scaling(value, config.whose(), config.errors());
  scaling.alias("rope_type", "type");
  const std::string type = scaling.text("rope_type", "default", {"default", "llama3"});
  rotary.theta = scaling.positive("rope_theta", rotary.theta);
  scaling.only("partial_rotary_factor", 1.0);
  rotary.is_llama3 = type == "llama3";
  if (rotary.is_llama3) {
    for (const std::string_view key :
         {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
      if (value.find(key) == nullptr) {
        config.errors().add(value, fmt::format("A \"llama3\" scaling without \"{}\".", key),
                            "config.json of the published model has it.");
      }
    }
    rotary.factor = scaling.positive("factor", 8);
    rotary.low_freq_factor = scaling.positive("low_freq_factor", 1);
    rotary.high_freq_factor = scaling.positive("high_freq_factor", 4);
    rotary.original_positions = scaling.size("original_max_position_embeddings", 8192);
  }
  // A key of another kind of scaling is an error; otherwise nobody would notice that it has no effect.
  const JsonValue* named = scaling.find("rope_type");
  if (named != nullptr && named->text != type) return;
  for (const std::string& key : scaling.unread()) {
    config.errors().add(*value.find(key), fmt::format("\"{}\" belongs to no scaling that is read.", key),
                        "Leave it out, or " + std::string(kCaptureInstead));
  }
}

void read_rotary(HfConfigReader& config, Decoder& model, double otherwise) {
  model.rotary.theta = config.positive("rope_theta", otherwise);
  config.only("partial_rotary_factor", 1.0);
  const JsonValue* scaling = config.find("rope_scaling");
  // transformers 5 writes this instead of both keys.
  const JsonValue* parameters = config.find("rope_parameters");
  const bool has_scaling = scaling != nullptr && scaling->type != JsonType::Null;
  const bool has_parameters = parameters != nullptr && parameters->type != JsonType::Null;
  if (has_scaling && has_parameters) {
    config.fail("rope_parameters", "\"rope_scaling\" and \"rope_parameters\" both set the scaling of the rotary table.",
                "Leave one of the two out.");
  } else if (has_scaling || has_parameters) {
    read_rope_scaling(config, has_scaling ? *scaling : *parameters, model.rotary);
  }
  if (!(model.rotary.theta > 1)) config.fail("rope_theta", "\"rope_theta\" is not above 1.", "It is the base.");
}

/// The common keys of all families.
Decoder read_decoder(HfConfigReader& config, const Defaults& defaults) {
  Decoder model{.family = std::string(defaults.family)};
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
  model.norm_eps = config.positive("rms_norm_eps", defaults.norm_eps);
  model.initial_std = config.positive("initializer_range", kUsualInitialStd);
  model.tied = config.flag("tie_word_embeddings", defaults.tied);
  model.padding = config.padding_index("pad_token_id", defaults.pad_token, model.vocab_size);
  model.attention_dropout = config.probability("attention_dropout", 0);
  read_rotary(config, model, defaults.rope_theta);
  return model;
}

void read_activation(HfConfigReader& config, std::string_view key, std::string_view otherwise, Decoder& model) {
  const std::string name = config.text(key, otherwise, {"silu", "swish", "gelu_pytorch_tanh"});
  model.is_gelu = name == "gelu_pytorch_tanh";
}

/// "layer_types": for each layer whether it looks back `window` tokens; `otherwise` if the key is absent.
void read_layer_types(HfConfigReader& config, std::optional<std::int64_t> window, Decoder& model,
                      bool (*otherwise)(std::int64_t layer, std::int64_t first), std::int64_t first) {
  std::vector<bool> slides;
  const JsonValue* types = config.find("layer_types");
  if (types == nullptr || types->type == JsonType::Null) {
    for (std::int64_t i = 0; i < model.layers; ++i) slides.push_back(window && otherwise(i, first));
  } else if (expect_type(*types, JsonType::Array, "a list of one type per layer, or null", config.errors())) {
    for (const JsonValue& type : types->elements) {
      const bool is_known =
          type.type == JsonType::String && (type.text == kSlidingAttention || type.text == kFullAttention);
      if (!is_known) {
        config.errors().add(type, fmt::format("The attention of a layer is {}.", describe(type)),
                            fmt::format("The blocks of a {} have \"{}\" and \"{}\"; for another, {}", config.whose(),
                                        kFullAttention, kSlidingAttention, kCaptureInstead));
      }
      slides.push_back(type.text == kSlidingAttention);
    }
    if (slides.size() != static_cast<std::size_t>(model.layers)) {
      config.errors().add(
          *types, fmt::format("\"layer_types\" has {} entries, and there are {} layers.", slides.size(), model.layers),
          "It has one for each layer.");
      return;
    }
  }
  const bool any = std::find(slides.begin(), slides.end(), true) != slides.end();
  if (any && !window) {
    config.fail("layer_types", "Layers have sliding attention, and there is no window.",
                "\"sliding_window\" is its size, unless \"use_sliding_window\" switches it off.");
  }
  for (const bool slides_here : slides) model.windows.push_back(slides_here ? window.value_or(0) : 0);
}

/// For Qwen: a window counts only if it is switched on.
std::optional<std::int64_t> read_switched_window(HfConfigReader& config) {
  const bool is_on = config.flag("use_sliding_window", false);
  const auto window = config.size_or_null("sliding_window", 4096);
  return is_on ? window : std::nullopt;
}

void slide_everywhere(std::optional<std::int64_t> window, Decoder& model) {
  if (window) model.windows.assign(static_cast<std::size_t>(model.layers), *window);
}

void write_rotary(JsonWriter& json, const Decoder& model) {
  json.member("head_dim", model.head_dim);
  json.member("family", model.family);
  json.member("rope_theta", model.rotary.theta);
  if (!model.rotary.is_llama3) return;
  json.member("rope_scaling", "llama3");
  json.member("rope_factor", model.rotary.factor);
  json.member("low_freq_factor", model.rotary.low_freq_factor);
  json.member("high_freq_factor", model.rotary.high_freq_factor);
  json.member("original_max_positions", model.rotary.original_positions);
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
  if (model.windows.empty()) return;
  const std::vector<std::int64_t> windows(model.windows.begin() + first, model.windows.begin() + last + 1);
  const bool alike = std::all_of(windows.begin(), windows.end(), [&](auto each) { return each == windows.front(); });
  if (alike && windows.front() == 0) return;
  if (alike) {
    json.member("sliding_window", windows.front());
    return;
  }
  nested_member(json, "per_layer", "sliding_window", windows);
}

void write_dense_layer(JsonWriter& json, const Decoder& model, std::int64_t first, std::int64_t last) {
  write_attention(json, model, first, last);
  json.member("intermediate_size", model.intermediate_size);
  if (model.mlp_bias) json.member("mlp_bias", true);
  if (model.is_gelu) json.member("activation", "gelu_tanh");
  if (model.is_gemma) {
    json.member("norms_behind", true);
    json.member("unit_offset", true);
  }
}

void write_expert_layer(JsonWriter& json, const Decoder& model, std::int64_t first, std::int64_t last) {
  write_attention(json, model, first, last);
  json.member("num_experts", model.num_experts);
  json.member("num_experts_per_tok", model.experts_per_token);
  json.member("norm_topk_prob", model.norm_topk_prob);
  json.member("moe_intermediate_size", model.expert_size);
  if (model.is_mixtral) json.member("naming", "mixtral");
}

/// Writes equal layers as one row.
void write_layers(HfSpecText& spec, const Decoder& model) {
  const auto is_dense = [&](std::int64_t layer) {
    return model.num_experts == 0 || (!model.dense.empty() && model.dense[layer]);
  };
  for (std::int64_t first = 0, last = 0; first < model.layers; first = last + 1) {
    last = first;
    while (last + 1 < model.layers && is_dense(last + 1) == is_dense(first)) ++last;
    const std::string row = repeated_name("model.layers", first, last);
    if (is_dense(first)) {
      spec.module(row, "decoder_layer", [&](JsonWriter& json) { write_dense_layer(json, model, first, last); });
    } else {
      spec.module(row, "moe_layer", [&](JsonWriter& json) { write_expert_layer(json, model, first, last); });
    }
  }
}

std::string spec_of_decoder(const Decoder& model, Target& target) {
  HfSpecText spec(target.name, target.source, target.dtype, {{"batch", 1}, {"seq", usual_seq(model.positions)}});
  spec.inputs({{"input_ids", {"batch", "seq"}}, {"labels", {"batch", "seq"}}});
  spec.classes({{"", target.architecture}, {"model", model.family + "Model"}});
  spec.module("model.embed_tokens", "token_embedding", [&](JsonWriter& json) {
    json.member("vocab_size", model.vocab_size);
    json.member("hidden_size", model.hidden_size);
    if (model.padding) json.member("padding_idx", *model.padding);
    if (!model.is_gemma) return;
    json.member("scale", std::sqrt(static_cast<double>(model.hidden_size)));
    json.member("round_scale", true);
  });
  spec.module("model.rotary_emb", "rotary_table", [&](JsonWriter& json) { write_rotary(json, model); });
  write_layers(spec, model);
  const auto norm = [&](JsonWriter& json) {
    if (model.is_gemma) json.member("unit_offset", true);
    json.member("eps", model.norm_eps);
  };
  spec.module("model.norm", "rms_norm", norm, model.family + "RMSNorm");
  spec.module("lm_head", "lm_head", [&](JsonWriter& json) { json.member("vocab_size", model.vocab_size); });
  spec.module("", "cross_entropy", [&](JsonWriter& json) {
    json.member("shift", true);
    if (model.logit_softcap) json.member("softcap", *model.logit_softcap);
  });
  spec.end_modules();
  spec.registration({"model.embed_tokens", "model.layers", "model.norm", "model.rotary_emb"});
  if (model.tied) spec.tied({{"lm_head.weight", "model.embed_tokens.weight"}});
  spec.initial_values(kInitialSource, model.initial_std);
  spec.recipes(kWeightDecay, true);
  if (model.num_experts > 0) target.notes.insert(target.notes.begin(), std::string(kSpreadNote));
  return std::move(spec).finish(target.notes);
}

// ---- The families.

std::string llama(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kLlama);
  read_activation(config, "hidden_act", "silu", model);
  model.qkv_bias = model.output_bias = config.flag("attention_bias", false);
  model.mlp_bias = config.flag("mlp_bias", false);
  config.pass_over({"pretraining_tp"});
  return spec_of_decoder(model, target);
}

std::string mistral(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kMistral);
  read_activation(config, "hidden_act", "silu", model);
  slide_everywhere(config.size_or_null("sliding_window", 4096), model);
  return spec_of_decoder(model, target);
}

bool from_layer(std::int64_t layer, std::int64_t first) {
  return layer >= first;
}

void read_qwen_windows(HfConfigReader& config, Decoder& model) {
  const auto window = read_switched_window(config);
  read_layer_types(config, window, model, from_layer, config.count("max_window_layers", 28));
}

std::string qwen2(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kQwen2);
  read_activation(config, "hidden_act", "silu", model);
  model.qkv_bias = true;
  read_qwen_windows(config, model);
  return spec_of_decoder(model, target);
}

std::string qwen3(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kQwen3);
  read_activation(config, "hidden_act", "silu", model);
  model.qk_norm = true;
  model.qkv_bias = model.output_bias = config.flag("attention_bias", false);
  read_qwen_windows(config, model);
  return spec_of_decoder(model, target);
}

std::string gemma2(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kGemma2);
  read_activation(config, "hidden_activation", "gelu_pytorch_tanh", model);
  model.is_gemma = true;
  model.qkv_bias = model.output_bias = config.flag("attention_bias", false);
  model.query_scalar = config.positive("query_pre_attn_scalar", 256);
  model.attention_softcap = config.positive_or_null("attn_logit_softcapping", 50.0);
  model.logit_softcap = config.positive_or_null("final_logit_softcapping", 30.0);
  const auto every_other = [](std::int64_t layer, std::int64_t /*first*/) { return layer % 2 == 0; };
  read_layer_types(config, config.size_or_null("sliding_window", 4096), model, every_other, 0);
  // Its MLP reads only "hidden_activation", and its layers "sliding_window".
  config.pass_over({"hidden_act", "cache_implementation", "sliding_window_size"});
  return spec_of_decoder(model, target);
}

/// The experts' keys of both mixtures.
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

std::string mixtral(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kMixtral);
  read_experts(config, "num_local_experts", 8, 2, model);
  if (model.num_experts == 0) config.fail("num_local_experts", "A mixture of no experts.", "It has 1 at least.");
  config.only("router_jitter_noise", 0.0);
  slide_everywhere(config.size_or_null("sliding_window"), model);
  model.expert_size = model.intermediate_size;
  model.is_mixtral = true;
  return spec_of_decoder(model, target);
}

std::string qwen3_moe(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kQwen3Moe);
  read_experts(config, "num_experts", 128, 8, model);
  model.qk_norm = true;
  model.qkv_bias = model.output_bias = config.flag("attention_bias", false);
  model.expert_size = config.size("moe_intermediate_size", 768);
  model.norm_topk_prob = config.flag("norm_topk_prob", false);
  slide_everywhere(read_switched_window(config), model);
  const std::int64_t step = config.size("decoder_sparse_step", 1);
  for (std::int64_t i = 0; i < model.layers; ++i) model.dense.push_back((i + 1) % step != 0);
  const JsonValue* dense = config.find("mlp_only_layers");
  if (dense != nullptr && dense->type != JsonType::Null) {
    std::vector<std::int64_t> layers;
    read_json(*dense, layers, config.errors(), IntegerRange{0, kMostConfigLayers});
    for (const std::int64_t layer : layers) {
      if (layer >= 0 && layer < model.layers) model.dense[layer] = true;
    }
  }
  if (std::find(model.dense.begin(), model.dense.end(), false) == model.dense.end()) model.num_experts = 0;
  // Keys that its class no longer reads, or reads for its own parallel plans.
  config.pass_over({"max_window_layers"});
  return spec_of_decoder(model, target);
}

// ---- GPT-2.

std::string gpt2(HfConfigReader& config, Target& target) {
  config.aliases({{"n_embd", "hidden_size"},
                  {"n_positions", "max_position_embeddings"},
                  {"n_head", "num_attention_heads"},
                  {"n_layer", "num_hidden_layers"}});
  const std::int64_t vocab_size = config.size("vocab_size", 50257);
  const std::int64_t positions = config.size("n_positions", 1024);
  const std::int64_t width = config.size("n_embd", 768);
  const std::int64_t layers = config.size("n_layer", 12, kMostConfigLayers);
  const std::int64_t heads = config.size("n_head", 12);
  check_heads(config, "n_embd", width, "n_head", heads);
  const auto inner = config.size_or_null("n_inner");
  const double embedding_dropout = config.probability("embd_pdrop", 0.1);
  const double dropout = config.probability("resid_pdrop", 0.1);
  const double attention_dropout = config.probability("attn_pdrop", 0.1);
  const double eps = config.positive("layer_norm_epsilon", 1e-5);
  const double initial_std = config.positive("initializer_range", kUsualInitialStd);
  const bool tied = config.flag("tie_word_embeddings", true);
  config.text("activation_function", "gelu_new", {"gelu_new"});
  config.only("scale_attn_weights", true);
  config.only("scale_attn_by_inverse_layer_idx", false);
  config.only("reorder_and_upcast_attn", false);
  config.only("add_cross_attention", false);
  // n_ctx is an old name of n_positions, and summaries belong to other heads.
  config.pass_over({"n_ctx", "pad_token_id", "summary_type", "summary_use_proj", "summary_activation",
                    "summary_first_dropout", "summary_proj_to_labels"});

  HfSpecText spec(target.name, target.source, target.dtype, {{"batch", 1}, {"seq", usual_seq(positions)}});
  spec.inputs({{"input_ids", {"batch", "seq"}}, {"labels", {"batch", "seq"}}});
  spec.classes({{"", target.architecture}});
  spec.module("transformer", "gpt2_embeddings", [&](JsonWriter& json) {
    json.member("vocab_size", vocab_size);
    json.member("max_positions", positions);
    json.member("hidden_size", width);
    json.member("dropout", embedding_dropout);
  });
  spec.module(repeated_name("transformer.h", 0, layers - 1), "gpt2_layer", [&](JsonWriter& json) {
    json.member("num_attention_heads", heads);
    if (inner) json.member("intermediate_size", *inner);
    json.member("dropout", dropout);
    json.member("attention_dropout", attention_dropout);
    json.member("norm_eps", eps);
  });
  spec.module("transformer.ln_f", "layer_norm", [&](JsonWriter& json) { json.member("eps", eps); });
  spec.module("lm_head", "lm_head", [&](JsonWriter& json) { json.member("vocab_size", vocab_size); });
  spec.module("", "cross_entropy", [&](JsonWriter& json) { json.member("shift", true); });
  spec.end_modules();
  if (tied) spec.tied({{"lm_head.weight", "transformer.wte.weight"}});
  spec.initial_values("initializer_range of config.json; GPT2PreTrainedModel._init_weights", initial_std,
                      {{"*.c_proj.weight", "normal", initial_std / std::sqrt(2.0 * static_cast<double>(layers))}});
  spec.recipes(kWeightDecay, true);
  return std::move(spec).finish(target.notes);
}

}  // namespace

std::int64_t usual_seq(std::int64_t positions) {
  return std::min<std::int64_t>(positions, 4096);
}

void check_heads(HfConfigReader& config, std::string_view width_key, std::int64_t width, std::string_view heads_key,
                 std::int64_t heads) {
  if (width % heads == 0) return;
  config.fail(heads_key, fmt::format("The number of heads, {1}, does not divide the width {0}.", width, heads),
              fmt::format("\"{}\" is a multiple of \"{}\".", width_key, heads_key));
}

std::span<const Kind> decoder_kinds() {
  static const std::vector<Kind> kKinds = {
      {"gemma2", {"Gemma2ForCausalLM"}, gemma2},    {"gpt2", {"GPT2LMHeadModel"}, gpt2},
      {"llama", {"LlamaForCausalLM"}, llama},       {"mistral", {"MistralForCausalLM"}, mistral},
      {"mixtral", {"MixtralForCausalLM"}, mixtral}, {"qwen2", {"Qwen2ForCausalLM"}, qwen2},
      {"qwen3", {"Qwen3ForCausalLM"}, qwen3},       {"qwen3_moe", {"Qwen3MoeForCausalLM"}, qwen3_moe},
  };
  return kKinds;
}

}  // namespace fsdp::hf_models
