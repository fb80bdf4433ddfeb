// Hybrids with Mamba-2: Nemotron-H without experts.
//
// Sources: transformers 5.24.0, models/nemotron_h/configuration_nemotron_h.py for defaults, modeling_nemotron_h.py for
// the keys that are read.
//
// Not modeled: experts, whose router stays in fp32; layers that predict several tokens, which no class builds; initial
// steps, which are drawn, and are planned as equal.

#include <fmt/format.h>

#include <cmath>

#include "core/formats/hf_config.h"
#include "core/formats/hf_decoder.h"
#include "core/formats/hf_models.h"
#include "core/formats/hf_spec_text.h"

namespace fsdp::hf_models {

namespace {

constexpr std::string_view kStateNote =
    "State spaces are planned as transformers runs them in PyTorch's own calls, without mamba-ssm and causal-conv1d. "
    "With "
    "these packages, which transformers calls if they are installed, a step is faster and needs less memory.";
/// The middle of the steps that are drawn, 0.01, before softplus: log(exp(0.01) - 1).
constexpr double kUsualStep = -4.6002;

struct NemotronH {
  std::int64_t vocab_size = 1, hidden_size = 1, intermediate_size = 1, heads = 1, kv_heads = 1, head_dim = 1,
               positions = 1;
  std::int64_t mamba_heads = 1, mamba_dim = 1, state = 1, groups = 1, kernel = 4, chunk = 128;
  double eps = 1e-5, initial_std = kUsualInitialStd, step_min = 0, attention_dropout = 0;
  bool conv_bias = true, projection_bias = false, mlp_bias = false;
  std::vector<std::string> mixers;  ///< As the option of "nemotron_h_block".
};

/// The mixer of a layer's type, or of a letter of the older pattern; empty if there is none.
std::string_view mixer_of(std::string_view type) {
  struct Names {
    std::string_view mixer;
    std::array<std::string_view, 3> types;
  };
  constexpr std::array<Names, 3> kNames = {{{"mamba", {"linear_attention", "mamba", "M"}},
                                            {"attention", {"full_attention", "attention", "*"}},
                                            {"mlp", {"mlp", "mlp", "-"}}}};
  for (const Names& each : kNames) {
    for (const std::string_view known : each.types) {
      if (known == type) return each.mixer;
    }
  }
  return {};
}

void add_mixer(HfConfigReader& config, const JsonValue& where, std::string_view type, NemotronH& model) {
  const std::string_view mixer = mixer_of(type);
  if (mixer.empty()) {
    config.errors().add(where, fmt::format("The type of a layer is \"{}\".", type),
                        fmt::format("State spaces, attention and MLPs are planned; for experts, {}", kCaptureInstead));
  }
  model.mixers.emplace_back(mixer.empty() ? "mlp" : mixer);
}

void read_layers(HfConfigReader& config, NemotronH& model) {
  config.alias("layers_block_type", "layer_types");
  const JsonValue* types = config.find("layers_block_type");
  const JsonValue* pattern = config.find("hybrid_override_pattern");
  if (types != nullptr && types->type == JsonType::Array) {
    for (const JsonValue& type : types->elements) add_mixer(config, type, type.text, model);
  } else if (pattern != nullptr && pattern->type == JsonType::String) {
    for (const char letter : pattern->text) add_mixer(config, *pattern, std::string_view(&letter, 1), model);
  }
  if (model.mixers.empty()) {
    config.fail("layers_block_type", "No type of a layer is given.",
                "It has one for each layer, and \"hybrid_override_pattern\" a letter.");
    model.mixers.emplace_back("mamba");
  }
  config.pass_over({"num_hidden_layers"});
}

NemotronH read_nemotron_h(HfConfigReader& config) {
  config.aliases({{"n_groups", "mamba_n_groups"},
                  {"conv_kernel", "mamba_d_conv"},
                  {"time_step_min", "mamba_dt_min"},
                  {"use_conv_bias", "mamba_conv_bias"},
                  {"chunk_size", "mamba_chunk_size"}});
  NemotronH model;
  model.vocab_size = config.size("vocab_size", 131072);
  model.hidden_size = config.size("hidden_size", 4096);
  model.intermediate_size = config.size("intermediate_size", 21504);
  model.heads = config.size("num_attention_heads", 32);
  model.kv_heads = config.size_or_null("num_key_value_heads", 8).value_or(model.heads);
  model.head_dim = config.size("head_dim", 128);
  model.positions = config.size("max_position_embeddings", 4096);
  model.mamba_heads = config.size("mamba_num_heads", 128);
  model.mamba_dim = config.size("mamba_head_dim", 64);
  model.state = config.size("ssm_state_size", 128);
  model.groups = config.size("n_groups", 8);
  model.kernel = config.size("conv_kernel", 4);
  model.chunk = config.size("chunk_size", 128);
  model.eps = config.positive("layer_norm_epsilon", 1e-5);
  model.initial_std = config.positive("initializer_range", kUsualInitialStd);
  model.step_min = config.positive("time_step_min", 0.001);
  model.attention_dropout = config.probability("attention_dropout", 0);
  model.conv_bias = config.flag("use_conv_bias", true);
  model.projection_bias = config.flag("use_bias", false);
  model.mlp_bias = config.flag("mlp_bias", false);
  if (model.mamba_heads % model.groups != 0) {
    config.fail("n_groups", fmt::format("{} heads do not divide into {} groups.", model.mamba_heads, model.groups),
                "It divides \"mamba_num_heads\".");
  }
  config.text("mamba_hidden_act", "silu", {"silu"});
  config.text("mlp_hidden_act", "relu2", {"relu2"});
  config.only("tie_word_embeddings", false);
  config.only("output_router_logits", false);
  read_layers(config, model);
  // What the class does not read, what draws initial values or ends generation, and keys of experts.
  config.pass_over({"expand",
                    "time_step_max",
                    "time_step_floor",
                    "time_step_limit",
                    "mamba_proj_bias",
                    "use_mamba_kernels",
                    "mamba_ssm_cache_dtype",
                    "mamba_expand",
                    "mamba_dt_max",
                    "mamba_dt_limit",
                    "mamba_dt_init_floor",
                    "attention_bias",
                    "sliding_window",
                    "residual_in_fp32",
                    "hidden_dropout",
                    "rescale_prenorm_residual",
                    "num_logits_to_keep",
                    "pad_token_id",
                    "attention_head_dim",
                    "norm_eps",
                    "rms_norm_eps",
                    "partial_rotary_factor",
                    "rope_theta"});
  config.pass_over({"n_routed_experts", "n_shared_experts", "moe_intermediate_size",
                    "moe_shared_expert_intermediate_size", "moe_latent_size", "moe_shared_expert_overlap",
                    "num_experts_per_tok", "routed_scaling_factor", "n_group", "topk_group", "norm_topk_prob",
                    "num_nextn_predict_layers", "mtp_layers_block_type", "mtp_hybrid_override_pattern",
                    "num_local_experts"});
  return model;
}

void write_options(JsonWriter& json, const NemotronH& model) {
  json.member("family", "NemotronH");
  json.member("mamba_num_heads", model.mamba_heads);
  json.member("mamba_head_dim", model.mamba_dim);
  json.member("ssm_state_size", model.state);
  json.member("n_groups", model.groups);
  json.member("conv_kernel", model.kernel);
  if (!model.conv_bias) json.member("conv_bias", false);
  json.member("chunk_size", model.chunk);
  json.member("time_step_min", model.step_min);
  if (model.projection_bias) json.member("projection_bias", true);
  json.member("num_attention_heads", model.heads);
  json.member("num_key_value_heads", model.kv_heads);
  json.member("head_dim", model.head_dim);
  if (model.attention_dropout > 0) json.member("attention_dropout", model.attention_dropout);
  json.member("intermediate_size", model.intermediate_size);
  if (model.mlp_bias) json.member("mlp_bias", true);
  json.member("norm_eps", model.eps);
  nested_member(json, "per_layer", "mixer", model.mixers);
}

std::string nemotron_h(HfConfigReader& config, Target& target) {
  const NemotronH model = read_nemotron_h(config);
  HfSpecText spec(target.name, target.source, target.dtype, {{"batch", 1}, {"seq", usual_seq(model.positions)}});
  spec.inputs({{"input_ids", {"batch", "seq"}}, {"labels", {"batch", "seq"}}});
  spec.classes({{"", target.architecture}, {"model", "NemotronHModel"}});
  spec.module("model.embeddings", "token_embedding", [&](JsonWriter& json) {
    json.member("vocab_size", model.vocab_size);
    json.member("hidden_size", model.hidden_size);
  });
  spec.module(repeated_name("model.layers", 0, std::ssize(model.mixers) - 1), "nemotron_h_block",
              [&](JsonWriter& json) { write_options(json, model); });
  spec.module(
      "model.norm_f", "rms_norm",
      [&](JsonWriter& json) {
        json.member("wide_weight", true);
        json.member("eps", model.eps);
      },
      "NemotronHRMSNorm");
  spec.module("lm_head", "lm_head", [&](JsonWriter& json) { json.member("vocab_size", model.vocab_size); });
  spec.op("", {}, [](JsonWriter& json) {
    json.member("op", "cast");
    json.member("inputs", std::vector<std::string>{"logits"});
    json.member("dtype", "float32");
    json.member("outputs", std::vector<std::string>{"logits"});
  });
  spec.module("", "cross_entropy", [](JsonWriter& json) { json.member("shift", true); });
  spec.end_modules();
  const double layers = static_cast<double>(model.mixers.size());
  // A uniform draw of PyTorch's linear layers, over the root of the number of layers.
  const double of_outputs =
      std::sqrt(1.0 / 3) / std::sqrt(static_cast<double>(model.mamba_heads * model.mamba_dim) * layers);
  spec.initial_values("initializer_range of config.json; NemotronHPreTrainedModel._init_weights", model.initial_std,
                      {{"*.D", "constant", 1},
                       {"*.dt_bias", "constant", kUsualStep},
                       {"*.A_log", "constant", std::log(static_cast<double>(model.mamba_heads)) - 1},
                       {"*.out_proj.weight", "uniform", of_outputs}});
  spec.recipes(kWeightDecay, true);
  target.notes.insert(target.notes.begin(), std::string(kStateNote));
  return std::move(spec).finish(target.notes);
}

}  // namespace

std::span<const Kind> mamba_kinds() {
  static const std::vector<Kind> kKinds = {{"nemotron_h", {"NemotronHForCausalLM"}, nemotron_h}};
  return kKinds;
}

}  // namespace fsdp::hf_models
