// Dispatch of the schedule's instructions to the parts of the walk.

#include "simulator/memory/memory_walk.h"

#include <cassert>
#include <deque>
#include <iterator>
#include <utility>

#include "simulator/memory/memory_walk_buckets.h"
#include "simulator/memory/memory_walk_calls.h"
#include "simulator/memory/memory_walk_flat_units.h"
#include "simulator/memory/memory_walk_optimizer.h"
#include "simulator/memory/memory_walk_units.h"
#include "simulator/memory/memory_walk_zero.h"
#include "simulator/memory/memory_walk_zero3.h"

namespace fsdp::simulator {

template <class Sink>
class MemoryWalk<Sink>::Impl {
 public:
  Impl(const WalkInput& input, Sink& sink)
      : in_(input),
        sink_(sink),
        units_(in_, sink),
        flat_(in_, sink, units_.gradients()),
        calls_(in_, sink, units_),
        optimizer_(in_, sink),
        buckets_(in_, sink),
        zero_(in_, sink, units_.gradients()),
        zero3_(in_, sink, units_.gradients()) {
    if (!zero3_.is_zero3()) return;
    calls_.on_released([this](int p) { zero3_.let_go_of_kept(p); });
    calls_.on_rerun([this](int call, int op) { gather_for_rerun(call, op); });
  }

  void initialize() {
    if (zero3_.is_zero3()) return zero3_.initialize();
    if (is_flat() && in_.limits.num_sms > 0) {
      flat_.initialize();
    } else {
      optimizer_.initialize();
    }
    zero_.is_zero() ? zero_.construct() : buckets_.construct();
  }
  void make_states() {
    if (zero3_.is_zero3()) {
      zero3_.make_states_once();
    } else {
      zero_.is_zero() ? zero_.make_states_once() : optimizer_.make_states_once();
    }
    buckets_.pass_first_step();
    zero3_.pass_first_step();
    is_first_step_ = false;
  }

  void load_first_batch() {
    assert(in_.schedule->instructions.front().kind == InstructionKind::LoadInputs);
    run(in_.schedule->instructions.front());
    first_is_loaded_ = true;
  }

  void step() {
    const bool is_other = std::exchange(is_first_step_, false) && in_.first_schedule != nullptr;
    const std::vector<Instruction>& steps = (is_other ? in_.first_schedule : in_.schedule)->instructions;
    for (std::size_t begin = 0; begin < steps.size();) {
      const Action action = action_at(steps, begin);
      begin = action.end;
      if (std::exchange(first_is_loaded_, false)) {
        enters_forward_ = true;
        continue;
      }
      sink_.mark();
      enter(steps[action.main]);
      for (std::size_t i = action.begin; i < action.main; ++i) free(steps[i]);
      run(steps[action.main]);
      if (holds()) launch(kernels_of(steps[action.main]));
      for (std::size_t i = action.main + 1; i < action.end; ++i) free(steps[i]);
      if constexpr (requires { sink_.has_enough(); }) {
        if (sink_.has_enough()) return;
      }
    }
    zero3_.pass_first_step();
  }

 private:
  bool is_flat() const { return in_.layout->flat != FlatParameters::None; }

  // Whether what other streams have used comes back late.
  bool holds() const {
    if constexpr (requires { sink_.holds(); }) {
      return sink_.holds();
    } else {
      return false;
    }
  }

  // The computation was given so many kernels.
  void launch(std::int64_t kernels) {
    if (is_flat()) return flat_.launch(kernels);
    if (zero3_.is_zero3()) return zero3_.launch(kernels);
    if (zero_.is_zero()) zero_.launch(kernels);
  }

  // The least number of kernels that an instruction launches on the compute stream: collectives and copies are not
  // counted, and of an optimizer in a loop one kernel for each unit.
  std::int64_t kernels_of(const Instruction& step) const {
    const bool is_forward = step.kind == InstructionKind::Forward;
    if (step.kind == InstructionKind::OptimizerStep) return std::ssize(in_.layout->units);
    if (!is_forward && step.kind != InstructionKind::Backward) return 0;
    const Tape& tape = *(*in_.tapes)[static_cast<std::size_t>(step.call)];
    std::int64_t kernels = 0;
    for (auto op = static_cast<std::size_t>(step.op_begin); op < static_cast<std::size_t>(step.op_end); ++op) {
      const OpWork& work = tape.work[op];
      if (is_forward || tape.recomputed[op]) kernels += work.forward.num_kernels;
      if (!is_forward) kernels += work.backward.num_kernels;
    }
    return kernels;
  }

  void free(const Instruction& step) { is_flat() ? flat_.free(step) : units_.free(step); }

