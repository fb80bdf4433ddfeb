// Names of work.
//
// An op costs what its kind, dtype, parameters and gradients say, and grows with the elements that it reads and writes:
// a Linear of weight [256, 64] on 512 rows and on 1,024 is one work at two sizes. So a name has all that a kernel
// chooses by, and not what a workload varies (batch, sequence). Attention grows with batch x sequence x keys; the
// elements and the keys (`depth`) together say which.
//
// Copies of a unit grow with its bytes, and every parameter costs some microseconds beside: a parameter counts as
// `kBytesOfACall` bytes more, which is what a copy moves in the time of one call from the host.
//
// Not modeled: shapes of equal elements whose kernels differ (a softmax over few long rows or many short ones).

#include "core/plan/workload.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/model/op.h"
#include "core/plan/plan_names.h"

namespace fsdp {

namespace {

constexpr double kBytesOfACall = 32 << 10;

std::string shapes_of(const Block& block, const Op& op) {
  std::string text;
  for (const int parameter : op.parameters) {
    text += " [";
    for (const std::int64_t size : block.parameters[parameter]) text += fmt::format("{},", size);
    text.back() = ']';
  }
  return text;
}

// Only the attributes by which kernels are chosen.
std::string choices_of(const Op& op, const Implementations& use) {
  const OpAttributes& a = op.attributes;
  std::string text;
  const auto add = [&](std::string_view name, auto value, auto usual) {
    if (value != usual) text += fmt::format(" {} {}", name, value);
  };
  add("heads", a.heads, 0);
  add("kv_heads", a.kv_heads, a.heads);
  add("head_dim", a.head_dim, 0);
  add("causal", a.causal, false);
  add("window", a.window, 0);
  add("softcap", a.softcap != 0, false);
  add("documents", a.documents.size(), std::size_t{0});
  if (a.packed != PackedAttention::None) text += fmt::format(" {}", name_of(a.packed));
  add("dropout", a.probability > 0, false);
  add("approximate", a.approximate, false);
  add("written_out", a.written_out, false);
  add("transposed", a.transposed_weight, false);
  add("groups", a.groups, 1);
  add("kernel", a.kernel, 1);
  add("stride", a.stride, 1);
  add("experts", a.num_experts, 0);
  if (a.dtype) text += fmt::format(" to {}", name_of(*a.dtype));
  if (op.kind == OpKind::Attention) text += fmt::format(" {}", name_of(kAttentionBackendTable, use.attention));
  if (op.kind == OpKind::Attention && use.repeat_kv) text += " repeated";
  if (op.kind == OpKind::RmsNorm) text += fmt::format(" {}", name_of(kRmsNormTable, use.rms_norm));
  if (op.kind == OpKind::Rotary) text += fmt::format(" {}", name_of(kRotaryTable, use.rotary));
  if (op.kind == OpKind::LinearCrossEntropy) text += fmt::format(" {}", to_text(use.loss));
  if (op.kind == OpKind::CrossEntropy && use.loss != Loss{}) text += fmt::format(" {}", to_text(use.loss));
  if (op.kind == OpKind::CrossEntropy && use.upcast_logits) text += " upcast";
  return text;
}

// For which of its inputs and parameters the backward makes a gradient.
std::string gradients_of(const ModelIndex& index, int call, const Op& op) {
  const Model& model = *index.model;
  std::string text = " grad ";
  for (const int input : op.inputs) text += index.flow.requires_grad[call][input] ? '1' : '0';
  for (const int parameter : op.parameters) {
    text += model.parameters[model.calls[call].parameters[parameter]].receives_gradient ? '1' : '0';
  }
  return text;
}

double elements_of(const Block& block, const std::vector<int>& values) {
  double sum = 0;
  for (const int value : values) sum += static_cast<double>(num_elements(block.values[value].shape));
  return sum;
}

double in_bytes(Dtype dtype, std::int64_t elements) {
  return static_cast<double>((size_of(dtype) * elements).count());
}

std::size_t with_gradient(const ShardedUnit& unit) {
  return static_cast<std::size_t>(std::count_if(unit.parameters.begin(), unit.parameters.end(),
                                                [](const ShardedParameter& p) { return p.receives_gradient; }));
}

double with_calls(double bytes, std::size_t calls) {
  return bytes + kBytesOfACall * static_cast<double>(calls);
}

NamedWork work_of_unit(const Instruction& step, const Layout& layout) {
  const ShardedUnit& unit = layout.units[step.unit];
  const double gathered =
      with_calls(static_cast<double>((unit.gather_shard_bytes * unit.shards).count()), unit.parameters.size());
  const double reduced =
      with_calls(in_bytes(unit.reduce_dtype, elements_of_reduction(layout, step).full), with_gradient(unit));
  const std::string gather = fmt::format(" {} to {}", name_of(unit.original_dtype), name_of(unit.param_dtype));
  const std::string reduce = fmt::format(" {} to {}", name_of(unit.param_dtype), name_of(unit.reduce_dtype));
  const std::string kind(name_of(step.kind));
  switch (step.kind) {
    case InstructionKind::Unshard:
      return {.work = kind + gather + (gathers_smaller_shard(layout, step) ? " of a smaller group" : ""),
              .size = gathered};
    case InstructionKind::WaitForUnshard:
    case InstructionKind::Reshard:
      return {.work = kind + gather, .size = gathered};
    case InstructionKind::ReduceGrads:
    case InstructionKind::AccumulateGrads:
      return {.work = kind + reduce + (step.micro_batch > 0 ? " and add" : ""), .size = reduced};
    default:
      return {};
  }
}

// The optimizer's work on this rank.
NamedWork work_of_all(std::string work, const Layout& layout) {
  double bytes = 0;
  std::size_t calls = 0;
  for (const ShardedUnit& unit : layout.units) {
    for (const ShardedParameter& p : unit.parameters) {
      if (p.receives_gradient) bytes += in_bytes(unit.original_dtype, p.local_elements);
    }
    calls += with_gradient(unit);
  }
  return {.work = std::move(work), .size = with_calls(bytes, calls)};
}

double bytes_of_inputs(const Model& model) {
  double bytes = 0;
  for (const int input : model.inputs) {
    const Value& value = model.values[input];
    bytes += in_bytes(value.dtype.value_or(Dtype::Float32), num_elements(value.shape));
  }
  return std::max(bytes, 1.);
}

}  // namespace

NamedWork work_of_op(const ModelIndex& index, int call, int op_index, Dtype activation, const Implementations& use) {
  const Block& block = index.model->blocks[index.model->calls[call].block];
  const Op& op = block.ops[op_index];
  NamedWork named;
  named.work = fmt::format("{} {}{}{}{}", name_of(op.kind), name_of(activation), shapes_of(block, op),
                           choices_of(op, use), gradients_of(index, call, op));
  named.size = std::max(1., elements_of(block, op.inputs) + elements_of(block, op.outputs));
  if (op.kind == OpKind::Attention && op.inputs.size() > 1) {
    const Shape& keys = block.values[op.inputs[1]].shape;
    if (keys.size() > 1) named.depth = static_cast<double>(keys[1]);
  }
  return named;
}

NamedWork work_of_action(const Instruction& step, const Model& model, const Layout& layout, const Plan& plan) {
  const std::string kind(name_of(step.kind));
  switch (step.kind) {
    case InstructionKind::Unshard:
    case InstructionKind::WaitForUnshard:
    case InstructionKind::Reshard:
    case InstructionKind::ReduceGrads:
    case InstructionKind::AccumulateGrads:
      return work_of_unit(step, layout);
    case InstructionKind::ClipGradNorm:
      return work_of_clipping(layout);
    case InstructionKind::OptimizerStep:
      return work_of_optimizer(layout, plan);
    case InstructionKind::ZeroGrad:
    case InstructionKind::FinishReduce:
      return work_of_all(kind, layout);
    case InstructionKind::LoadInputs:
      return {.work = kind, .size = bytes_of_inputs(model)};
    case InstructionKind::LeaveRoot:
      return {.work = kind, .size = static_cast<double>(layout.units.size())};
    default:
      return {};
  }
}

NamedWork work_of_optimizer(const Layout& layout, const Plan& plan) {
  return work_of_all(fmt::format("{} {} {}", name_of(InstructionKind::OptimizerStep),
                                 name_of(kOptimizerKindTable, plan.optimizer.kind),
                                 name_of(kOptimizerImplementationTable, plan.optimizer.implementation)),
                     layout);
}

NamedWork work_of_clipping(const Layout& layout) {
  return work_of_all(std::string(name_of(InstructionKind::ClipGradNorm)), layout);
}

NamedWork work_of_stretch(const Instruction& step) {
  return {.work = step.kind == InstructionKind::Backward ? "Backward, beyond its ops" : "Forward, beyond its ops",
          .size = 1};
}

}  // namespace fsdp
