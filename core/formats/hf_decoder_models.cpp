// Decoder-only language models of Hugging Face as specs: Llama, Mistral, Qwen2, Qwen3, Gemma-2, the mixtures of Mixtral
// and Qwen3-MoE, and GPT-2.
//
// The first seven share one shape, blocks "decoder_layer" and "moe_layer", with other defaults and a few keys of their
// own. Each key has the meaning that transformers gives it, and an absent one the default of its configuration class:
// Qwen3 has heads of 128 whatever its width, Mistral looks 4096 tokens back unless the key is null.
//
// Sources: transformers 4.57.3, models/*/configuration_*.py for defaults, models/*/modeling_*.py for the keys that are
// read.
//
// Not modeled: the auxiliary loss of routers, jitter of their inputs.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/formats/hf_config.h"
#include "core/formats/hf_decoder.h"

namespace fsdp::hf_models {

namespace {

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

/// For Qwen: a window counts only if it is switched on.
std::optional<std::int64_t> read_switched_window(HfConfigReader& config) {
  const bool is_on = config.flag("use_sliding_window", false);
  const auto window = config.size_or_null("sliding_window", 4096);
  return is_on ? window : std::nullopt;
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
  model.norms = "around";
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

/// transformers 5 stacks the experts; a file says which version wrote it.
void read_stacks(Target& target, Decoder& model) {
  const std::string version = target.transformers_version;
  model.stacked = is_version5(target);
  if (model.stacked || version.empty()) return;
  target.notes.push_back(fmt::format(
      "{} was written by transformers {}: each expert is a module of its own. transformers 5 stacks the experts; write "
      "\"transformers_version\": \"5.0.0\" into the file to plan that.",
      kHfNote, version));
}

std::string mixtral(HfConfigReader& config, Target& target) {
  config.alias("num_local_experts", "num_experts");
  Decoder model = read_decoder(config, kMixtral);
  read_experts(config, "num_local_experts", 8, 2, model);
  read_stacks(target, model);
  if (model.num_experts == 0) config.fail("num_local_experts", "A mixture of no experts.", "It has 1 at least.");
  config.only("router_jitter_noise", 0.0);
  slide_everywhere(config.size_or_null("sliding_window"), model);
  model.expert_size = model.intermediate_size;
  model.is_mixtral = true;
  return spec_of_decoder(model, target);
}

}  // namespace

void read_sparse_layers(HfConfigReader& config, Decoder& model) {
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
}

namespace {

std::string qwen3_moe(HfConfigReader& config, Target& target) {
  config.alias("num_experts", "num_local_experts");  // transformers 5 writes the other name.
  Decoder model = read_decoder(config, kQwen3Moe);
  read_experts(config, "num_experts", 128, 8, model);
  read_stacks(target, model);
  model.qk_norm = true;
  model.qkv_bias = model.output_bias = config.flag("attention_bias", false);
  model.expert_size = config.size("moe_intermediate_size", 768);
  model.norm_topk_prob = config.flag("norm_topk_prob", false);
  slide_everywhere(read_switched_window(config), model);
  read_sparse_layers(config, model);
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
      {"gemma2", {"Gemma2ForCausalLM"}, gemma2},
      {"gpt2", {"GPT2LMHeadModel"}, gpt2},
      {"llama", {"LlamaForCausalLM"}, llama},
      {"mistral", {"MistralForCausalLM"}, mistral},
      {"mixtral", {"MixtralForCausalLM"}, mixtral, false, true},
      {"qwen2", {"Qwen2ForCausalLM"}, qwen2},
      {"qwen3", {"Qwen3ForCausalLM"}, qwen3},
      {"qwen3_moe", {"Qwen3MoeForCausalLM"}, qwen3_moe, false, true},
  };
  return kKinds;
}

}  // namespace fsdp::hf_models
