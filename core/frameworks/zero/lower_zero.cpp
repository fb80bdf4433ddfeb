// The order of events of one training step under DeepSpeed's ZeRO-1 and 2.
//
// The model runs as it is. In the backward, gradients go into a buffer as they become ready; when the next one does not
// fit, DeepSpeed all-reduces the buffer. Stage 2 does so in each micro-batch and keeps the gradients of its part of the
// parameters. Stage 1 does so in the last micro-batch, and without overlap_comm after the backward.
//
// The step looks for overflows (in 16 bits), takes the norm of the gradients even without clipping, updates the rank's
// part, and gathers all parts.
//
// Sources: deepspeed/runtime/engine.py (forward, backward, step), deepspeed/runtime/zero/stage_1_and_2.py
// (process_gradients, reduce_gradients, independent_gradient_partition_epilogue, step), DeepSpeed 0.19.8.
//
// Not modeled: managed_gradient_accumulation off, coalesce_grad_reduction, compute_grad_norm off.

#include "core/frameworks/zero/lower_zero.h"

#include <utility>

#include "core/plan/framework_traits.h"
#include "core/plan/schedule_writer.h"

namespace fsdp {

namespace {

class ZeroLowering {
 public:
  ZeroLowering(const ModelIndex& index, const Plan& plan, const Layout& layout)
      : index_(index), plan_(plan), layout_(layout) {}

  Schedule run() {
    for (std::int64_t m = 0; m < plan_.accumulation; ++m) {
      out_.begin_micro_batch(m);
      out_.emit_whole_forward(index_, layout_);
      out_.phase = StepPhase::Backward;
      const bool reduces = m + 1 == plan_.accumulation || layout_.zero.cuts_gradients;
      if (reduces) out_.emit({.kind = InstructionKind::PrepareReduce});
      out_.emit_backward_in_buckets(index_, layout_, {0, reduces ? layout_.num_buckets() : 0, kRanks});
      out_.emit({.kind = InstructionKind::FinishReduce});
    }
    out_.phase = StepPhase::Optimizer;
    if (zero_dtype(plan_) != Dtype::Float32) out_.emit({.kind = InstructionKind::CheckOverflow, .ranks = kRanks});
    out_.emit({.kind = InstructionKind::ClipGradNorm, .reduces_each_norm = false, .ranks = kRanks});
    out_.emit({.kind = InstructionKind::OptimizerStep});
    if (layout_.zero.ranks > 1) out_.emit({.kind = InstructionKind::GatherParameters, .ranks = kRanks});
    out_.emit({.kind = InstructionKind::ZeroGrad});
    return std::move(out_.schedule);
  }

 private:
  static constexpr RankGroup kRanks = ranks_along(MeshAxis::DpShard);  // One rank calls its collectives, too.

  const ModelIndex& index_;
  const Plan& plan_;
  const Layout& layout_;
  ScheduleWriter out_;
};

}  // namespace

StepSchedules lower_zero(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  return {.first = {}, .steady = ZeroLowering(index, plan, layout).run()};
}

}  // namespace fsdp
