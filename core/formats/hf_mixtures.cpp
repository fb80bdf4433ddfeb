// Mixtures of experts of 2024 and 2025 as facts of the shape of Llama: gpt-oss, DeepSeek-V2 and V3 (Moonlight,
// Kimi-K2), GLM-4.7-Flash, MiniMax-M2, Qwen2-MoE, Llama 4.
//
// Sources: transformers 5.24.0, models/{gpt_oss,deepseek_v2,deepseek_v3,glm4_moe_lite,minimax_m2,qwen2_moe,llama4}
// /configuration_*.py for defaults, modeling_*.py for the keys that are read.
//
// Not modeled: layers that predict several tokens, which no class builds for training; the auxiliary loss of routers.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/formats/hf_config.h"
#include "core/formats/hf_decoder.h"

namespace fsdp::hf_models {

namespace {

constexpr Defaults kGptOss = {.family = "GptOss",
                              .vocab_size = 201088,
                              .hidden_size = 2880,
                              .intermediate_size = 2880,
                              .layers = 36,
                              .heads = 64,
                              .kv_heads = 8,
                              .head_dim = 64,
                              .positions = 131072,
                              .norm_eps = 1e-5,
                              .rope_theta = 150000};
// Heads have parts of their own; "head_dim" is that of the rotary one.
constexpr Defaults kDeepseekV2 = {
    .family = "DeepseekV2", .vocab_size = 102400, .intermediate_size = 11008, .head_dim = 64, .positions = 2048};
constexpr Defaults kDeepseekV3 = {.family = "DeepseekV3",
                                  .vocab_size = 129280,
                                  .hidden_size = 7168,
                                  .intermediate_size = 18432,
                                  .layers = 61,
                                  .heads = 128,
                                  .kv_heads = 128,
                                  .head_dim = 64,
                                  .positions = 4096};
constexpr Defaults kGlm4MoeLite = {.family = "Glm4MoeLite",
                                   .vocab_size = 154880,
                                   .hidden_size = 2048,
                                   .intermediate_size = 10240,
                                   .layers = 47,
                                   .heads = 20,
                                   .kv_heads = 20,
                                   .head_dim = 64,
                                   .positions = 202752,
                                   .norm_eps = 1e-5};

constexpr Defaults kMinimaxM2 = {.family = "MiniMaxM2",
                                 .vocab_size = 200064,
                                 .hidden_size = 3072,
                                 .intermediate_size = 1536,
                                 .layers = 62,
                                 .heads = 48,
                                 .kv_heads = 8,
                                 .head_dim = 128,
                                 .positions = 196608,
                                 .partial_rotary = 1};
constexpr Defaults kQwen2Moe = {.family = "Qwen2Moe",
                                .vocab_size = 151936,
                                .hidden_size = 2048,
                                .intermediate_size = 5632,
                                .layers = 24,
                                .heads = 16,
                                .kv_heads = 16};

constexpr Defaults kLlama4 = {.family = "Llama4Text",
                              .vocab_size = 202048,
                              .hidden_size = 5120,
                              .intermediate_size = 8192,
                              .layers = 48,
                              .heads = 40,
                              .kv_heads = 8,
                              .head_dim = 128,
                              .positions = 131072,
                              .norm_eps = 1e-5,
                              .rope_theta = 500000};

/// The only class that is planned has its experts stacked.
void note_version(Target& target) {
  note_older_release(target, ", with stacked experts");
}

std::string gpt_oss(HfConfigReader& config, Target& target) {
  config.alias("num_local_experts", "num_experts");
  Decoder model = read_decoder(config, kGptOss);
  if (config.find("rope_scaling") == nullptr && config.find("rope_parameters") == nullptr) {
    model.rotary.scaling = "yarn";
    model.rotary.factor = 32;
    model.rotary.original_positions = 4096;
    model.rotary.truncate = false;
    model.rotary.attention_factor = 0.1 * std::log(32.0) + 1;
  }
  const auto every_other = [](std::int64_t layer, std::int64_t /*first*/) { return layer % 2 == 0; };
  read_layer_types(config, config.size_or_null("sliding_window", 128), model, every_other, 0);
  read_experts(config, "num_local_experts", 128, 4, model);
  if (model.num_experts == 0) config.fail("num_local_experts", "A mixture of no experts.", "It has 1 at least.");
  model.expert_size = model.intermediate_size;
  model.qkv_bias = model.output_bias = config.flag("attention_bias", true);
  model.swiglu_alpha = config.positive("swiglu_alpha", 1.702);
  model.swiglu_limit = config.positive("swiglu_limit", 7);
  model.is_gpt_oss = model.stacked = model.wide_norms = true;
  note_version(target);
  // Other names of keys above, for other programs.
  config.pass_over({"experts_per_token", "initial_context_length"});
  return spec_of_decoder(model, target);
}

/// Parts of heads, and the latents. REQUIRES: the rotary table is read.
void read_latents(HfConfigReader& config, std::int64_t q_rank, std::int64_t plain, std::int64_t value, Decoder& model) {
  LatentHeads& latent = model.latent.emplace();
  latent.q_rank = config.size_or_null("q_lora_rank", q_rank).value_or(0);
  latent.kv_rank = config.size("kv_lora_rank", 512);
  latent.plain = config.size("qk_nope_head_dim", plain);
  latent.turned = config.size("qk_rope_head_dim", 64);
  latent.value = config.size("v_head_dim", value);
  if (latent.turned % 2 != 0) {
    config.fail("qk_rope_head_dim", fmt::format("{} numbers of a head would be turned.", latent.turned),
                "They are an even number.");
  }
  if (model.kv_heads != model.heads) {
    config.fail("num_key_value_heads",
                fmt::format("There are {} heads of keys, and {} of queries.", model.kv_heads, model.heads),
                "Each query head has a key of its own here.");
  }
  model.rotary_dim = latent.turned;
  model.states_head_dim = false;
  model.qkv_bias = config.flag("attention_bias", false);
  // Scores are times the square of yarn's factor.
  if (model.rotary.scaling.empty() || model.rotary.mscale_all == 0) return;
  const double factor =
      model.rotary.factor <= 1 ? 1 : 0.1 * model.rotary.mscale_all * std::log(model.rotary.factor) + 1;
  model.query_scalar = static_cast<double>(latent.plain + latent.turned) / std::pow(factor, 4);
}

void read_latent_experts(HfConfigReader& config, std::int64_t experts, std::int64_t per_token, std::int64_t shared,
                         std::int64_t size, Decoder& model) {
  read_experts(config, "n_routed_experts", experts, per_token, model);
  if (model.num_experts == 0) config.fail("n_routed_experts", "A mixture of no experts.", "It has 1 at least.");
  model.stacked = true;
  model.expert_size = config.size("moe_intermediate_size", size);
  model.shared_size = model.expert_size * config.size("n_shared_experts", shared, kMostExpertsOfLayer);
  // Keys of the models' own code, and layers that predict several tokens.
  config.pass_over({"qk_head_dim", "aux_loss_alpha", "ep_size", "moe_layer_freq", "scoring_func", "seq_aux",
                    "pretraining_tp", "num_nextn_predict_layers", "num_mtp_layers"});
}

void read_groups(HfConfigReader& config, std::int64_t groups, std::int64_t best, double scale, Decoder& model) {
  model.router = "sigmoid";
  model.norm_topk_prob = config.flag("norm_topk_prob", true);
  model.groups = config.size("n_group", groups);
  model.topk_groups = config.size("topk_group", best);
  model.routed_scale = config.positive("routed_scaling_factor", scale);
  model.interleaved = config.flag("rope_interleave", true);
}

void read_dense_layers(HfConfigReader& config, std::int64_t usual, Decoder& model) {
  const std::int64_t dense = config.count("first_k_dense_replace", usual);
  for (std::int64_t i = 0; i < model.layers; ++i) model.dense.push_back(i < dense);
}

std::string deepseek_v3(HfConfigReader& config, Target& target) {
  config.aliases({{"n_routed_experts", "num_local_experts"}, {"num_nextn_predict_layers", "num_mtp_layers"}});
  Decoder model = read_decoder(config, kDeepseekV3);
  read_latents(config, 1536, 128, 128, model);
  read_latent_experts(config, 256, 8, 1, 2048, model);
  read_groups(config, 8, 4, 2.5, model);
  read_dense_layers(config, 3, model);
  note_version(target);
  config.pass_over({"topk_method"});
  return spec_of_decoder(model, target);
}

std::string glm4_moe_lite(HfConfigReader& config, Target& target) {
  config.aliases({{"n_routed_experts", "num_local_experts"}, {"qk_rope_head_dim", "head_dim"}});
  Decoder model = read_decoder(config, kGlm4MoeLite);
  read_latents(config, 768, 192, 256, model);
  read_latent_experts(config, 64, 4, 1, 1536, model);
  read_groups(config, 1, 1, 1.8, model);
  config.text("topk_method", "noaux_tc", {"noaux_tc"});
  const JsonValue* types = config.find("mlp_layer_types");
  if (types == nullptr || types->type == JsonType::Null) {
    read_dense_layers(config, 1, model);
  } else {
    std::vector<std::string> names;
    read_json(*types, names, config.errors());
    for (const std::string& name : names) model.dense.push_back(name == "dense");
    if (static_cast<std::int64_t>(names.size()) != model.layers) {
      config.errors().add(
          *types,
          fmt::format("\"mlp_layer_types\" has {} entries, and there are {} layers.", names.size(), model.layers),
          "It has one for each layer, \"dense\" or \"sparse\".");
      model.dense.assign(static_cast<std::size_t>(model.layers), false);
    }
    config.pass_over({"first_k_dense_replace"});
  }
  config.pass_over({"partial_rotary_factor"});
  return spec_of_decoder(model, target);
}

std::string deepseek_v2(HfConfigReader& config, Target& target) {
  config.alias("n_routed_experts", "num_experts");
  Decoder model = read_decoder(config, kDeepseekV2);
  read_latents(config, 1536, 128, 128, model);
  read_latent_experts(config, 64, 6, 2, 1407, model);
  if (config.find("num_experts_per_tok") == nullptr) {
    config.fail("num_experts_per_tok", "\"num_experts_per_tok\" is absent.", "The class has no default for it.");
  }
  model.mlp_bias = config.flag("mlp_bias", false);
  model.router = "wide_softmax";
  model.complex_rotary = true;
  const std::string method = config.text("topk_method", "greedy", {"greedy", "group_limited_greedy"});
  const auto groups = config.size_or_null("n_group");
  const auto best = config.size_or_null("topk_group");
  model.groups = method == "greedy" ? 0 : groups.value_or(1);
  model.topk_groups = best.value_or(1);
  model.routed_scale = config.positive("routed_scaling_factor", 1);
  read_dense_layers(config, 0, model);
  note_version(target);
  config.pass_over({"norm_topk_prob"});
  return spec_of_decoder(model, target);
}

std::string minimax_m2(HfConfigReader& config, Target& target) {
  config.alias("num_local_experts", "num_experts");
  Decoder model = read_decoder(config, kMinimaxM2);
  // Published files name the numbers of a head that are turned.
  if (const auto turned = config.size_or_null("rotary_dim")) model.rotary_dim = std::min(*turned, model.head_dim);
  read_experts(config, "num_local_experts", 256, 8, model);
  if (model.num_experts == 0) config.fail("num_local_experts", "A mixture of no experts.", "It has 1 at least.");
  config.only("router_jitter_noise", 0.0);
  model.expert_size = model.intermediate_size;
  model.is_mixtral = model.stacked = model.cuts_heads = model.qk_norm_of_all_heads = true;
  model.router = "narrow_sigmoid";
  note_version(target);
  // What the class does anyway, and layers that predict several tokens.
  config.pass_over({"use_qk_norm", "qk_norm_type", "use_routing_bias", "scoring_func", "attn_type_list",
                    "shared_intermediate_size", "shared_moe_mode", "layernorm_full_attention_beta",
                    "layernorm_linear_attention_beta", "layernorm_mlp_beta", "mtp_transformer_layers",
                    "num_mtp_modules", "use_mtp"});
  return spec_of_decoder(model, target);
}

std::string qwen2_moe(HfConfigReader& config, Target& target) {
  config.alias("num_experts", "num_local_experts");
  Decoder model = read_decoder(config, kQwen2Moe);
  read_experts(config, "num_experts", 60, 4, model);
  if (model.num_experts == 0) config.fail("num_experts", "A mixture of no experts.", "It has 1 at least.");
  model.expert_size = config.size("moe_intermediate_size", 1408);
  model.shared_size = config.size("shared_expert_intermediate_size", 5632);
  model.norm_topk_prob = config.flag("norm_topk_prob", false);
  model.qkv_bias = config.flag("qkv_bias", true);
  model.stacked = model.has_gated_share = true;
  const std::int64_t step = config.size("decoder_sparse_step", 1);
  std::vector<std::int64_t> dense;
  if (const JsonValue* given = config.find("mlp_only_layers"); given != nullptr && given->type != JsonType::Null) {
    read_json(*given, dense, config.errors(), IntegerRange{0, model.layers - 1});
  }
  for (std::int64_t i = 0; i < model.layers; ++i) {
    model.dense.push_back((i + 1) % step != 0 || std::find(dense.begin(), dense.end(), i) != dense.end());
  }
  const auto early = [](std::int64_t layer, std::int64_t first) { return (layer + 1) % 2 != 0 && layer < first; };
  const bool slides = config.flag("use_sliding_window", false);
  // save_pretrained writes 0 for a window that is switched off.
  if (!slides) config.pass_over({"sliding_window"});
  const auto window = slides ? config.size_or_null("sliding_window", 4096) : std::nullopt;
  read_layer_types(config, window, model, early, config.count("max_window_layers", 28));
  note_version(target);
  return spec_of_decoder(model, target);
}

/// Published files have a number for this flag.
bool read_switch(HfConfigReader& config, std::string_view key, bool otherwise) {
  const JsonValue* value = config.find(key);
  if (value == nullptr || value->type != JsonType::Number) return config.flag(key, otherwise);
  double number = 0;
  read_json(*value, number, config.errors());
  return number != 0;
}

/// The layers with experts: "moe_layers", or every "interleave_moe_layer_step"-th.
void read_moe_layers(HfConfigReader& config, Decoder& model) {
  const std::int64_t step = config.size("interleave_moe_layer_step", 1);
  for (std::int64_t i = 0; i < model.layers; ++i) model.dense.push_back((i + 1) % step != 0);
  const JsonValue* given = config.find("moe_layers");
  if (given == nullptr || given->type == JsonType::Null) return;
  std::vector<std::int64_t> sparse;
  read_json(*given, sparse, config.errors(), IntegerRange{0, kMostConfigLayers});
  model.dense.assign(static_cast<std::size_t>(model.layers), true);
  for (const std::int64_t layer : sparse) {
    if (layer < model.layers) model.dense[layer] = false;
  }
}

/// "layer_types", with chunks in place of windows: layers with rotary positions have them if the key is absent.
void read_chunks(HfConfigReader& config, Decoder& model) {
  constexpr std::string_view kChunked = "chunked_attention";
  const auto chunk = config.size_or_null("attention_chunk_size", 8192);
  const auto given = read_layers_of_type(config, kChunked, model.layers);
  if (given && given->empty()) return;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const bool is_chunked = given ? (*given)[i] : model.rope.empty() || model.rope[i];
    model.windows.push_back(is_chunked ? chunk.value_or(0) : 0);
  }
}

}  // namespace

