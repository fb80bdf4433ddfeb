#include "core/spec_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "core/nearest.h"
#include "core/op_arity.h"

namespace fsdp {
namespace {

using Rules = std::vector<OptionRule>;

const OptionRule kDim = {"dim", OptionType::Integer, true, "Which dimension; negative counts from the end."};
const OptionRule kKeepDim = {"keep_dim", OptionType::Flag, false, "Keeps the dimension with size 1."};
const OptionRule kBias = {"bias", OptionType::Flag, false, "Has a bias; true otherwise."};
const OptionRule kRmsNormEpsRule = {"eps", OptionType::Number, false, "Added to the mean square; 1e-6 otherwise."};
const OptionRule kNormEpsRule = {"eps", OptionType::Number, false, "Added to the variance; 1e-5 otherwise."};
const OptionRule kShape = {"shape", OptionType::Sizes, true, "The output's shape."};
const OptionRule kKernel = {"kernel", OptionType::Size, true, "Size of the kernel."};
const OptionRule kStride = {"stride", OptionType::Size, false, "Step of the kernel; 1 otherwise."};
const OptionRule kPadding = {"padding", OptionType::Count, false, "Padding on both sides; 0 otherwise."};
const OptionRule kDilation = {"dilation", OptionType::Size, false, "Distance of the kernel's elements; 1 otherwise."};
const OptionRule kGroups = {"groups", OptionType::Size, false, "Groups of channels; 1 otherwise."};

OptionRule dtype_rule(bool required) {
  return {"dtype",
          OptionType::Text,
          required,
          "Element type.",
          {"float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"}};
}

/// Of ops that have parameters or a kernel.
Rules rules_of_layer(OpKind kind) {
  switch (kind) {
    case OpKind::Linear:
      return {{"out_features", OptionType::Size, true, "Width of the output."},
              kBias,
              {"transposed_weight", OptionType::Flag, false, "Weight [in, out], as GPT-2's Conv1D has it."}};
    case OpKind::Embedding:
      return {
          {"num_embeddings", OptionType::Size, true, "Rows of the table."},
          {"embedding_dim", OptionType::Size, true, "Width of the table."},
          {"padding_idx", OptionType::Count, false, "A row of the table that gets no gradient here; none otherwise."}};
    case OpKind::Conv1d:
    case OpKind::Conv2d:
      return {{"out_channels", OptionType::Size, true, "Channels of the output."},
              kKernel,
              kStride,
              kPadding,
              kDilation,
              kGroups,
              kBias};
    case OpKind::MaxPool2d:
      return {kKernel, kStride, kPadding, kDilation};
    case OpKind::AdaptiveAvgPool2d:
      return {{"length", OptionType::Size, true, "Height and width of the output."}};
    case OpKind::Parameter:
      return {{"parameter", OptionType::Text, true, "Its name below the module."}, kShape};
    case OpKind::RmsNorm:
      return {{"unit_offset", OptionType::Flag, false, "Multiplies by 1 + weight (Gemma)."}, kRmsNormEpsRule};
    case OpKind::LayerNorm:
      return {kBias, kNormEpsRule};
    case OpKind::BatchNorm:
      return {
          kBias, kNormEpsRule, {"momentum", OptionType::Number, false, "Of the running statistics; 0.1 otherwise."}};
    case OpKind::GroupNorm:
      return {{"groups", OptionType::Size, true, "Groups of channels."}, kBias, kNormEpsRule};
    default:
      return {};
  }
}

Rules rules_of(OpKind kind) {
  switch (kind) {
    case OpKind::RotaryTable:
      return {{"head_dim", OptionType::Size, true, "Width of a head."},
              {"rope_theta", OptionType::Number, false, "Base of the frequencies; 10000 otherwise."}};
    case OpKind::Attention:
      return {{"causal", OptionType::Flag, false, "Tokens see only those before them; false otherwise."},
              {"window", OptionType::Count, false, "Sliding window in tokens; 0: none."},
              {"softcap", OptionType::Number, false, "Cap on the scores; 0: none."},
              {"score_scale", OptionType::Number, false, "Factor of the scores; 1 / sqrt(head_dim) otherwise."},
              {"probability", OptionType::Number, false, "Dropout on the weights; 0: none."}};
    case OpKind::Gelu:
      return {{"approximate", OptionType::Flag, false, "By tanh."}};
    case OpKind::Scale:
      return {{"scale", OptionType::Number, true, "The factor."}};
    case OpKind::Softcap:
      return {{"softcap", OptionType::Number, true, "The cap."}};
    case OpKind::Dropout:
      return {{"probability", OptionType::Number, true, "Share of elements that become 0."}};
    case OpKind::Cast:
      return {dtype_rule(true)};
    case OpKind::Constant:
      return {kShape,
              dtype_rule(false),
              {"fill",
               OptionType::Text,
               false,
               "The value everywhere, 0, 1, 2, ... along the last dimension, or the lowest number where a key comes "
               "after its query; value otherwise.",
               {"value", "positions", "causal_mask"}},
              {"value", OptionType::Number, false, "What it holds; 0 otherwise."}};
    case OpKind::Reshape:
    case OpKind::Expand:
      return {kShape};
    case OpKind::Transpose:
      return {kDim, {"other_dim", OptionType::Integer, true, "The dimension that it changes places with."}};
    case OpKind::Slice:
      return {kDim,
              {"start", OptionType::Count, false, "First index; 0 otherwise."},
              {"length", OptionType::Size, true, "Number of indices."}};
    case OpKind::SetSlice:
      return {kDim, {"start", OptionType::Count, false, "First index; 0 otherwise."}};
    case OpKind::Select:
      return {kDim, {"start", OptionType::Count, true, "The index."}};
    case OpKind::Split:
      return {kDim, {"parts", OptionType::Size, true, "Number of equal parts."}};
    case OpKind::Cat:
    case OpKind::Stack:
    case OpKind::Index:
    case OpKind::Softmax:
      return {kDim};
    case OpKind::Pad:
      return {kDim, {"length", OptionType::Size, true, "Size of the dimension afterwards."}};
    case OpKind::Mean:
    case OpKind::Sum:
      return {kDim, kKeepDim};
    case OpKind::Std:
      return {kDim, kKeepDim, {"eps", OptionType::Number, false, "Floor below the root; 1e-12 otherwise."}};
    case OpKind::Router:
      return {{"experts_per_token", OptionType::Size, true, "Experts that a token is sent to."},
              {"norm_topk_prob", OptionType::Flag, false,
               "The weights of a token's experts are divided by their sum; true otherwise."}};
    case OpKind::CrossEntropy:
      return {{"shift", OptionType::Flag, false, "Labels are the next tokens: shifted by one first."}};
    default:
      return rules_of_layer(kind);
  }
}

OpAttributes attributes_of(const BlockOptions& a) {
  OpAttributes attributes;
  attributes.head_dim = a.integer("head_dim");
  attributes.causal = a.flag("causal");
  attributes.window = a.integer("window");
  attributes.softcap = a.number("softcap");
  attributes.score_scale = a.number("score_scale");
  attributes.rotary.theta = a.number("rope_theta", attributes.rotary.theta);
  attributes.eps = a.number("eps");
  attributes.probability = a.number("probability");
  attributes.approximate = a.flag("approximate");
  attributes.shift = a.flag("shift");
  attributes.keep_dim = a.flag("keep_dim");
  attributes.dim = a.integer("dim", -1);
  attributes.other_dim = a.integer("other_dim", -1);
  attributes.start = a.integer("start");
  attributes.length = a.integer("length");
  attributes.kernel = a.integer("kernel", 1);
  attributes.stride = a.integer("stride", 1);
  attributes.padding = a.integer("padding");
  attributes.dilation = a.integer("dilation", 1);
  attributes.groups = a.integer("groups", 1);
  attributes.experts_per_token = a.integer("experts_per_token");
  attributes.norm_topk_prob = a.flag("norm_topk_prob", true);
  attributes.scale = a.number("scale", 1);
  attributes.fill = parse_constant_fill(a.text("fill", "value")).value_or(ConstantFill::Value);
  attributes.value = a.number("value");
  if (a.has("dtype")) attributes.dtype = parse_dtype(a.text("dtype"));
  return attributes;
}

/// Ops that hold parameters: the builder makes their module.
std::vector<BlockValue> write_layer(BlockBuilder& b, const SpecOp& op, const BlockOptions& a, BlockValue x) {
  const ConvOptions conv = {.kernel = a.integer("kernel", 1),
                            .stride = a.integer("stride", 1),
                            .padding = a.integer("padding"),
                            .dilation = a.integer("dilation", 1),
                            .groups = a.integer("groups", 1),
                            .bias = a.flag("bias", true),
                            .class_name = op.class_name};
  const NormOptions norm = {.bias = a.flag("bias", true),
                            .unit_offset = a.flag("unit_offset"),
                            .class_name = op.class_name,
                            .eps = a.number("eps"),
                            .momentum = a.number("momentum", NormOptions().momentum)};
  switch (op.kind) {
    case OpKind::Linear: {
      LinearOptions linear = {.bias = a.flag("bias", true), .transposed_weight = a.flag("transposed_weight")};
      if (!op.class_name.empty()) linear.class_name = op.class_name;
      return {b.linear(op.module, x, a.integer("out_features"), linear)};
    }
    case OpKind::Embedding:
      return {b.embedding(op.module, x, a.integer("num_embeddings"), a.integer("embedding_dim"),
                          {.class_name = op.class_name.empty() ? "Embedding" : std::string_view(op.class_name),
                           .padding_idx = a.integer("padding_idx", -1)})};
    case OpKind::Conv1d:
      return {b.conv1d(op.module, x, a.integer("out_channels"), conv)};
    case OpKind::Conv2d:
      return {b.conv2d(op.module, x, a.integer("out_channels"), conv)};
    case OpKind::RmsNorm:
      return {b.rms_norm(op.module, x, norm)};
    case OpKind::LayerNorm:
      return {b.layer_norm(op.module, x, norm)};
    case OpKind::GroupNorm:
      return {b.group_norm(op.module, x, a.integer("groups"), norm)};
    case OpKind::BatchNorm:
      return {b.batch_norm(op.module, x, norm)};
    default:
      return {};
  }
}

}  // namespace

bool is_plain_op(OpKind kind) {
  return kind != OpKind::Experts;
}

std::span<const OptionRule> attribute_rules(OpKind kind) {
  static const std::array<Rules, kNumOpKinds> rules = [] {
    std::array<Rules, kNumOpKinds> all;
    for (int i = 0; i < kNumOpKinds; ++i) all[static_cast<std::size_t>(i)] = rules_of(static_cast<OpKind>(i));
    return all;
  }();
  return rules[static_cast<std::size_t>(kind)];
}

namespace {

/// One op whose inputs are known.
std::vector<BlockValue> write_plain_op(BlockBuilder& builder, const SpecOp& op, const BlockOptions& attributes,
                                       const std::vector<BlockValue>& inputs) {
  const OpArity arity = arity_of(op.kind);
  const auto given = static_cast<int>(inputs.size());
  if (given >= arity.min_inputs && given <= arity.max_inputs && given == 1) {
    if (auto outputs = write_layer(builder, op, attributes, inputs[0]); !outputs.empty()) return outputs;
  }
  // An op in a module of its own, such as the ReLU of a Sequential; parents of its module are made on the way.
  const std::string class_name = op.class_name.empty() ? std::string("Module") : op.class_name;
  if (!op.module.empty()) builder.declare(op.module, class_name);
  const auto scope = builder.enter(op.module, class_name);
  BlockBuilder::OpRequest request;
  request.kind = op.kind;
  request.inputs = inputs;
  request.attributes = attributes_of(attributes);
  request.requested = attributes.sizes("shape");
  request.num_outputs = static_cast<int>(std::min<std::int64_t>(attributes.integer("parts", 1), 1 << 16));
  request.names = op.outputs;
  if (op.kind == OpKind::Std) request.attributes.eps = attributes.number("eps", 1e-12);
  if (op.kind == OpKind::Parameter) {
    return {builder.parameter(attributes.text("parameter"), attributes.sizes("shape"))};
  }
  if (op.kind == OpKind::Attention && !inputs.empty()) {
    request.attributes.heads = builder.size(inputs[0], 2);
    request.attributes.head_dim = builder.size(inputs[0], 3);
    request.attributes.kv_heads = inputs.size() > 1 ? builder.size(inputs[1], 2) : 1;
  }
  return builder.op(request);
}

}  // namespace

void write_plain_ops(BlockBuilder& builder, const SpecModule& module,
                     const std::vector<std::vector<BlockOptions::Evaluated>>& attributes) {
  std::map<std::string, BlockValue, std::less<>> local;
  std::vector<BlockValue> last;
  std::vector<std::string> last_names;
  for (std::size_t i = 0; i < module.ops.size(); ++i) {
    const SpecOp& op = module.ops[i];
    std::vector<BlockValue> inputs;
    for (const std::string& name : op.inputs) {
      const auto found = local.find(name);
      inputs.push_back(found == local.end() ? builder.input(name) : found->second);
    }
    if (op.inputs.empty() && op.kind != OpKind::Constant && op.kind != OpKind::Parameter) inputs = last;
    last = write_plain_op(builder, op, BlockOptions(attributes[i]), inputs);
    if (!op.class_name.empty() && builder.class_of(op.module) != op.class_name) {
      builder.fail(fmt::format("The module \"{}\" is given two classes: {} and {}.", op.module,
                               builder.class_of(op.module), op.class_name),
                   "All ops of a module name one class, or only its first op does.");
    }
    last_names = op.outputs;
    if (op.outputs.size() > last.size()) {
      builder.fail(
          fmt::format("The op {} produces {} values, not {}.", name_of(op.kind), last.size(), op.outputs.size()));
    }
    for (std::size_t o = 0; o < std::min(op.outputs.size(), last.size()); ++o) {
      local.insert_or_assign(op.outputs[o], last[o]);
    }
  }
  if (module.outputs.empty()) {
    if (last_names.empty()) builder.fail("The last op does not name its output.", "Add \"outputs\" to it.");
    for (const std::string& name : last_names) builder.output(name, local.at(name));
    return;
  }
  for (const SpecRename& rename : module.outputs) {
    const auto found = local.find(rename.inside);
    if (found != local.end()) {
      builder.output(rename.inside, found->second);
      continue;
    }
    std::vector<std::string> names;
    for (const auto& [name, value] : local) names.push_back(name);
    builder.fail(fmt::format("No op produces \"{}\".", rename.inside), suggest_name(rename.inside, names));
  }
}

}  // namespace fsdp
