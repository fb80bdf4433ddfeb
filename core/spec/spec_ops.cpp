#include "core/spec/spec_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/base/nearest.h"
#include "core/model/op_table.h"

namespace fsdp {
namespace {

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

/// Ops with parameters: the builder makes their module.
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
                            .wide_weight = a.flag("wide_weight"),
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

/// One op with known inputs.
std::vector<BlockValue> write_plain_op(BlockBuilder& builder, const SpecOp& op, const BlockOptions& attributes,
                                       const std::vector<BlockValue>& inputs) {
  const OpArity& arity = op_row(op.kind).arity;
  const auto given = static_cast<int>(inputs.size());
  if (given >= arity.min_inputs && given <= arity.max_inputs && given == 1) {
    if (auto outputs = write_layer(builder, op, attributes, inputs[0]); !outputs.empty()) return outputs;
  }
  // An op in a module of its own, such as the ReLU of a Sequential. Also makes the parents of its module.
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

struct Assignment {
  std::string variable;  ///< After the name of the module whose forward has it, as in the spec.
  BlockValue value;
  int op = 0;  ///< The op of the block that makes the value.
};

void hold_variables(BlockBuilder& builder, const std::vector<Assignment>& assignments) {
  for (std::size_t a = 0; a < assignments.size(); ++a) {
    const auto& [variable, value, op] = assignments[a];
    const auto next =
        std::find_if(assignments.begin() + static_cast<std::ptrdiff_t>(a) + 1, assignments.end(),
                     [name = &assignments[a].variable](const Assignment& later) { return later.variable == *name; });
    const std::size_t dot = variable.rfind('.');
    const std::string module = dot == std::string::npos ? std::string() : variable.substr(0, dot);
    if (!builder.hold(module, value, op, next == assignments.end() ? -1 : next->op)) {
      builder.fail(
          fmt::format("The variable \"{}\" names a value that is not made in the forward of \"{}\".", variable, module),
          "Write the module whose forward calls the op before the variable; write no module for the entry's own.");
    }
  }
}

}  // namespace

void write_plain_ops(BlockBuilder& builder, const SpecModule& module,
                     const std::vector<std::vector<BlockOptions::Evaluated>>& attributes) {
  std::map<std::string, BlockValue, std::less<>> local;
  std::vector<BlockValue> last;
  std::vector<std::string> last_names;
  std::vector<Assignment> assignments;
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
    if (op.variables.size() > last.size()) {
      builder.fail(fmt::format("The op {} produces {} values, and {} variables are named.", name_of(op.kind),
                               last.size(), op.variables.size()));
    }
    for (std::size_t v = 0; v < std::min(op.variables.size(), last.size()); ++v) {
      if (!op.variables[v].empty()) assignments.push_back({op.variables[v], last[v], builder.num_ops() - 1});
    }
  }
  hold_variables(builder, assignments);
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
