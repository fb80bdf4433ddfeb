// Decoders with linear attention in most layers: Qwen3-Next, and Qwen3.5 with and without experts. Those of Qwen3.5
// have a tower for images, too (core/formats/hf_vision_models.cpp); here is their decoder.
//
// Sources: transformers 5.24.0, models/{qwen3_next,qwen3_5,qwen3_5_moe}/configuration_*.py for defaults, modeling_*.py
// for the keys that are read.
//
// Not modeled: layers that predict several tokens, which no class builds for training; the auxiliary loss of routers.

#include <fmt/format.h>

#include "core/formats/hf_config.h"
#include "core/formats/hf_decoder.h"

namespace fsdp::hf_models {

namespace {

constexpr std::string_view kLinear = "linear_attention";

constexpr Defaults kQwen3Next = {.family = "Qwen3Next",
                                 .vocab_size = 151936,
                                 .hidden_size = 2048,
                                 .intermediate_size = 5632,
                                 .layers = 48,
                                 .heads = 16,
                                 .kv_heads = 2,
                                 .head_dim = 256,
                                 .partial_rotary = 0.25};
constexpr Defaults kQwen35 = {.family = "Qwen3_5",
                              .vocab_size = 248320,
                              .intermediate_size = 12288,
                              .heads = 16,
                              .kv_heads = 4,
                              .head_dim = 256,
                              .partial_rotary = 0.25,
                              .has_sections = true};
constexpr Defaults kQwen35Moe = [] {
  Defaults defaults = kQwen35;
  defaults.family = "Qwen3_5Moe";
  defaults.hidden_size = 2048;
  defaults.layers = 40;
  defaults.kv_heads = 2;
  return defaults;
}();

/// Which layers have linear attention. If "layer_types" is absent, all but each fourth.
void read_linear_layers(HfConfigReader& config, Decoder& model) {
  const std::int64_t interval = config.size("full_attention_interval", 4);
  std::vector<bool>& is_here = model.linear->is_here;
  if (auto given = read_layers_of_type(config, kLinear, model.layers)) {
    is_here = *std::move(given);
    is_here.resize(static_cast<std::size_t>(model.layers), true);
  } else {
    for (std::int64_t i = 0; i < model.layers; ++i) is_here.push_back((i + 1) % interval != 0);
  }
}

void read_linear_attention(HfConfigReader& config, Decoder& model) {
  LinearHeads& linear = model.linear.emplace();
  linear.key_heads = config.size("linear_num_key_heads", 16);
  linear.heads = config.size("linear_num_value_heads", 32);
  linear.key_dim = config.size("linear_key_head_dim", 128);
  linear.value_dim = config.size("linear_value_head_dim", 128);
  linear.kernel = config.size("linear_conv_kernel_dim", 4);
  if (linear.heads % linear.key_heads != 0) {
    config.fail("linear_num_value_heads",
                fmt::format("{} heads of values do not divide into {} of keys.", linear.heads, linear.key_heads),
                "It is a multiple of \"linear_num_key_heads\".");
  }
  read_linear_layers(config, model);
}

/// What the classes of these models share: attention with a gate, norms by 1 + weight.
Decoder read_hybrid(HfConfigReader& config, const Defaults& defaults) {
  Decoder model = read_decoder(config, defaults);
  config.text("hidden_act", "silu", {"silu", "swish"});
  model.qkv_bias = model.output_bias = config.flag("attention_bias", false);
  model.qk_norm = model.unit_offset = model.has_gated_output = model.cuts_heads = true;
  read_linear_attention(config, model);
  // What the class does anyway, the kernels' own dtype of states, and layers that predict several tokens.
  config.only("attn_output_gate", true);
  config.pass_over({"mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"});
  return model;
}

void read_shared_experts(HfConfigReader& config, std::int64_t experts, std::int64_t per_token, Decoder& model) {
  read_experts(config, "num_experts", experts, per_token, model);
  model.expert_size = config.size("moe_intermediate_size", 512);
  model.shared_size = config.size("shared_expert_intermediate_size", 512);
  model.norm_topk_prob = config.flag("norm_topk_prob", true);
  model.stacked = model.has_gated_share = true;
}

std::string qwen3_next(HfConfigReader& config, Target& target) {
  config.alias("num_experts", "num_local_experts");
  Decoder model = read_hybrid(config, kQwen3Next);
  model.linear->is_fused = true;
  read_shared_experts(config, 512, 10, model);
  read_sparse_layers(config, model);
  note_older_release(target);
  return spec_of_decoder(model, target);
}

std::string qwen3_5_text(HfConfigReader& config, Target& target) {
  note_older_release(target);
  return spec_of_decoder(read_qwen3_5(config), target);
}

std::string qwen3_5_moe_text(HfConfigReader& config, Target& target) {
  note_older_release(target);
  return spec_of_decoder(read_qwen3_5_moe(config), target);
}

}  // namespace

Decoder read_qwen3_5(HfConfigReader& config) {
  Decoder model = read_hybrid(config, kQwen35);
  model.tables_by_sample = true;
  model.around.decoder_class = "Qwen3_5TextModel";
  config.pass_over({"mlp_only_layers"});
  return model;
}

Decoder read_qwen3_5_moe(HfConfigReader& config) {
  config.alias("num_experts", "num_local_experts");
  Decoder model = read_hybrid(config, kQwen35Moe);
  model.tables_by_sample = true;
  model.around.decoder_class = "Qwen3_5MoeTextModel";
  read_shared_experts(config, 256, 8, model);
  if (model.num_experts == 0) config.fail("num_experts", "A mixture of no experts.", "It has 1 at least.");
  // The class has experts in each layer.
  config.pass_over({"mlp_only_layers", "intermediate_size", "decoder_sparse_step"});
  return model;
}

std::span<const Kind> hybrid_kinds() {
  static const std::vector<Kind> kKinds = {
      {"qwen3_5_moe_text", {"Qwen3_5MoeForCausalLM"}, qwen3_5_moe_text, false, true},
      {"qwen3_5_text", {"Qwen3_5ForCausalLM"}, qwen3_5_text, false, true},
      {"qwen3_next", {"Qwen3NextForCausalLM"}, qwen3_next, false, true},
  };
  return kKinds;
}

}  // namespace fsdp::hf_models
