#pragma once

// Allocations and frees of the instructions of a step.
//
// `StepWalk` has those of FSDP2. Each other way to store parameters is a derived class with the instructions that
// differ. memory_walk.cpp chooses one by the layout, and is the only file that does.

#include <cstdint>
#include <deque>

#include "simulator/memory/memory_walk.h"
#include "simulator/memory/memory_walk_calls.h"
#include "simulator/memory/memory_walk_gradients.h"
#include "simulator/memory/memory_walk_optimizer.h"
#include "simulator/memory/memory_walk_units.h"

namespace fsdp::simulator {

/// The common parts of all walks of a step, by reference.
template <class Sink>
struct WalkParts {
  const WalkInput& in;
  Sink& sink;
  UnitWalk<Sink>& units;
  CallWalk<Sink>& calls;
  OptimizerWalk<Sink>& optimizer;
};

template <class Sink>
class StepWalk {
 public:
  explicit StepWalk(const WalkParts<Sink>& parts)
      : in_(parts.in),
        sink_(parts.sink),
        units_(parts.units),
        grads_(parts.units.gradients()),
        calls_(&parts.calls),
        optimizer_(parts.optimizer) {
    waits_for_rerun_ = in_.layout->mesh.ep > 1 || in_.plan->checkpointing.has(CheckpointMode::Reentrant);
    use(parts.calls);
  }
  StepWalk(const StepWalk&) = delete;
  StepWalk& operator=(const StepWalk&) = delete;
  virtual ~StepWalk() = default;

  /// Takes the calls of another forward: an evaluation, or a step again.
  void use(CallWalk<Sink>& calls) {
    calls_ = &calls;
    if (waits_for_rerun_) calls_->on_rerun([this](int /*call*/, int op) { run_waiting(op); });
  }

  /// Makes and wraps the parameters.
  virtual void initialize() { optimizer_.initialize(); }
  /// The state of a run after its first steps.
  virtual void make_states() { optimizer_.make_states_once(); }

  virtual void begin_step(const Schedule& schedule) { (void)schedule; }
  /// The first instruction after an input.
  virtual void enter_forward() {}
  /// Before the frees of a ReduceGrads.
  virtual void enter_reduce(const Instruction& step) { units_.add_to_accumulated(step); }
  /// Any instruction but Free, and a Free.
  virtual void run(const Instruction& step);
  virtual void free(const Instruction& step) {
    if (step.rerun_op >= 0 && !runs_again_ && waits_for_rerun_) return waiting_for_rerun_.push_back(step);
    units_.free(step);
  }
  /// Counts kernels on the compute stream.
  virtual void launch(std::int64_t kernels) { (void)kernels; }

 protected:
  const WalkInput& in_;
  Sink& sink_;
  UnitWalk<Sink>& units_;
  GradientWalk<Sink>& grads_;
  CallWalk<Sink>* calls_;  // Those of the step, or of an evaluation.
  OptimizerWalk<Sink>& optimizer_;

 private:
  // Instructions of what runs again wait until it reaches their op.
  void run_waiting(int op) {
    runs_again_ = true;
    while (!waiting_for_rerun_.empty() && waiting_for_rerun_.front().rerun_op <= op) {
      const Instruction step = waiting_for_rerun_.front();
      waiting_for_rerun_.pop_front();
      step.kind == InstructionKind::Free ? free(step) : run(step);
    }
    runs_again_ = false;
  }

  bool waits_for_rerun_ = false;  // Instructions of a block that runs again wait for their op.
  std::deque<Instruction> waiting_for_rerun_;
  bool runs_again_ = false;
};

template <class Sink>
void StepWalk<Sink>::run(const Instruction& step) {
  if (step.rerun_op >= 0 && !runs_again_ && waits_for_rerun_) return waiting_for_rerun_.push_back(step);
  switch (step.kind) {
    case InstructionKind::LoadInputs:
      // Scales that follow the last optimizer's step.
      if (step.micro_batch == 0 && precomputes_scales(*in_.plan)) sink_.collective();
      calls_->begin_micro_batch(step.micro_batch);
      return calls_->load_inputs();
    case InstructionKind::Unshard:
      return units_.unshard(step);
    case InstructionKind::WaitForUnshard:
      return units_.wait(step);
    case InstructionKind::LeaveRoot:
      return calls_->leave_root();
    case InstructionKind::Forward:
      return calls_->forward(step);
    case InstructionKind::Reshard:
      return units_.reshard(step);
    case InstructionKind::Backward:
      return calls_->backward(step);
    case InstructionKind::AccumulateGrads:
      return units_.accumulate(step);
    case InstructionKind::ReduceGrads:
      return units_.reduce(step);
    case InstructionKind::FinishReduce:
      units_.end_backward();
      return calls_->end_backward();
    case InstructionKind::PrepareReduce:
      return units_.prepare_reduce();
    // The sums are formed in place.
    case InstructionKind::ReduceBucket:
      if (!step.ranks.empty()) sink_.collective();
      if (!step.copies.empty()) sink_.collective();
      return;
    // For SimpleFSDP: its result is on the tape of the call that reads the parameter.
    case InstructionKind::GatherParameters:
    case InstructionKind::ReduceUsedMap:
      return sink_.collective();
    case InstructionKind::ClipGradNorm:
      return optimizer_.clip();
    case InstructionKind::OptimizerStep:
      return optimizer_.step(step.part);
    case InstructionKind::ZeroGrad:
      return units_.zero_grad(step.part);
    case InstructionKind::Free:
    case InstructionKind::RunOther:
    case InstructionKind::LimitGathers:
    case InstructionKind::FlattenGrads:
    case InstructionKind::SyncBuffers:
    case InstructionKind::CheckOverflow:
    case InstructionKind::FetchParameters:
    case InstructionKind::WaitForParameters:
    case InstructionKind::DropFetched:
    case InstructionKind::ReleaseParameters:
      return;
  }
}

}  // namespace fsdp::simulator
