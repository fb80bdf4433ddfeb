// Decoder-only language models of 2024 and 2025 as facts of the shape of Llama: SmolLM3, Phi-3 and Phi-4, OLMo 2 and 3,
// Gemma 1 and 3, GLM-4 and 4.5, Seed-OSS, EXAONE 4, Granite, Arcee, ERNIE 4.5, Hunyuan, Ministral and Ministral 3.
//
// Sources: transformers 4.57.3 and 5.24.0, models/*/configuration_*.py for defaults (4.57.3 where they differ),
// models/*/modeling_*.py for the keys that are read.
//
// Not modeled: "longrope", dropout of residuals, attention in both directions.

#include <fmt/format.h>

#include <cmath>

#include "core/formats/hf_decoder.h"

namespace fsdp::hf_models {

namespace {

constexpr Defaults kSmolLm3 = {.family = "SmolLM3",
                               .vocab_size = 128256,
                               .hidden_size = 2048,
                               .intermediate_size = 11008,
                               .layers = 36,
                               .heads = 16,
                               .kv_heads = 4,
                               .rope_theta = 2e6,
                               .tied = true,
                               .pad_token = 128004};
constexpr Defaults kPhi3 = {.family = "Phi3",
                            .vocab_size = 32064,
                            .hidden_size = 3072,
                            .intermediate_size = 8192,
                            .positions = 4096,
                            .norm_eps = 1e-5,
                            .pad_token = 32000,
                            .partial_rotary = 1};
constexpr Defaults kOlmo2 = {.family = "Olmo2",
                             .vocab_size = 50304,
                             .intermediate_size = 11008,
                             .positions = 2048,
                             .norm_eps = 1e-5,
                             .pad_token = 1};
constexpr Defaults kOlmo3 = [] {
  Defaults defaults = kOlmo2;
  defaults.family = "Olmo3";
  defaults.has_rotary_by_type = true;
  return defaults;
}();
constexpr Defaults kGemma3 = {.family = "Gemma3",
                              .vocab_size = 262208,
                              .hidden_size = 2304,
                              .intermediate_size = 9216,
                              .layers = 26,
                              .heads = 8,
                              .kv_heads = 4,
                              .head_dim = 256,
                              .positions = 131072,
                              .rope_theta = 1e6,
                              .tied = true,
                              .pad_token = 0,
                              .has_rotary_by_type = true};
constexpr Defaults kGlm = {.family = "Glm",
                           .vocab_size = 151552,
                           .intermediate_size = 13696,
                           .layers = 40,
                           .kv_heads = 2,
                           .head_dim = 128,
                           .positions = 131072,
                           .norm_eps = 1.5625e-07,
                           .pad_token = 151329,
                           .partial_rotary = 0.5};
constexpr Defaults kGlm4 = [] {
  Defaults defaults = kGlm;
  defaults.family = "Glm4";
  return defaults;
}();
constexpr Defaults kGemma = {.family = "Gemma",
                             .vocab_size = 256000,
                             .hidden_size = 3072,
                             .intermediate_size = 24576,
                             .layers = 28,
                             .heads = 16,
                             .kv_heads = 16,
                             .head_dim = 256,
                             .positions = 8192,
                             .tied = true,
                             .pad_token = 0};
constexpr Defaults kSeedOss = {.family = "SeedOss",
                               .vocab_size = 155136,
                               .intermediate_size = 27648,
                               .layers = 64,
                               .heads = 80,
                               .kv_heads = 8,
                               .head_dim = 128,
                               .positions = 524288,
                               .pad_token = 1};
constexpr Defaults kExaone4 = {.family = "Exaone4",
                               .vocab_size = 102400,
                               .intermediate_size = 16384,
                               .kv_heads = 32,
                               .positions = 2048,
                               .norm_eps = 1e-5};
constexpr Defaults kGlm4Moe = {.family = "Glm4Moe",
                               .vocab_size = 151552,
                               .intermediate_size = 10944,
                               .layers = 46,
                               .heads = 96,
                               .kv_heads = 8,
                               .positions = 131072,
                               .norm_eps = 1e-5,
                               .partial_rotary = 0.5};
constexpr Defaults kArcee = {
    .family = "Arcee", .hidden_size = 2560, .intermediate_size = 18432, .positions = 4096, .norm_eps = 1e-5};
constexpr Defaults kErnie = {.family = "Ernie4_5",
                             .vocab_size = 103424,
                             .hidden_size = 1024,
                             .intermediate_size = 3072,
                             .layers = 18,
                             .heads = 16,
                             .kv_heads = 2,
                             .head_dim = 128,
                             .positions = 131072,
                             .norm_eps = 1e-5,
                             .rope_theta = 500000,
                             .tied = true,
                             .pad_token = 0};
constexpr Defaults kHunyuan = {.family = "HunYuanDenseV1",
                               .vocab_size = 290943,
                               .intermediate_size = 11008,
                               .positions = 2048,
                               .norm_eps = 1e-5,
                               .pad_token = 0};
constexpr Defaults kMinistral = {.family = "Ministral", .kv_heads = 8, .positions = 131072};
constexpr Defaults kMinistral3 = {.family = "Ministral3",
                                  .vocab_size = 131072,
                                  .layers = 34,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .positions = 262144,
                                  .norm_eps = 1e-5,
                                  .rope_theta = 1e6,
                                  .pad_token = 11,
                                  .has_position_scale = true};
constexpr Defaults kGranite = {.family = "Granite", .intermediate_size = 11008, .positions = 2048};

/// Biases of all projections of attention, as in Llama.
void read_attention_bias(HfConfigReader& config, Decoder& model) {
  model.qkv_bias = model.output_bias = config.flag("attention_bias", false);
}

}  // namespace

void read_rope_layers(HfConfigReader& config, Decoder& model) {
  const std::int64_t interval = config.size("no_rope_layer_interval", 4);
  const JsonValue* given = config.find("no_rope_layers");
  const bool is_empty = given != nullptr && given->type == JsonType::Array && given->elements.empty();
  if (given == nullptr || given->type == JsonType::Null || is_empty) {
    for (std::int64_t i = 0; i < model.layers; ++i) model.rope.push_back((i + 1) % interval != 0);
    return;
  }
  std::vector<std::int64_t> layers;
  read_json(*given, layers, config.errors(), IntegerRange{0, 1});
  if (static_cast<std::int64_t>(layers.size()) < model.layers) {
    config.errors().add(
        *given, fmt::format("\"no_rope_layers\" has {} entries, and there are {} layers.", layers.size(), model.layers),
        "It has one for each layer.");
    return;
  }
  for (std::int64_t i = 0; i < model.layers; ++i) model.rope.push_back(layers[i] != 0);
}

namespace {

std::string smollm3(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kSmolLm3);
  read_activation(config, "hidden_act", "silu", model);
  read_attention_bias(config, model);
  model.mlp_bias = config.flag("mlp_bias", false);
  read_rope_layers(config, model);
  const bool slides = config.flag("use_sliding_window", false);
  const auto window = config.size_or_null("sliding_window");
  const auto never = [](std::int64_t /*layer*/, std::int64_t /*first*/) { return false; };
  read_layer_types(config, slides ? window : std::nullopt, model, never, 0);
  const JsonValue* types = config.find("layer_types");
  if (slides && window && (types == nullptr || types->type == JsonType::Null) && !model.rope.empty()) {
    for (std::int64_t i = 0; i < model.layers; ++i) model.windows[i] = model.rope[i] ? 0 : *window;
  }
  config.pass_over({"max_window_layers", "pretraining_tp"});
  return spec_of_decoder(model, target);
}

std::string phi3(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kPhi3);
  config.text("hidden_act", "silu", {"silu", "swish"});
  config.only("resid_pdrop", 0.0);
  slide_everywhere(config.size_or_null("sliding_window"), model);
  model.fused_qkv = model.fused_gate_up = model.cuts_heads = true;
  // Read with a scaling alone, or by no class.
  config.pass_over({"original_max_position_embeddings", "embd_pdrop", "attention_bias"});
  return spec_of_decoder(model, target);
}

