// Decoder-only language models with LayerNorm as facts of the shape of Llama: Cohere and Cohere 2 (Command R), Phi-1.5
// and Phi-2, StarCoder2, StableLM, and Nemotron.
//
// Cohere and Phi run attention and MLP side by side on one norm. Phi, StarCoder2 and Nemotron have an MLP without a
// gate.
//
// Sources: transformers 5.24.0, models/{cohere,cohere2,phi,starcoder2,stablelm,nemotron}/configuration_*.py for
// defaults, modeling_*.py for the keys that are read.
//
// Not modeled: norms of queries and keys, dropout of embeddings of Phi.

#include "core/formats/hf_decoder.h"

namespace fsdp::hf_models {

namespace {

constexpr Defaults kCohere = {.family = "Cohere",
                              .vocab_size = 256000,
                              .hidden_size = 8192,
                              .intermediate_size = 22528,
                              .layers = 40,
                              .heads = 64,
                              .positions = 8192,
                              .norm_eps = 1e-5,
                              .tied = true,
                              .pad_token = 0,
                              .eps_key = "layer_norm_eps"};
constexpr Defaults kCohere2 = [] {
  Defaults defaults = kCohere;
  defaults.family = "Cohere2";
  return defaults;
}();
constexpr Defaults kPhi = {.family = "Phi",
                           .vocab_size = 51200,
                           .hidden_size = 2048,
                           .intermediate_size = 8192,
                           .layers = 24,
                           .positions = 2048,
                           .norm_eps = 1e-5,
                           .partial_rotary = 0.5,
                           .eps_key = "layer_norm_eps"};
constexpr Defaults kStarcoder2 = {.family = "Starcoder2",
                                  .vocab_size = 49152,
                                  .hidden_size = 3072,
                                  .intermediate_size = 12288,
                                  .layers = 30,
                                  .heads = 24,
                                  .kv_heads = 2,
                                  .positions = 4096,
                                  .norm_eps = 1e-5,
                                  .tied = true,
                                  .eps_key = "norm_epsilon",
                                  .initial_std = 0.018042};
constexpr Defaults kStableLm = {.family = "StableLm",
                                .vocab_size = 50304,
                                .hidden_size = 2560,
                                .intermediate_size = 6912,
                                .kv_heads = 32,
                                .positions = 4096,
                                .norm_eps = 1e-5,
                                .partial_rotary = 0.25,
                                .eps_key = "layer_norm_eps"};
constexpr Defaults kNemotron = {.family = "Nemotron",
                                .vocab_size = 256000,
                                .hidden_size = 6144,
                                .intermediate_size = 24576,
                                .heads = 48,
                                .positions = 4096,
                                .norm_eps = 1e-5,
                                .partial_rotary = 0.5,
                                .eps_key = "norm_eps",
                                .initial_std = 0.0134};

Decoder read_cohere(HfConfigReader& config, const Defaults& defaults) {
  Decoder model = read_decoder(config, defaults);
  read_activation(config, "hidden_act", "silu", model);
  model.qkv_bias = model.output_bias = config.flag("attention_bias", false);
  model.norm = "layer_wide";
  model.norms = "shared";
  model.interleaved = model.turns_in_fp32 = model.scales_logits = true;
  model.logit_scale = config.positive("logit_scale", 0.0625);
  config.only("use_qk_norm", false);
  // Keys of other programs, which say what the class does.
  config.pass_over({"pretraining_tp", "use_embedding_sharing", "use_gated_activation", "use_parallel_block",
                    "use_parallel_embedding", "position_embedding_type", "order_of_interleaved_layers", "rotary_pct",
                    "layer_switch", "cache_implementation"});
  return model;
}

std::string cohere(HfConfigReader& config, Target& target) {
  return spec_of_decoder(read_cohere(config, kCohere), target);
}

/// Rotary positions in the layers with a window alone.
std::string cohere2(HfConfigReader& config, Target& target) {
  Decoder model = read_cohere(config, kCohere2);
  config.alias("sliding_window_pattern", "_sliding_window_pattern");
  const auto but_every = [](std::int64_t layer, std::int64_t period) { return (layer + 1) % period != 0; };
  const std::int64_t period = config.size("sliding_window_pattern", 4);
  read_layer_types(config, config.size_or_null("sliding_window", 4096), model, but_every, period);
  for (const std::int64_t window : model.windows) model.rope.push_back(window > 0);
  return spec_of_decoder(model, target);
}

std::string phi(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kPhi);
  read_activation(config, "hidden_act", "gelu_new", model);
  config.only("qk_layernorm", false);
  config.only("embd_pdrop", 0.0);
  model.layer_dropout = config.probability("resid_pdrop", 0);
  model.qkv_bias = model.output_bias = model.mlp_bias = model.head_bias = true;
  model.norm = "layer";
  model.norms = "shared_last";
  model.mlp = "fc";
  model.is_dense_named = model.cuts_heads = true;
  return spec_of_decoder(model, target);
}

std::string starcoder2(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kStarcoder2);
  read_activation(config, "hidden_act", "gelu_pytorch_tanh", model);
  slide_everywhere(config.size_or_null("sliding_window"), model);
  model.embedding_dropout = config.probability("embedding_dropout", 0);
  model.residual_dropout = config.probability("residual_dropout", 0);
  model.qkv_bias = model.output_bias = model.mlp_bias = config.flag("use_bias", true);
  model.norm = "layer";
  model.mlp = "c_fc";
  config.pass_over({"activation_function", "mlp_type", "norm_type"});
  return spec_of_decoder(model, target);
}

std::string stablelm(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kStableLm);
  read_activation(config, "hidden_act", "silu", model);
  config.only("qk_layernorm", false);
  config.only("hidden_dropout", 0.0);
  model.qkv_bias = config.flag("use_qkv_bias", false);
  model.norm = "layer";
  if (config.flag("use_parallel_residual", false)) model.norms = "shared";
  model.cuts_heads = true;
  config.pass_over({"rotary_scaling_factor", "norm_eps"});
  return spec_of_decoder(model, target);
}

std::string nemotron(HfConfigReader& config, Target& target) {
  Decoder model = read_decoder(config, kNemotron);
  read_activation(config, "hidden_act", "relu2", model);
  model.qkv_bias = model.output_bias = config.flag("attention_bias", false);
  model.mlp_bias = config.flag("mlp_bias", false);
  model.norm = "layer_unit";
  model.mlp = "up_down";
  model.cuts_heads = true;
  return spec_of_decoder(model, target);
}

}  // namespace

std::span<const Kind> layer_norm_decoder_kinds() {
  static const std::vector<Kind> kKinds = {
      {"cohere", {"CohereForCausalLM"}, cohere},       {"cohere2", {"Cohere2ForCausalLM"}, cohere2},
      {"nemotron", {"NemotronForCausalLM"}, nemotron}, {"phi", {"PhiForCausalLM"}, phi},
      {"stablelm", {"StableLmForCausalLM"}, stablelm}, {"starcoder2", {"Starcoder2ForCausalLM"}, starcoder2},
  };
  return kKinds;
}

}  // namespace fsdp::hf_models