Decoder read_llama4(HfConfigReader& config) {
  config.alias("num_local_experts", "num_experts");
  Decoder model = read_decoder(config, kLlama4);
  read_experts(config, "num_local_experts", 16, 1, model);
  if (model.num_experts == 0) config.fail("num_local_experts", "A mixture of no experts.", "It has 1 at least.");
  config.only("router_jitter_noise", 0.0);
  model.is_llama4 = model.stacked = model.complex_rotary = true;
  model.expert_size = model.intermediate_size;
  model.dense_size = config.size("intermediate_size_mlp", 16384);
  model.qkv_bias = model.output_bias = config.flag("attention_bias", false);
  model.qk_l2_norm = config.flag("use_qk_norm", true);
  // The factors are 1 within the first "floor_scale" positions; their bytes are the same beyond them.
  model.temperature_tuning = read_switch(config, "attn_temperature_tuning", true);
  read_moe_layers(config, model);
  read_rope_layers(config, model);
  read_chunks(config, model);
  config.pass_over(
      {"floor_scale", "attn_scale", "cache_implementation", "for_llm_compressor", "_attn_implementation_autoset"});
  return model;
}

namespace {

std::string llama4_text(HfConfigReader& config, Target& target) {
  Decoder model = read_llama4(config);
  note_version(target);
  return spec_of_decoder(model, target);
}

}  // namespace

std::span<const Kind> mixture_kinds() {
  static const std::vector<Kind> kKinds = {
      {"deepseek_v2", {"DeepseekV2ForCausalLM"}, deepseek_v2, false, true},
      {"deepseek_v3", {"DeepseekV3ForCausalLM"}, deepseek_v3, false, true, "fp8"},
      {"glm4_moe_lite", {"Glm4MoeLiteForCausalLM"}, glm4_moe_lite, false, true},
      {"gpt_oss", {"GptOssForCausalLM"}, gpt_oss, false, true, "mxfp4"},
      {"kimi_k2", {"DeepseekV3ForCausalLM"}, deepseek_v3, false, true, "fp8"},
      {"llama4_text", {"Llama4ForCausalLM"}, llama4_text, false, true},
      {"minimax_m2", {"MiniMaxM2ForCausalLM"}, minimax_m2, false, true, "fp8"},
      {"qwen2_moe", {"Qwen2MoeForCausalLM"}, qwen2_moe, false, true},
  };
  return kKinds;
}

}  // namespace fsdp::hf_models