void set_olmo(HfConfigReader& config, Decoder& model) {
  read_activation(config, "hidden_act", "silu", model);
  read_attention_bias(config, model);
  model.norms = "after";
  model.qk_norm_of_all_heads = model.wide_norms = model.wide_rotary = true;
}

std::string olmo2(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kOlmo2);
  set_olmo(config, model);
  return spec_of_decoder(model, target);
}

bool but_every(std::int64_t layer, std::int64_t period) {
  return (layer + 1) % period != 0;
}

std::string olmo3(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kOlmo3);
  set_olmo(config, model);
  read_layer_types(config, config.size_or_null("sliding_window", 4096), model, but_every, 4);
  read_rotaries_by_type(config, "", 0, model);
  model.rotary_name = "rotary_embs.full_attention";
  model.local_name = "rotary_embs.sliding_attention";
  return spec_of_decoder(model, target);
}

}  // namespace

Decoder read_gemma3(HfConfigReader& config) {
  Decoder model = read_decoder(config, kGemma3);
  read_activation(config, "hidden_activation", "gelu_pytorch_tanh", model);
  read_attention_bias(config, model);
  model.is_gemma = model.qk_norm = true;
  model.norms = "around";
  model.query_scalar = config.positive("query_pre_attn_scalar", 256);
  model.attention_softcap = config.positive_or_null("attn_logit_softcapping", {});
  model.logit_softcap = config.positive_or_null("final_logit_softcapping", {});
  config.alias("sliding_window_pattern", "_sliding_window_pattern");
  const std::int64_t period = config.size("sliding_window_pattern", 6);
  read_layer_types(config, config.size_or_null("sliding_window", 4096), model, but_every, period);
  read_rotaries_by_type(config, "rope_local_base_freq", 10000, model);
  model.local_name = "rotary_emb_local";
  config.only("use_bidirectional_attention", false);
  config.pass_over({"hidden_act", "cache_implementation"});
  return model;
}

