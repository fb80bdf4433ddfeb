// Dispatch of the schedule's instructions to the parts of the walk.

#include "simulator/memory_walk.h"

#include <cassert>
#include <utility>

#include "simulator/memory_walk_calls.h"
#include "simulator/memory_walk_optimizer.h"
#include "simulator/memory_walk_units.h"

namespace fsdp::simulator {

template <class Sink>
class MemoryWalk<Sink>::Impl {
 public:
  Impl(const WalkInput& input, Sink& sink)
      : in_(input), sink_(sink), units_(in_, sink), calls_(in_, sink, units_), optimizer_(in_, sink) {}

  void initialise() { optimizer_.initialise(); }
  void make_states() { optimizer_.make_states_once(); }

  void load_first_batch() {
    assert(in_.schedule->instructions.front().what == Do::LoadInputs);
    run(in_.schedule->instructions.front());
    first_is_loaded_ = true;
  }

  void step() {
    for (const Instruction& instruction : in_.schedule->instructions) {
      if (std::exchange(first_is_loaded_, false)) continue;
      sink_.mark();
      run(instruction);
      if constexpr (requires { sink_.has_enough(); }) {
        if (sink_.has_enough()) return;
      }
    }
  }

 private:
  void run(const Instruction& step) {
    if (step.what != Do::LoadInputs) calls_.enter_root();
    switch (step.what) {
      case Do::LoadInputs:
        calls_.begin_micro_batch();
        return calls_.load_inputs();
      case Do::Unshard:
        if (step.phase == StepPhase::Backward) calls_.begin_whole_backward();
        calls_.end_hooks();
        return units_.unshard(step);
      case Do::WaitForUnshard:
        calls_.end_hooks();
        return units_.wait(step);
      case Do::DropAllGather:
        units_.drop_held_gather();
        return calls_.leave_root();
      case Do::Forward:
        return calls_.forward(step);
      case Do::Reshard:
        calls_.begin_hook(step.unit);
        return units_.reshard(step);
      case Do::Backward:
        calls_.end_hooks();
        return calls_.backward(step);
      case Do::AccumulateGrads:
        calls_.begin_hook(step.unit);
        return units_.accumulate(step);
      case Do::ReduceGrads:
        calls_.begin_hook(step.unit);
        return units_.reduce(step);
      case Do::FinishReduce:
        calls_.end_hooks();
        units_.finish();
        return calls_.end_backward();
      case Do::ClipGradNorm:
        return optimizer_.clip();
      case Do::OptimizerStep:
        return optimizer_.step();
      case Do::ZeroGrad:
        return units_.zero_grad();
    }
  }

  const WalkInput in_;
  Sink& sink_;
  UnitWalk<Sink> units_;
  CallWalk<Sink> calls_;
  OptimizerWalk<Sink> optimizer_;
  bool first_is_loaded_ = false;
};

template <class Sink>
MemoryWalk<Sink>::MemoryWalk(const WalkInput& input, Sink& sink) : impl_(std::make_unique<Impl>(input, sink)) {}
template <class Sink>
MemoryWalk<Sink>::~MemoryWalk() = default;
template <class Sink>
void MemoryWalk<Sink>::initialise() {
  impl_->initialise();
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
template class MemoryWalk<ReservedSink>;
template class MemoryWalk<TraceSink>;

}  // namespace fsdp::simulator
