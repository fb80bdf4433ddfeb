// Dispatches op kinds to the families of rules, and applies rules that span ops: the arguments of a module's forward
// live until it returns, because a variable of torch.nn.Module.__call__ holds their tuple; the tensors of its local
// variables live as long, or until the variables are reassigned.

#include "simulator/ops/op_rules.h"

#include <algorithm>

#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

// Ops without parameters that compute or move elements.
void write_tensor_op(KernelWriter& w) {
  switch (w.op().kind) {
    case OpKind::Detach:
    case OpKind::Reshape:
    case OpKind::Transpose:
    case OpKind::Slice:
    case OpKind::Select:
    case OpKind::Expand:
    case OpKind::Split:
    case OpKind::Contiguous:
    case OpKind::Cat:
    case OpKind::Stack:
    case OpKind::KvCache:
    case OpKind::SetSlice:
    case OpKind::Index:
    case OpKind::Pad:
    case OpKind::Constant:
      return write_shape_op(w);
    default:
      return write_elementwise_op(w);
  }
}

void write_op(KernelWriter& w) {
  if (w.op().attributes.liger) return write_liger_op(w);
  switch (w.op().kind) {
    case OpKind::Linear:
    case OpKind::Linear4bit:
    case OpKind::Embedding:
    case OpKind::Conv1d:
    case OpKind::Conv2d:
    case OpKind::Parameter:
      return write_dense_op(w);
    case OpKind::RmsNorm:
    case OpKind::LayerNorm:
    case OpKind::GroupNorm:
    case OpKind::BatchNorm:
      return write_norm_op(w);
    case OpKind::RotaryTable:
    case OpKind::Rotary:
      return write_rotary_op(w);
    case OpKind::Attention:
      return write_attention_op(w);
    case OpKind::CausalConv1d:
    case OpKind::DecayRate:
    case OpKind::GatedDeltaRule:
    case OpKind::StateSpace:
    case OpKind::GatedRmsNorm:
      return write_linear_attention_op(w);
    case OpKind::Router:
    case OpKind::Experts:
    case OpKind::GroupedExperts:
    case OpKind::DenseExperts:
      return write_expert_op(w);
    case OpKind::CrossEntropy:
    case OpKind::LinearCrossEntropy:
    case OpKind::MseLoss:
      return write_loss_op(w);
    case OpKind::LowRank:
      return write_low_rank_op(w);
    case OpKind::LigerGlu:
      return write_liger_op(w);
    case OpKind::Recorded:
      return;  // The tape of its block has its allocations (simulator/ops/tape_recorded.h).
    default:
      return write_tensor_op(w);
  }
}

/// Ops that follow each other in the forward of one module.
struct ModuleRun {
  int begin = 0;
  int end = 0;
};

bool lies_below(const Block& block, int module, int ancestor) {
  while (module > ancestor) module = block.modules[module].parent;
  return module == ancestor;
}

std::vector<ModuleRun> runs_of(const Block& block, int module) {
  std::vector<ModuleRun> runs;
  for (int o = 0; o < static_cast<int>(block.ops.size()); ++o) {
    if (!lies_below(block, block.ops[o].module, module)) continue;
    if (runs.empty() || runs.back().end < o) runs.push_back({o, o});
    runs.back().end = o + 1;
  }
  return runs;
}

bool is_inside(const Kernel& kernel) {
  return kernel.part == ForwardPart::Inside;
}

void hold_arguments(const Block& block, const ModuleRun& run, KernelProgram& program) {
  std::vector<bool> made(block.values.size(), false);
  const auto last = std::find_if(program.kernels.rbegin(), program.kernels.rend(),
                                 [&](const Kernel& kernel) { return is_inside(kernel) && kernel.op < run.end; });
  if (last == program.kernels.rend() || last->op < run.begin) return;
  for (int o = run.begin; o < run.end; ++o) {
    for (const int value : block.ops[o].inputs) {
      const int slot = program.value_slot[value];
      const auto& held = last->holds;
      const bool is_new = !made[value] && std::find(held.begin(), held.end(), slot) == held.end();
      if (is_new) last->holds.push_back(slot);
    }
    for (const int value : block.ops[o].outputs) made[value] = true;
  }
}

// An op of several calls is a function; its caller holds its arguments until it returns.
void hold_operands(const Block& block, KernelProgram& program) {
  for (std::size_t k = 0; k < program.kernels.size(); ++k) {
    Kernel& last = program.kernels[k];
    const bool is_last =
        k + 1 == program.kernels.size() || program.kernels[k + 1].op != last.op || !is_inside(program.kernels[k + 1]);
    const bool is_first = k == 0 || program.kernels[k - 1].op != last.op;
    if (!is_last || is_first || !is_inside(last)) continue;
    for (const int value : block.ops[last.op].inputs) last.holds.push_back(program.value_slot[value]);
  }
}

// The last kernel of the ops up to the given one.
Kernel* last_kernel(KernelProgram& program, int op) {
  const auto last = std::find_if(program.kernels.rbegin(), program.kernels.rend(),
                                 [&](const Kernel& kernel) { return is_inside(kernel) && kernel.op <= op; });
  return last == program.kernels.rend() ? nullptr : &*last;
}

void hold_locals(const Block& block, KernelProgram& program) {
  for (const LocalVariable& local : block.locals) {
    Kernel* last = last_kernel(program, local.until);
    if (last != nullptr) last->holds.push_back(program.value_slot[local.value]);
  }
}

// accelerate's convert_outputs_to_fp32 copies the logits while the model's own outputs live; the root casts the copies.
void return_logits(KernelWriter& w) {
  std::vector<int> logits;
  for (const Op& op : w.block().ops) {
    if (op.kind == OpKind::CrossEntropy) logits.push_back(w.slot_of(op.inputs.front()));
  }
  const auto cast_all = [&](Dtype dtype, ForwardPart part) {
    for (int& slot : logits) {
      if (w.slot(slot).dtype == dtype) continue;
      slot = w.cast(slot, dtype);
      w.last_kernel().part = part;
    }
  };
  cast_all(Dtype::Float32, ForwardPart::AfterAutocast);
  if (w.context().returned) cast_all(*w.context().returned, ForwardPart::AfterReturn);
  w.return_as(std::move(logits));
}

}  // namespace

KernelProgram expand_block(const Block& block, const OpRuleContext& context, const std::vector<Shape>& input_strides,
                           const std::vector<std::optional<Dtype>>& input_dtypes,
                           const std::vector<Dtype>& parameter_dtypes) {
  KernelWriter writer(block, context, input_strides, input_dtypes, parameter_dtypes);
  if (context.autocast && context.is_cpu()) {
    writer.refuse({"/mixed_precision/autocast", "torch.autocast(\"cuda\") casts nothing on a CPU.",
                   "Plan for a GPU, or with --precision bf16 or fp32."});
  }
  for (std::size_t o = 0; o < block.ops.size(); ++o) {
    writer.start_op(static_cast<int>(o));
    write_op(writer);
    writer.end_op();
  }
  if (context.float_outputs) return_logits(writer);
  KernelProgram program = writer.take();
  hold_operands(block, program);
  hold_locals(block, program);
  // The block's own inputs are known to live as long as the call.
  for (int m = 1; m < static_cast<int>(block.modules.size()); ++m) {
    if (!block.modules[m].called) continue;
    for (const ModuleRun& run : runs_of(block, m)) hold_arguments(block, run, program);
  }
  return program;
}

}  // namespace fsdp::simulator
