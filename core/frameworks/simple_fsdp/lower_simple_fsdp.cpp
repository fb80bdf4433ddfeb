// The order of events of one training step under SimpleFSDP, without a compiler.
//
// An op reads its parameters before its first kernel: SimpleFSDP gathers them then, one after the other, and computing
// waits for each. After the backward of the op it reduces the gradients of the reads, the last read first, and waits
// for each as well. Nothing overlaps and nothing is gathered ahead. The schedule frees nothing: a copy lives as long as
// a node of autograd's graph saves it, which the tape decides (simulator/ops/gathered_parameters.cpp).
//
// A checkpointed block reruns before its backward, up to the last saved tensor, and reads its parameters again;
// selective checkpointing also reads those of ops whose outputs it kept.
//
// Every micro-batch reduces: there is no way to ask for less.
//
// Sources: torchtitan/experiments/graph_trainer/simple_fsdp.py, torchtitan 0.3.0; torch/utils/checkpoint.py
// (_StopRecomputationError), torch 2.11.
//
// Not modeled: an op whose code reads a parameter between two of its kernels has it gathered before the first.

#include "core/frameworks/simple_fsdp/lower_simple_fsdp.h"

#include <utility>

#include "core/frameworks/simple_fsdp/parameter_reads.h"
#include "core/plan/schedule_writer.h"

namespace fsdp {

namespace {

class SimpleFsdpLowering {
 public:
  SimpleFsdpLowering(const ModelIndex& index, const Plan& plan, const Layout& layout)
      : index_(index),
        plan_(plan),
        layout_(layout),
        checkpoint_modes_(checkpoint_modes(index, plan.checkpointing)),
        ranks_(layout.mesh.group_along(MeshAxis::DpShard)),
        gathers_(!ranks_.empty()) {}

  Schedule run() {
    if (gathers_) {
      for (int p = 0; p < static_cast<int>(index_.model->parameters.size()); ++p)
        out_.schedule.groups.push_back({.parameters = {p}, .last = p, .ranks = ranks_});
    }
    for (std::int64_t m = 0; m < plan_.accumulation; ++m) {
      out_.begin_micro_batch(m);
      forward();
      out_.phase = StepPhase::Backward;
      out_.emit({.kind = InstructionKind::PrepareReduce});
      backward();
      out_.emit({.kind = InstructionKind::FinishReduce});
    }
    out_.phase = StepPhase::Optimizer;
    if (plan_.optimizer.clip_grad_norm) {
      out_.emit({.kind = InstructionKind::ClipGradNorm,
                 .reduces_each_norm = plan_.runtime.quirks.clip_reduces_each_norm,
                 .ranks = ranks_});
    }
    out_.emit({.kind = InstructionKind::OptimizerStep});
    out_.emit({.kind = InstructionKind::ZeroGrad});
    return std::move(out_.schedule);
  }

 private:
  const std::vector<int>& reads_at(int call, int position) const {
    const Block& block = index_.model->blocks[index_.model->calls[call].block];
    return block.ops[position - index_.call_begin[call]].parameters;
  }

  void gather(int call, int position) {
    if (!gathers_) return;
    for (const int read : reads_at(call, position)) {
      out_.emit({.kind = InstructionKind::GatherParameters,
                 .ranks = ranks_,
                 .group = index_.model->calls[call].parameters[read]});
    }
  }

  void forward() {
    const std::vector<Window>& root = layout_.units.front().windows;
    const int left = root.empty() ? 0 : root.back().end;
    bool has_left = false;
    for (int call = 0; call + 1 < static_cast<int>(index_.call_begin.size()); ++call) {
      const int end = index_.call_begin[call + 1];
      int begin = index_.call_begin[call];
      if (begin >= left && !std::exchange(has_left, true)) out_.emit({.kind = InstructionKind::LeaveRoot});
      while (begin < end) {
        gather(call, begin);
        int stop = begin + 1;
        while (stop < end && (!gathers_ || reads_at(call, stop).empty())) ++stop;
        out_.emit_ops(InstructionKind::Forward, index_, call, begin, stop);
        begin = stop;
      }
    }
    if (!has_left) out_.emit({.kind = InstructionKind::LeaveRoot});
  }

  void backward() {
    std::size_t next = 0;
    const auto is_ready = [&](int position) {
      return next < layout_.buckets.size() && layout_.buckets[next].ready >= position;
    };
    int recomputed = -1;
    int position = index_.num_positions();
    while (position > 0) {
      if (!index_.in_backward[position - 1]) {
        --position;
        continue;
      }
      const int call = index_.call_at(position - 1);
      if (std::exchange(recomputed, call) != call) recompute(call, position - 1);
      int stop = position - 1;
      while (stop > index_.call_begin[call] && index_.in_backward[stop - 1] && !is_ready(stop)) --stop;
      out_.emit_ops(InstructionKind::Backward, index_, call, stop, position);
      position = stop;
      for (; is_ready(position); ++next) {
        out_.emit({.kind = InstructionKind::ReduceBucket,
                   .ranks = ranks_,
                   .copies = layout_.mesh.group_along(MeshAxis::DpReplicate),
                   .bucket = static_cast<int>(next)});
      }
    }
  }

  // `last`: of the ops of the call that have a backward.
  void recompute(int call, int last) {
    if (checkpoint_modes_[call] == CheckpointMode::None) return;
    const int begin = index_.call_begin[call];
    const Block& block = index_.model->blocks[index_.model->calls[call].block];
    if (!plan_.checkpointing.early_stop) last = index_.call_begin[call + 1] - 1;
    const auto saves = [&](int position) {
      return index_.in_backward[position] && saves_tensors(block.ops[position - begin]);
    };
    while (plan_.checkpointing.early_stop && last > begin && !saves(last)) --last;
    for (int position = begin; position <= last; ++position) gather(call, position);
  }

  const ModelIndex& index_;
  const Plan& plan_;
  const Layout& layout_;
  std::vector<CheckpointMode> checkpoint_modes_;  // [num_calls]
  const RankGroup ranks_;                         // The ranks that share a parameter; empty if each has it whole.
  const bool gathers_;                            // Something is sharded.
  ScheduleWriter out_;
};

}  // namespace

StepSchedules lower_simple_fsdp(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  return {.first = {}, .steady = SimpleFsdpLowering(index, plan, layout).run()};
}

}  // namespace fsdp