namespace {

std::string gemma3_text(HfConfigReader& config, Target& target) {
  return spec_of_decoder(read_gemma3(config), target);
}

std::string gemma(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kGemma);
  read_activation(config, "hidden_act", "gelu_pytorch_tanh", model);
  read_attention_bias(config, model);
  model.is_gemma = true;
  // Its MLP reads "hidden_act" alone.
  config.pass_over({"hidden_activation"});
  return spec_of_decoder(model, target);
}

std::string seed_oss(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kSeedOss);
  model.attention_dropout = config.probability("attention_dropout", 0.1);
  model.residual_dropout = config.probability("residual_dropout", 0.1);
  read_activation(config, "hidden_act", "silu", model);
  model.qkv_bias = config.flag("attention_bias", true);
  model.output_bias = config.flag("attention_out_bias", false);
  model.mlp_bias = config.flag("mlp_bias", false);
  config.pass_over({"pretraining_tp"});
  return spec_of_decoder(model, target);
}

/// EXAONE 4: rotary positions in the layers with a window alone, if there is one.
std::string exaone4(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kExaone4);
  read_activation(config, "hidden_act", "silu", model);
  model.qk_norm = true;
  model.norms = "after";
  const auto window = config.size_or_null("sliding_window", 4096);
  // Without a window, save_pretrained writes 0.
  if (!window) config.pass_over({"sliding_window_pattern"});
  const std::int64_t period = window ? config.size("sliding_window_pattern", 4) : 1;
  read_layer_types(config, window, model, but_every, period);
  if (window) {
    for (const std::int64_t each : model.windows) model.rope.push_back(each > 0);
  }
  config.pass_over({"cache_implementation"});
  return spec_of_decoder(model, target);
}

std::string glm_of(HfConfigReader& config, Target& target, const Defaults& defaults, std::string_view norms) {
  Decoder model = read_decoder(config, defaults);
  config.text("hidden_act", "silu", {"silu", "swish"});
  model.qkv_bias = config.flag("attention_bias", true);
  model.fused_gate_up = model.cuts_heads = model.interleaved = true;
  model.norms = norms;
  return spec_of_decoder(model, target);
}

std::string glm(HfConfigReader& config, Target& target) {
  return glm_of(config, target, kGlm, "");
}

std::string glm4(HfConfigReader& config, Target& target) {
  return glm_of(config, target, kGlm4, "around_glm");
}

/// GLM-4.5: dense layers first, then experts with one that all tokens go through.
std::string glm4_moe(HfConfigReader& config, Target& target) {
  config.alias("n_routed_experts", "num_local_experts");
  Decoder model = read_decoder(config, kGlm4Moe);
  read_experts(config, "n_routed_experts", 128, 8, model);
  model.qkv_bias = config.flag("attention_bias", false);
  model.qk_norm = config.flag("use_qk_norm", false);
  model.cuts_heads = model.stacked = true;
  model.router = "sigmoid";
  model.expert_size = config.size("moe_intermediate_size", 1408);
  model.shared_size = model.expert_size * config.size("n_shared_experts", 1, kMostExpertsOfLayer);
  model.norm_topk_prob = config.flag("norm_topk_prob", true);
  model.groups = config.size("n_group", 1);
  model.topk_groups = config.size("topk_group", 1);
  model.routed_scale = config.positive("routed_scaling_factor", 1);
  const std::int64_t dense = config.count("first_k_dense_replace", 1);
  for (std::int64_t i = 0; i < model.layers; ++i) model.dense.push_back(i < dense);
  // Layers that predict several tokens are in the weights, and no class makes them.
  config.pass_over({"num_nextn_predict_layers", "num_mtp_layers"});
  return spec_of_decoder(model, target);
}

std::string arcee(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kArcee);
  model.mlp = "up_down";
  read_activation(config, "hidden_act", "relu2", model);
  read_attention_bias(config, model);
  model.mlp_bias = config.flag("mlp_bias", false);
  return spec_of_decoder(model, target);
}

