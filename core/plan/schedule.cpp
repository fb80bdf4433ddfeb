#include "core/plan/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "core/model/op_table.h"
#include "core/plan/plan_names.h"

namespace fsdp {

namespace {

constexpr std::array<std::string_view, kNumInstructionKinds> kNames = {
    "LoadInputs",
    "Unshard",
    "WaitForUnshard",
    "LeaveRoot",
    "Forward",
    "Reshard",
    "Backward",
    "AccumulateGrads",
    "ReduceGrads",
    "LimitGathers",
    "FlattenGrads",
    "FinishReduce",
    "SyncBuffers",
    "PrepareReduce",
    "ReduceBucket",
    "ReduceUsedMap",
    "Free",
    "CheckOverflow",
    "ClipGradNorm",
    "OptimizerStep",
    "GatherParameters",
    "FetchParameters",
    "WaitForParameters",
    "DropFetched",
    "ReleaseParameters",
    "ZeroGrad",
    "RunOther",
};

constexpr std::array<std::string_view, kNumBufferKinds> kBufferNames = {"all-gather output", "reduce-scatter input",
                                                                        "all-reduce output", "first buckets"};

}  // namespace

bool calls_ranks(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::Unshard:
    case InstructionKind::ReduceGrads:
    case InstructionKind::SyncBuffers:
    case InstructionKind::ReduceBucket:
    case InstructionKind::ReduceUsedMap:
    case InstructionKind::CheckOverflow:
    case InstructionKind::ClipGradNorm:
    case InstructionKind::GatherParameters:
    case InstructionKind::FetchParameters:
      return true;
    default:
      return false;
  }
}

std::string_view name_of(InstructionKind kind) {
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(BufferKind kind) {
  return kBufferNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(StepPhase phase) {
  return name_of(kStepPhaseTable, phase);
}

std::vector<Instruction> actions_of(const Schedule& schedule) {
  std::vector<Instruction> actions;
  for (const Instruction& instruction : schedule.instructions) {
    if (instruction.kind != InstructionKind::Free) actions.push_back(instruction);
  }
  return actions;
}

std::string to_text(const Schedule& schedule, const ModelIndex& index, const Layout& layout) {
  std::string text;
  for (const Instruction& step : schedule.instructions) {
    auto out = std::back_inserter(text);
    fmt::format_to(out, "{}", name_of(step.kind));
    if (step.unit >= 0) fmt::format_to(out, " \"{}\"", layout.units[step.unit].name);
    if (step.bucket >= 0) fmt::format_to(out, " {}", step.bucket);
    if (step.group >= 0) {
      for (const int p : schedule.groups[step.group].parameters) {
        fmt::format_to(out, " {}", index.model->parameters[p].name);
      }
    }
    if (step.call >= 0) {
      const Call& call = index.model->calls[step.call];
      const std::string_view name =
          call.module < 0 ? "outside" : std::string_view(index.model->modules[call.module].name);
      fmt::format_to(out, " {}:{} [{}, {})", name, index.model->blocks[call.block].kind, step.op_begin, step.op_end);
    }
    if (step.kind == InstructionKind::Free) fmt::format_to(out, " {}", name_of(step.buffer));
    if (step.slot > 0) text += " (second)";
    if (gathers_smaller_shard(layout, step)) text += " from the smaller group";
    if (step.keeps_last_gradient) text += ", keeps its last gradient";
    if (step.keeps_all_reduce_output) text += ", keeps its all-reduce output";
    text += '\n';
  }
  return text;
}

bool gathers_smaller_shard(const Layout& layout, const Instruction& step) {
  return step.kind == InstructionKind::Unshard && step.ranks.is_part() && !layout.units[step.unit].of_experts;
}

ReducedElements elements_of_reduction(const Layout& layout, const Instruction& step) {
  if (step.reduces_loss()) return {layout.loss.shard_elements, layout.loss.full_elements, layout.loss.true_elements};
  const ShardedUnit& unit = layout.units[static_cast<std::size_t>(step.unit)];
  return {unit.reduced_shard_elements, unit.reduced_full_elements, unit.reduced_true_elements};
}

std::vector<CheckpointMode> checkpoint_modes(const ModelIndex& index, const Checkpointing& checkpointing) {
  const Model& model = *index.model;
  std::vector<CheckpointMode> of_module(model.modules.size(), CheckpointMode::None);
  for (const Checkpointing::Entry& entry : checkpointing.entries) {
    if (const int module = index.find(entry.module); module >= 0) of_module[module] = entry.mode;
  }
  std::vector<CheckpointMode> modes;
  modes.reserve(model.calls.size());
  for (const Call& call : model.calls) {
    modes.push_back(call.repeated && call.module >= 0 ? of_module[call.module] : CheckpointMode::None);
  }
  return modes;
}

bool saves_tensors(const Op& op) {
  // A mean, where it is one of all pixels.
  if (op.kind == OpKind::AdaptiveAvgPool2d) return op.attributes.length != 1;
  if (op.kind == OpKind::Pad) return op.attributes.reflect;
  if (op.kind == OpKind::Recorded) return op.attributes.saves;
  return op_row(op.kind).saves_tensors;
}

int first_use_of_saved(const ModelIndex& index, int call, int position) {
  const int begin = index.call_begin[call];
  const Block& block = index.model->blocks[index.model->calls[call].block];
  while (position > begin && !(index.in_backward[position] && saves_tensors(block.ops[position - begin]))) --position;
  return position;
}

// torchtitan's policy: of the matrix products every second one, counted per block, is run again.
std::vector<bool> kept_ops(const Block& block, const Checkpointing& checkpointing) {
  const std::vector<OpKind>& kinds = checkpointing.selective_keep;
  std::vector<bool> kept;
  int num_linears = 0;
  for (const Op& op : block.ops) {
    if (op.kind == OpKind::Linear) ++num_linears;
    const bool is_skipped = op.kind == OpKind::Linear && checkpointing.every_second_linear && num_linears % 2 == 0;
    kept.push_back(!is_skipped && std::find(kinds.begin(), kinds.end(), op.kind) != kinds.end());
  }
  return kept;
}

}  // namespace fsdp
