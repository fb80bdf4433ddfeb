#pragma once

// How a lowering writes its schedule down.

#include "core/plan/schedule.h"

namespace fsdp {

/// A schedule in the making, and where in the step its next instruction belongs.
struct ScheduleWriter {
  Schedule schedule;
  StepPhase phase = StepPhase::Forward;
  int micro_batch = 0;

  void emit(Instruction instruction) {
    instruction.phase = phase;
    instruction.micro_batch = micro_batch;
    schedule.instructions.push_back(instruction);
  }
  void emit(InstructionKind kind, int unit) { emit({.kind = kind, .unit = unit}); }

  /// The forward of a micro-batch comes next.
  void begin_micro_batch(std::int64_t number) {
    micro_batch = static_cast<int>(number);
    phase = StepPhase::Forward;
    emit({.kind = InstructionKind::LoadInputs});
  }

  /// A Forward or Backward of the ops at the positions [begin, end), which are of one call.
  void emit_ops(InstructionKind kind, const ModelIndex& index, int call, int begin, int end) {
    const int first = index.call_begin[call];
    emit({.kind = kind, .call = call, .op_begin = begin - first, .op_end = end - first});
  }

  /// The forward of a model whose only unit is the root: a loss that the script computes comes after LeaveRoot.
  void emit_whole_forward(const ModelIndex& index, const Layout& layout);

  /// The backward of such a model. The ranks of a group reduce the buckets with the numbers [begin, end), each when it
  /// is ready, in order.
  struct Reductions {
    int begin = 0;
    int end = 0;
    RankGroup ranks = {};
  };
  void emit_backward_in_buckets(const ModelIndex& index, const Layout& layout, const Reductions& reductions);
};

}  // namespace fsdp
