// The order of events of one training step under PyTorch DDP, and of one without any wrapper on one GPU.
//
// The model runs as it is. Before a forward that follows a synchronized one, rank 0 sends its buffers to all
// others. After a forward whose gradients will be reduced, the reducer makes itself ready; from then on a gradient
// goes into its bucket as soon as it is complete, and a bucket is all-reduced when it and those before it are full.
// The end of the backward waits for all of them and copies the sums back into the gradients.
//
// With accumulation, no_sync() keeps the gradients of all micro-batches but the last in .grad, unreduced.
//
// Sources: torch/nn/parallel/distributed.py (_pre_forward, _post_forward, no_sync), torch/csrc/distributed/c10d/
// reducer.cpp (autograd_hook, mark_bucket_ready, finalize_backward), torch 2.11.
//
// The first reduction of a run has one bucket for each dtype (core/frameworks/ddp/ddp_buckets.h). The next forward
// frees it and makes the buckets of all later reductions: in the first step if its micro-batches synchronize, else in
// the second.
//
// Not modeled: the broadcasts that synchronize the rebuilt buckets, once; static_graph, communication hooks, join.

#include "core/frameworks/ddp/lower_ddp.h"

#include <utility>

#include "core/plan/schedule.h"
#include "core/plan/schedule_writer.h"

namespace fsdp {

namespace {

class DdpLowering {
 public:
  DdpLowering(const ModelIndex& index, const Plan& plan, const Layout& layout)
      : index_(index),
        plan_(plan),
        layout_(layout),
        is_wrapped_(plan.mesh.world_size() > 1),
        has_buffers_(buffer_bytes(*index.model) > Bytes(0)) {}

  StepSchedules steps() {
    StepSchedules steps{.first = {}, .steady = step()};
    if (layout_.first_buckets.empty()) return steps;
    reduces_first_ = true;
    steps.first = step();
    if (frees_first_) steps.second = step();
    return steps;
  }

  Schedule step() {
    out_ = {};
    bool synchronized = true;  // The forward before, which is that of the step before.
    for (std::int64_t m = 0; m < plan_.accumulation; ++m) {
      const bool sync = m + 1 == plan_.accumulation || plan_.sync_every_micro_batch;
      out_.begin_micro_batch(m);
      if (std::exchange(frees_first_, false)) {
        out_.emit({.kind = InstructionKind::Free, .buffer = BufferKind::FirstBuckets, .unit = 0});
      }
      if (is_wrapped_ && synchronized && plan_.ddp.broadcast_buffers && has_buffers_) {
        out_.emit({.kind = InstructionKind::SyncBuffers, .ranks = copies_});
      }
      out_.emit_whole_forward(index_, layout_);
      if (is_wrapped_ && sync) out_.emit({.kind = InstructionKind::PrepareReduce});
      synchronized = sync;
      out_.phase = StepPhase::Backward;
      out_.emit_backward_in_buckets(index_, layout_, is_wrapped_ && sync ? reductions() : Reductions{});
      if (is_wrapped_ && sync && plan_.ddp.find_unused_parameters) {
        out_.emit({.kind = InstructionKind::ReduceUsedMap, .ranks = copies_});
      }
      out_.emit({.kind = InstructionKind::FinishReduce});
    }
    out_.phase = StepPhase::Optimizer;
    if (plan_.optimizer.clip_grad_norm) out_.emit({.kind = InstructionKind::ClipGradNorm});
    out_.emit({.kind = InstructionKind::OptimizerStep});
    out_.emit({.kind = InstructionKind::ZeroGrad});
    return std::move(out_.schedule);
  }

 private:
  using Reductions = ScheduleWriter::Reductions;

  Reductions reductions() {
    const int later = static_cast<int>(layout_.buckets.size());
    if (!std::exchange(reduces_first_, false)) return {0, later, copies_};
    frees_first_ = true;
    return {later, layout_.num_buckets(), copies_};
  }

  const ModelIndex& index_;
  const Plan& plan_;
  const Layout& layout_;
  const bool is_wrapped_;
  const bool has_buffers_;  // That PyTorch registers.
  const RankGroup copies_ = layout_.mesh.group_along(MeshAxis::DpReplicate);
  ScheduleWriter out_;
  bool reduces_first_ = false;  // The next reduction is the first one of the run.
  bool frees_first_ = false;    // It is over, and no forward has begun since.
};

}  // namespace

StepSchedules lower_ddp_steps(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  return DdpLowering(index, plan, layout).steps();
}

}  // namespace fsdp