/// Neighbors are turned by tables in fp32.
std::string ernie4_5(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kErnie);
  read_activation(config, "hidden_act", "silu", model);
  model.qkv_bias = model.output_bias = model.mlp_bias = config.flag("use_bias", false);
  model.interleaved = model.wide_rotary = true;
  // Its attention never drops.
  model.attention_dropout = 0;
  config.pass_over({"compression_ratio", "freq_allocation", "rope_3d", "use_flash_attention", "fuse_rms_norm"});
  return spec_of_decoder(model, target);
}

std::string hunyuan_v1_dense(HfConfigReader& config, Target& target) {
  config.alias("head_dim", "attention_head_dim");
  Decoder model = read_decoder(config, kHunyuan);
  read_activation(config, "hidden_act", "silu", model);
  read_attention_bias(config, model);
  model.qk_norm_last = true;
  const auto width = static_cast<double>(model.head_dim);
  if (model.rotary.alpha != 1) model.rotary.theta *= std::pow(model.rotary.alpha, width / (width - 2));
  config.pass_over({"pretraining_tp", "eod_token_id", "use_qk_norm", "use_cla", "use_rotary_pos_emb", "mlp_bias",
                    "norm_type", "im_end_id", "im_newline_id", "im_start_id", "image_token_id", "text_start_id",
                    "text_end_id", "mask_init_id", "sep_token_id", "org_vocab_size", "cla_share_factor"});
  return spec_of_decoder(model, target);
}

std::string ministral(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kMinistral);
  read_activation(config, "hidden_act", "silu", model);
  const auto always = [](std::int64_t /*layer*/, std::int64_t /*first*/) { return true; };
  read_layer_types(config, config.size_or_null("sliding_window", 4096), model, always, 0);
  return spec_of_decoder(model, target);
}

}  // namespace

Decoder read_ministral3(HfConfigReader& config) {
  Decoder model = read_decoder(config, kMinistral3);
  read_activation(config, "hidden_act", "silu", model);
  slide_everywhere(config.size_or_null("sliding_window"), model);
  if (config.find("rope_scaling") == nullptr && config.find("rope_parameters") == nullptr) {
    model.rotary = {.theta = model.rotary.theta, .scaling = "yarn", .factor = 16, .original_positions = 16384};
    model.rotary.attention_factor = 1;
  }
  model.scaled_queries = true;
  return model;
}

namespace {

std::string ministral3(HfConfigReader& config, Target& target) {
  return spec_of_decoder(read_ministral3(config), target);
}

std::string granite(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kGranite);
  read_activation(config, "hidden_act", "silu", model);
  read_attention_bias(config, model);
  model.mlp_bias = config.flag("mlp_bias", false);
  model.embedding_scale = config.positive("embedding_multiplier", 1);
  model.residual_scale = config.positive("residual_multiplier", 1);
  model.scales = true;
  model.logit_scale = 1 / config.positive("logits_scaling", 1);
  const double scale = config.positive("attention_multiplier", 1);
  model.query_scalar = 1 / (scale * scale);
  return spec_of_decoder(model, target);
}

}  // namespace

std::span<const Kind> newer_decoder_kinds() {
  static const std::vector<Kind> kKinds = {
      {"arcee", {"ArceeForCausalLM"}, arcee},
      {"ernie4_5", {"Ernie4_5ForCausalLM"}, ernie4_5, false, true},
      {"exaone4", {"Exaone4ForCausalLM"}, exaone4},
      {"gemma", {"GemmaForCausalLM"}, gemma},
      {"gemma3_text", {"Gemma3ForCausalLM"}, gemma3_text},
      {"glm", {"GlmForCausalLM"}, glm},
      {"glm4", {"Glm4ForCausalLM"}, glm4},
      {"glm4_moe", {"Glm4MoeForCausalLM"}, glm4_moe, false, true},
      {"granite", {"GraniteForCausalLM"}, granite},
      {"hunyuan_v1_dense", {"HunYuanDenseV1ForCausalLM"}, hunyuan_v1_dense, false, true},
      {"ministral", {"MinistralForCausalLM"}, ministral, false, true},
      {"ministral3", {"Ministral3ForCausalLM"}, ministral3, false, true, "fp8"},
      {"olmo2", {"Olmo2ForCausalLM"}, olmo2},
      {"olmo3", {"Olmo3ForCausalLM"}, olmo3},
      {"phi3", {"Phi3ForCausalLM"}, phi3},
      {"seed_oss", {"SeedOssForCausalLM"}, seed_oss},
      {"smollm3", {"SmolLM3ForCausalLM"}, smollm3},
  };
  return kKinds;
}

}  // namespace fsdp::hf_models
