// The MLPs of decoder layers.
//
//   gated   down(act(gate(x)) * up(x)), or with one projection for gate and up: Llama, Phi-3, GLM-4
//   plain   down(act(up(x))): Phi-2, StarCoder2, Nemotron, Arcee, which differ in names and order of registration
//
// Sources: models/{llama,phi3,glm4,phi,starcoder2,nemotron,arcee}/modeling_*.py and activations.py of
// transformers 5.24.

#include <array>
#include <string>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {
namespace {

/// The modules of a plain MLP.
struct PlainMlp {
  std::string_view option;  ///< Value of the option "mlp".
  std::string_view inward, outward, activation;
  bool activation_first = false;  ///< Registered before both projections.
};
constexpr std::array<PlainMlp, 3> kPlain = {{{"up_down", "up_proj", "down_proj", "act_fn"},
                                             {"fc", "fc1", "fc2", "activation_fn", true},
                                             {"c_fc", "c_fc", "c_proj", "act"}}};

/// An activation function, and its class.
struct Activation {
  std::string_view name;  ///< Value of the option "activation".
  std::string_view class_name;
  OpKind kind = OpKind::Gelu;
  OpAttributes attributes = {};
};

const Activation& activation_of(const BlockOptions& options) {
  static const std::array<Activation, 5> kActivations = {
      {{"silu", "SiLU", OpKind::Silu},
       {"gelu_tanh", "GELUTanh", OpKind::Gelu, {.approximate = true}},
       {"gelu", "GELUActivation"},
       {"gelu_new", "NewGELUActivation", OpKind::Gelu, {.approximate = true, .written_out = true}},
       {"relu2", "ReLUSquaredActivation", OpKind::Relu, {.written_out = true}}}};
  const std::string name = options.text("activation", "silu");
  for (const Activation& each : kActivations) {
    if (each.name == name) return each;
  }
  return kActivations.front();
}

BlockValue activated(BlockBuilder& b, const BlockOptions& options, std::string_view module, BlockValue x) {
  const Activation& function = activation_of(options);
  if (function.kind == OpKind::Silu) return b.activation(module, OpKind::Silu, x, function.class_name);
  const auto scope = b.enter(module, function.class_name);
  return b.op({.kind = function.kind, .inputs = {x}, .attributes = function.attributes}).front();
}

/// One projection makes gate and up: Phi-3, GLM-4.
BlockValue fused_mlp(BlockBuilder& b, const BlockOptions& options, BlockValue x, std::int64_t intermediate) {
  for (const char* name : {"gate_up_proj", "down_proj"}) b.declare(name, "Linear");
  b.declare("activation_fn", "SiLU");
  const LinearOptions linear = {.bias = options.flag("mlp_bias")};
  const auto parts = b.split(b.linear("gate_up_proj", x, 2 * intermediate, linear), 2, -1);
  b.local("gate", parts[0]);
  if (b.has_liger_glu(family_of(options))) {
    b.local("up_states", parts[1]);
    return b.linear("down_proj", b.liger_glu(parts[0], parts[1], false), b.size(x, -1), linear);
  }
  const BlockValue up =
      b.local("up_states", b.mul(parts[1], b.activation("activation_fn", OpKind::Silu, parts[0], "SiLU")));
  return b.linear("down_proj", up, b.size(x, -1), linear);
}

BlockValue plain_mlp(BlockBuilder& b, const BlockOptions& options, const PlainMlp& names, BlockValue x,
                     std::int64_t intermediate) {
  const std::string_view activation_class = activation_of(options).class_name;
  if (names.activation_first) b.declare(names.activation, activation_class);
  for (const std::string_view name : {names.inward, names.outward}) b.declare(name, "Linear");
  if (!names.activation_first) b.declare(names.activation, activation_class);
  const LinearOptions linear = {.bias = options.flag("mlp_bias")};
  const BlockValue wide = b.linear(names.inward, x, intermediate, linear);
  const BlockValue inner = activated(b, options, names.activation, wide);
  return b.linear(names.outward, inner, b.size(x, -1), linear);
}

}  // namespace

std::vector<OptionRule> decoder_mlp_rules() {
  return {
      {"intermediate_size", OptionType::Size, true, "Width inside the MLP."},
      {"mlp_bias", OptionType::Flag, false, "The projections of the MLP have biases."},
      {"activation",
       OptionType::Text,
       false,
       "The activation function. Defaults to silu.",
       {"silu", "gelu_tanh", "gelu", "gelu_new", "relu2"}},
      {"fused_gate_up", OptionType::Flag, false, "One projection makes gate and up (Phi-3)."},
      {"mlp",
       OptionType::Text,
       false,
       "The MLP: with a gate, or without one and with the names of Nemotron (up_down), Phi-2 (fc) or StarCoder2 "
       "(c_fc). "
       "Defaults to gated.",
       {"gated", "up_down", "fc", "c_fc"}},
      {"residual_dropout", OptionType::Number, false, "Dropout on what both parts add (Seed-OSS). Defaults to 0."},
  };
}

BlockValue gated_mlp(BlockBuilder& b, const BlockOptions& options, std::string_view module, BlockValue x,
                     std::int64_t intermediate, std::string_view activation) {
  const LinearOptions linear = {.bias = options.flag("mlp_bias")};
  const auto scope = b.enter(module, family_of(options) + "MLP");
  if (options.flag("fused_gate_up")) return fused_mlp(b, options, x, intermediate);
  for (const char* name : {"gate_proj", "up_proj", "down_proj"}) b.declare(name, "Linear");
  const BlockValue wide = b.linear("gate_proj", x, intermediate, linear);
  if (b.has_liger_glu(family_of(options))) {
    const Activation& function = activation_of(options);
    b.declare(activation, function.class_name);
    const BlockValue up = b.linear("up_proj", x, intermediate, linear);
    const BlockValue output =
        b.linear("down_proj", b.liger_glu(wide, up, function.kind == OpKind::Gelu), b.size(x, -1), linear);
    return b.dropout("", output, options.number("residual_dropout"));
  }
  const BlockValue gate = activated(b, options, activation, wide);
  const BlockValue up = b.linear("up_proj", x, intermediate, linear);
  const BlockValue output = b.linear("down_proj", b.mul(gate, up), b.size(x, -1), linear);
  return b.dropout("", output, options.number("residual_dropout"));
}

BlockValue decoder_mlp(BlockBuilder& b, const BlockOptions& options, BlockValue x) {
  const std::int64_t intermediate = options.integer("intermediate_size", 1);
  const std::string which = options.text("mlp", "gated");
  for (const PlainMlp& names : kPlain) {
    if (names.option != which) continue;
    const auto scope = b.enter("mlp", family_of(options) + "MLP");
    return b.dropout("", plain_mlp(b, options, names, x, intermediate), options.number("residual_dropout"));
  }
  return gated_mlp(b, options, "mlp", x, intermediate);
}

}  // namespace fsdp