  // The work before an instruction and the frees that it begins with.
  void enter(const Instruction& step) {
    const bool enters_forward = std::exchange(enters_forward_, step.kind == InstructionKind::LoadInputs);
    if (enters_forward && is_flat()) flat_.enter_forward();
    if (step.kind != InstructionKind::LoadInputs) calls_.enter_root();
    if (enters_forward) buckets_.enter_forward(step.micro_batch);
    switch (step.kind) {
      case InstructionKind::Unshard:
        if (step.phase == StepPhase::Backward) calls_.begin_whole_backward();
        return calls_.end_hooks();
      case InstructionKind::FetchParameters:
        if (step.phase == StepPhase::Backward) calls_.end_hooks();
        return;
      case InstructionKind::WaitForUnshard:
      case InstructionKind::Backward:
      case InstructionKind::FinishReduce:
        return calls_.end_hooks();
      case InstructionKind::Reshard:
      case InstructionKind::AccumulateGrads:
        return calls_.begin_hook(step.unit);
      case InstructionKind::ReduceGrads:
        calls_.begin_hook(step.unit);
        if (!is_flat()) units_.add_to_accumulated(step);
        return;
      case InstructionKind::FlattenGrads:
        return calls_.end_hooks();
      default:
        return;
    }
  }

  void run(const Instruction& step) {
    if (is_flat() && run_flat(step)) return;
    if (zero3_.is_zero3() && run_zero3(step)) return;
    if (zero_.is_zero() && run_zero(step)) return;
    switch (step.kind) {
      case InstructionKind::LoadInputs:
        calls_.begin_micro_batch();
        return calls_.load_inputs();
      case InstructionKind::Unshard:
        return units_.unshard(step);
      case InstructionKind::WaitForUnshard:
        return units_.wait(step);
      case InstructionKind::LeaveRoot:
        return calls_.leave_root();
      case InstructionKind::Forward:
        return calls_.forward(step);
      case InstructionKind::Reshard:
        return units_.reshard(step);
      case InstructionKind::Backward:
        return calls_.backward(step);
      case InstructionKind::AccumulateGrads:
        return units_.accumulate(step);
      case InstructionKind::ReduceGrads:
        return units_.reduce(step);
      case InstructionKind::FinishReduce:
        units_.end_backward();
        return calls_.end_backward();
      case InstructionKind::LimitGathers:
      case InstructionKind::FlattenGrads:
      case InstructionKind::CheckOverflow:
      case InstructionKind::FetchParameters:
      case InstructionKind::WaitForParameters:
      case InstructionKind::DropFetched:
      case InstructionKind::ReleaseParameters:
        return;
      case InstructionKind::SyncBuffers:
        return buckets_.sync_buffers();
      case InstructionKind::PrepareReduce:
        return units_.prepare_reduce();
      case InstructionKind::ReduceBucket:
        return buckets_.reduce();
      // For SimpleFSDP: what it makes is on the tape of whoever reads the parameter.
      case InstructionKind::GatherParameters:
      case InstructionKind::ReduceUsedMap:
        return sink_.collective();
      case InstructionKind::Free:
        return units_.free(step);
      case InstructionKind::ClipGradNorm:
        return optimizer_.clip();
      case InstructionKind::OptimizerStep:
        return optimizer_.step(step.part);
      case InstructionKind::ZeroGrad:
        return units_.zero_grad(step.part);
    }
  }

  // Instructions that differ for flat parameters; false: nothing.
  bool run_flat(const Instruction& step) {
    switch (step.kind) {
      case InstructionKind::Unshard:
        flat_.unshard(step);
        return true;
      case InstructionKind::WaitForUnshard:
        flat_.wait();
        return true;
      case InstructionKind::LimitGathers:
        flat_.pass_unshard(step);
        return true;
      case InstructionKind::Reshard:
        flat_.reshard(step);
        return true;
      case InstructionKind::FlattenGrads:
        flat_.flatten(step);
        return true;
      case InstructionKind::AccumulateGrads:
        flat_.accumulate(step);
        return true;
      case InstructionKind::ReduceGrads:
        flat_.reduce(step);
        return true;
      case InstructionKind::FinishReduce:
        flat_.finish();
        return false;
      case InstructionKind::ClipGradNorm:
        optimizer_.clip_flat();
        return true;
      case InstructionKind::ZeroGrad:
        flat_.zero_grad();
        return true;
      default:
        return false;
    }
  }

