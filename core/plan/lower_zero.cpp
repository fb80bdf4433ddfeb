// The order of events of one training step under DeepSpeed's ZeRO-1 and 2.
//
// The model runs as it is. In the backward, gradients go into a buffer as they become ready, and the buffer is
// all-reduced when the next one has no place in it. Stage 2 does that in each micro-batch and keeps what its part of
// the parameters needs; stage 1 does it in the last one, and without overlap_comm behind the backward.
//
// The step looks for overflows (bf16), takes the norm of the gradients whether they are clipped or not, updates the
// rank's part, and gathers all of them.
//
// Sources: deepspeed/runtime/engine.py (forward, backward, step), deepspeed/runtime/zero/stage_1_and_2.py
// (process_gradients, reduce_gradients, independent_gradient_partition_epilogue, step), DeepSpeed 0.19.8.
//
// Not modeled: managed_gradient_accumulation off, coalesce_grad_reduction, compute_grad_norm off.

#include <cstddef>
#include <utility>

#include "core/plan/schedule.h"

namespace fsdp {

namespace {

class ZeroLowering {
 public:
  ZeroLowering(const ModelIndex& index, const Plan& plan, const Layout& layout)
      : index_(index), plan_(plan), layout_(layout) {}

  Schedule run() {
    for (std::int64_t m = 0; m < plan_.accumulation; ++m) {
      micro_batch_ = static_cast<int>(m);
      phase_ = StepPhase::Forward;
      emit({.kind = InstructionKind::LoadInputs});
      forward();
      phase_ = StepPhase::Backward;
      backward(m + 1 == plan_.accumulation || plan_.runtime.framework == Framework::Zero2);
    }
    phase_ = StepPhase::Optimizer;
    if (plan_.mixed_precision.param_dtype) emit({.kind = InstructionKind::CheckOverflow, .calls_alone = true});
    emit({.kind = InstructionKind::ClipGradNorm, .reduces_each_norm = false, .calls_alone = true});
    emit({.kind = InstructionKind::OptimizerStep});
    if (layout_.zero.ranks > 1) emit({.kind = InstructionKind::GatherParameters});
    emit({.kind = InstructionKind::ZeroGrad});
    return std::move(schedule_);
  }

 private:
  void emit(Instruction instruction) {
    instruction.phase = phase_;
    instruction.micro_batch = micro_batch_;
    schedule_.instructions.push_back(instruction);
  }

  void forward() {
    const int left = layout_.units.front().windows.empty() ? 0 : layout_.units.front().windows.back().end;
    bool has_left = false;
    for (std::size_t c = 0; c + 1 < index_.call_begin.size(); ++c) {
      if (!has_left && index_.call_begin[c] >= left) {
        has_left = true;
        emit({.kind = InstructionKind::LeaveRoot});
      }
      emit({.kind = InstructionKind::Forward,
            .call = static_cast<int>(c),
            .op_begin = 0,
            .op_end = index_.call_begin[c + 1] - index_.call_begin[c]});
    }
    if (!has_left) emit({.kind = InstructionKind::LeaveRoot});
  }

  void backward(bool reduces) {
    if (reduces) emit({.kind = InstructionKind::PrepareReduce});
    std::size_t next = 0;
    int position = index_.num_positions();
    while (position > 0) {
      if (!index_.in_backward[position - 1]) {
        --position;
        continue;
      }
      const int call = index_.call_at(position - 1);
      const int begin = index_.call_begin[call];
      int stop = position - 1;
      while (stop > begin && index_.in_backward[stop - 1] && !(reduces && is_ready(next, stop))) --stop;
      emit({.kind = InstructionKind::Backward, .call = call, .op_begin = stop - begin, .op_end = position - begin});
      position = stop;
      // What is ready at the very end is reduced there.
      for (; reduces && position > 0 && is_ready(next, position); ++next) reduce(next);
    }
    for (; reduces && next < layout_.buckets.size(); ++next) reduce(next);
    emit({.kind = InstructionKind::FinishReduce});
  }

  void reduce(std::size_t bucket) {
    emit({.kind = InstructionKind::ReduceBucket, .calls_alone = true, .bucket = static_cast<int>(bucket)});
  }

  bool is_ready(std::size_t bucket, int position) const {
    return bucket < layout_.buckets.size() && layout_.buckets[bucket].ready >= position;
  }

  const ModelIndex& index_;
  const Plan& plan_;
  const Layout& layout_;
  Schedule schedule_;
  StepPhase phase_ = StepPhase::Forward;
  int micro_batch_ = 0;
};

}  // namespace

Schedule lower_zero(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  return ZeroLowering(index, plan, layout).run();
}

}  // namespace fsdp