  // Instructions that differ for ZeRO, or add to the rest; false: the rest.
  bool run_zero(const Instruction& step) {
    switch (step.kind) {
      case InstructionKind::PrepareReduce:
        zero_.prepare_reduce();
        return true;
      case InstructionKind::Backward:
        zero_.begin_backward(step);
        return false;
      case InstructionKind::ReduceBucket:
        // After the backward, whose first gradient is gone.
        if (zero_.is_left(step)) calls_.end_hooks();
        if (zero_.is_left(step)) calls_.drop_loss_gradient();
        zero_.reduce(step);
        return true;
      case InstructionKind::FinishReduce:
        zero_.finish_backward();
        return false;
      case InstructionKind::CheckOverflow:
        zero_.check_overflow();
        return true;
      case InstructionKind::ClipGradNorm:
        zero_.clip();
        return true;
      case InstructionKind::OptimizerStep:
        zero_.step();
        return true;
      case InstructionKind::GatherParameters:
        zero_.gather();
        return true;
      case InstructionKind::ZeroGrad:
        zero_.end_step();
        return false;
      default:
        return false;
    }
  }

  // A gather for a block that runs again waits until the rerun comes to the op.
  void gather_for_rerun(int call, int op) {
    rerun_call_ = call;
    while (!waiting_for_rerun_.empty() && waiting_for_rerun_.front().rerun_op <= op) {
      run_zero3(waiting_for_rerun_.front());
      waiting_for_rerun_.pop_front();
    }
    rerun_call_ = -1;
  }

  // The same of ZeRO-3.
  bool run_zero3(const Instruction& step) {
    if (step.rerun_op >= 0 && rerun_call_ < 0) {
      waiting_for_rerun_.push_back(step);
      return true;
    }
    switch (step.kind) {
      case InstructionKind::FetchParameters:
        zero3_.fetch(step);
        return true;
      case InstructionKind::LimitGathers:
        zero3_.ask(step);
        return true;
      case InstructionKind::WaitForParameters:
        zero3_.wait(step);
        return true;
      case InstructionKind::DropFetched:
        zero3_.drop_fetched(step);
        return true;
      case InstructionKind::ReleaseParameters:
        zero3_.release(step, rerun_call_);
        return true;
      case InstructionKind::PrepareReduce:
        zero3_.begin_backward(step);
        return true;
      case InstructionKind::ReduceBucket:
        // After the backward, whose first gradient is gone.
        if (zero3_.is_left(step)) calls_.end_hooks();
        if (zero3_.is_left(step)) calls_.drop_loss_gradient();
        zero3_.reduce(step);
        return true;
      case InstructionKind::FinishReduce:
        zero3_.finish_backward();
        return false;
      case InstructionKind::CheckOverflow:
        zero3_.check_overflow();
        return true;
      case InstructionKind::ClipGradNorm:
        zero3_.clip();
        return true;
      case InstructionKind::OptimizerStep:
        zero3_.step();
        return true;
      case InstructionKind::GatherParameters:
        zero3_.gather_persistent(step);
        return true;
      case InstructionKind::ZeroGrad:
        zero3_.end_step();
        return false;
      default:
        return false;
    }
  }

  const WalkInput in_;
  Sink& sink_;
  UnitWalk<Sink> units_;
  FlatUnitWalk<Sink> flat_;
  CallWalk<Sink> calls_;
  OptimizerWalk<Sink> optimizer_;
  BucketWalk<Sink> buckets_;
  ZeroWalk<Sink> zero_;
  Zero3Walk<Sink> zero3_;
  std::deque<Instruction> waiting_for_rerun_;
  int rerun_call_ = -1;  // Which runs again just now.
  bool is_first_step_ = true;
  bool first_is_loaded_ = false;
  bool enters_forward_ = false;  // The instruction before loaded inputs.
};

template <class Sink>
MemoryWalk<Sink>::MemoryWalk(const WalkInput& input, Sink& sink) : impl_(std::make_unique<Impl>(input, sink)) {}
template <class Sink>
MemoryWalk<Sink>::~MemoryWalk() = default;
template <class Sink>
void MemoryWalk<Sink>::initialize() {
  impl_->initialize();
}
template <class Sink>
void MemoryWalk<Sink>::make_states() {
  impl_->make_states();
}
template <class Sink>
void MemoryWalk<Sink>::load_first_batch() {
  impl_->load_first_batch();
}
template <class Sink>
void MemoryWalk<Sink>::step() {
  impl_->step();
}

template class MemoryWalk<LiveSink>;
template class MemoryWalk<AllocatorSink>;
template class MemoryWalk<CurveSink>;
template class MemoryWalk<PeakSink>;
template class MemoryWalk<PoolSink>;
template class MemoryWalk<TraceSink>;

}  // namespace fsdp::simulator
