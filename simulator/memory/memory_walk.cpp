// A step is a list of actions. The walk of the layout's kind of parameters runs their instructions. This file has the
// work at the start of each action, and reports its kernels to the launch queue.

#include "simulator/memory/memory_walk.h"

#include <array>
#include <cassert>
#include <iterator>
#include <memory>
#include <utility>

#include "core/plan/loss_table.h"
#include "simulator/allocator/allocator_settings.h"
#include "simulator/memory/memory_walk_buckets.h"
#include "simulator/memory/memory_walk_flat_units.h"
#include "simulator/memory/memory_walk_step.h"
#include "simulator/memory/memory_walk_zero.h"
#include "simulator/memory/memory_walk_zero3.h"

namespace fsdp::simulator {

namespace {

template <class Sink>
std::unique_ptr<StepWalk<Sink>> make_step_walk(const WalkParts<Sink>& parts) {
  const Layout& layout = *parts.in.layout;
  if (layout.gathers_by_module()) return std::make_unique<Zero3Walk<Sink>>(parts);
  if (layout.updates_parts()) return std::make_unique<ZeroWalk<Sink>>(parts);
  if (layout.has_flat_units()) return std::make_unique<FlatUnitWalk<Sink>>(parts);
  if (layout.is_replicated && !layout.gathers_each_read) return std::make_unique<BucketWalk<Sink>>(parts);
  return std::make_unique<StepWalk<Sink>>(parts);
}

}  // namespace

template <class Sink>
class MemoryWalk<Sink>::Impl {
 public:
  Impl(const WalkInput& input, Sink& sink)
      : in_(input),
        sink_(sink),
        units_(in_, sink),
        calls_(in_, sink, units_),
        optimizer_(in_, sink),
        walk_(make_step_walk<Sink>({in_, sink, units_, calls_, optimizer_})),
        next_steps_{in_.first_schedule, in_.second_schedule} {
    if (in_.others == nullptr) return;
    for (const OtherWalk& other : *in_.others) others_.push_back({&other, std::make_unique<Impl>(other.held, sink_)});
  }

  /// Other models are made and wrapped by the constructor of the trainer, before it wraps the trained one.
  void initialize() {
    for (Other& other : others_) other.walk->initialize();
    walk_->initialize();
    if (empties_cache()) sink_.empty_cache();
  }
  // Unmapped parts of expandable segments are not modeled.
  bool empties_cache() const {
    const Runtime& runtime = in_.plan->runtime;
    if (!loss_row(runtime.implementations.loss).empties_cache) return false;
    const auto settings = parse_allocator_settings(runtime.allocator_settings);
    return !settings || !settings->expandable_segments;
  }

  void make_states() {
    walk_->make_states();
    next_steps_ = {};
  }

  int load_first_batch() {
    const std::vector<Instruction>& steps = in_.schedule->instructions;
    assert(steps.front().kind == InstructionKind::LoadInputs);
    walk_->run(steps.front());
    for (num_done_ = 1; steps[static_cast<std::size_t>(num_done_)].kind == InstructionKind::RunOther; ++num_done_) {
      run_other(steps[static_cast<std::size_t>(num_done_)]);
    }
    return num_done_;
  }

  void step() {
    const Schedule* other = std::exchange(next_steps_[0], std::exchange(next_steps_[1], nullptr));
    const Schedule& schedule = other != nullptr ? *other : *in_.schedule;
    const int number = steps_++;
    if (in_.plan->cuda_graphs && number > 1) return;  // A replay allocates nothing.
    walk_->begin_step(schedule);
    graph_ = in_.plan->cuda_graphs ? (number == 0 ? GraphPart::WarmUp : GraphPart::Capture) : GraphPart::None;
    run(schedule.instructions);
    enter_graph(GraphPart::None);
  }

  void evaluate(const WalkInput& evaluation, const Schedule& forward) {
    CallWalk<Sink> calls(evaluation, sink_, units_);
    calls.share_workspaces(calls_);
    now_ = &calls;
    walk_->use(calls);
    run(forward.instructions);
    calls.end_without_backward();
    drop_results();
    now_ = &calls_;
    walk_->use(calls_);
  }

  /// The forward of another model, as one action: its results but the log-probabilities are gone after it. `shared`:
  /// the calls of the trained model, which run on the same thread.
  void run_beside(const WalkInput& other, const Schedule& forward, CallWalk<Sink>& shared) {
    CallWalk<Sink> calls(other, sink_, units_);
    calls.share_workspaces(shared);
    now_ = &calls;
    walk_->use(calls);
    is_one_action_ = true;
    run(forward.instructions);
    calls.end_without_backward();
    shared.share_workspaces(calls);
    now_ = &calls_;
    walk_->use(calls_);
  }

  void reshard(const std::vector<int>& units) {
    for (const int unit : units) {
      walk_->run({.kind = InstructionKind::Reshard, .phase = StepPhase::Backward, .unit = unit});
    }
  }

  void visit(const std::vector<std::vector<std::int64_t>>& groups, int ids) {
    for (const std::vector<std::int64_t>& group : groups) {
      for (std::size_t i = 0; i < group.size(); ++i) {
        sink_.alloc(ids + static_cast<int>(i), group[i], MemoryStream::Compute, MemoryCategory::Temp);
      }
      for (std::size_t i = 0; i < group.size(); ++i) sink_.free(ids + static_cast<int>(i));
    }
  }

  void update_zeros() { optimizer_.update_zeros(); }

 private:
  void run(const std::vector<Instruction>& steps) {
    for (std::size_t begin = 0; begin < steps.size();) {
      const Action action = action_at(steps, begin);
      begin = action.end;
      if (num_done_ > 0) {
        --num_done_;
        enters_forward_ = true;
        continue;
      }
      if (in_.layout->loss.unit >= 0 && begins_loss(steps, action)) {
        begin = run_loss(steps, action);
      } else {
        if (!is_one_action_) sink_.mark();
        run(steps, action);
      }
      if constexpr (requires { sink_.has_enough(); }) {
        if (sink_.has_enough()) return;
      }
    }
  }

  /// What of a step with a CUDA graph is left to run: forward and backward, after the inputs were loaded.
  enum class GraphPart : std::uint8_t { None, WarmUp, Capture };

  // Tells a sink that has pools where requests come from.
  void enter_graph(GraphPart part) {
    if constexpr (requires { sink_.begin_capture(); }) {
      if (part == GraphPart::WarmUp) return sink_.begin_warm_up();
      if (part == GraphPart::Capture) return sink_.begin_capture();
      sink_.end_of_graph();
    }
  }

  void run(const std::vector<Instruction>& steps, const Action& action) {
    const Instruction& main = steps[action.main];
    if (main.kind == InstructionKind::RunOther) return run_other(main);
    const bool is_in_graph = main.phase == StepPhase::Forward || main.phase == StepPhase::Backward;
    if (graph_ != GraphPart::None && main.kind != InstructionKind::LoadInputs && is_in_graph) {
      enter_graph(std::exchange(graph_, GraphPart::None));
      is_in_graph_ = true;
    }
    if (is_in_graph_ && !is_in_graph) {
      enter_graph(GraphPart::None);
      is_in_graph_ = false;
    }
    enter(main);
    for (std::size_t i = action.begin; i < action.main; ++i) walk_->free(steps[i]);
    walk_->run(main);
    if (holds()) walk_->launch(kernels_of(main));
    for (std::size_t i = action.main + 1; i < action.end; ++i) walk_->free(steps[i]);
    if (main.kind == InstructionKind::FinishReduce) drop_results();
  }

  void run_other(const Instruction& step) {
    Other& other = others_[static_cast<std::size_t>(step.part)];
    const OtherWalk& of = *other.of;
    const Schedule& forward = std::exchange(other.has_run, true) ? *of.steady : *of.first;
    other.walk->run_beside(of.forward, forward, *now_);
    if (of.result_bytes == 0 || std::exchange(other.has_result, true)) return;
    sink_.alloc(of.result, of.result_bytes, MemoryStream::Compute, MemoryCategory::Activation);
  }

  void drop_results() {
    for (Other& other : others_) {
      if (std::exchange(other.has_result, false)) sink_.free(other.of->result);
    }
  }

  bool is_loss(const Instruction& step) const {
    return step.kind == InstructionKind::Forward && step.call == in_.layout->loss.call;
  }

  bool gathers_loss(const Instruction& step) const {
    const bool gathers = step.kind == InstructionKind::Unshard || step.kind == InstructionKind::WaitForUnshard;
    return gathers && step.unit == in_.layout->loss.unit && step.phase == StepPhase::Forward;
  }

  // Whether the loss comes next, or the gather for it.
  bool begins_loss(const std::vector<Instruction>& steps, Action action) const {
    while (gathers_loss(steps[action.main])) action = action_at(steps, action.end);
    return is_loss(steps[action.main]);
  }

  // What the unit of the loss does right before and after the loss happens inside it. Returns the end of that.
  std::size_t run_loss(const std::vector<Instruction>& steps, Action action) {
    std::vector<Action> gathers, reductions, reshards;
    for (; gathers_loss(steps[action.main]); action = action_at(steps, action.end)) gathers.push_back(action);
    const Action loss = action;
    action = action_at(steps, action.end);
    for (; steps[action.main].unit == in_.layout->loss.unit; action = action_at(steps, action.end)) {
      (steps[action.main].reduces_loss() ? reductions : reshards).push_back(action);
      if (!reshards.empty()) break;
    }
    calls_.on_unit_call([&](UnitCall call) {
      for (const Action& each : call == UnitCall::Gather ? gathers : call == UnitCall::Reduce ? reductions : reshards) {
        run(steps, each);
      }
    });
    for (std::size_t i = 0; i <= gathers.size(); ++i) sink_.mark();
    run(steps, loss);
    calls_.on_unit_call({});
    for (std::size_t i = 0; i < reductions.size() + reshards.size(); ++i) sink_.mark();
    return reshards.empty() ? loss.end : reshards.back().end;
  }

  // True if memory that other streams have used returns late.
  bool holds() const {
    if constexpr (requires { sink_.holds(); }) {
      return sink_.holds();
    } else {
      return false;
    }
  }

  // The least number of kernels that an instruction launches on the compute stream: collectives and copies do not
  // count, and an optimizer in a loop counts one kernel for each unit.
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
      if (!is_forward && !tape.recomputed_inside.empty() && tape.recomputed_inside[op]) {
        kernels += work.forward.num_kernels;
      }
    }
    return kernels;
  }

  // The work before an instruction, and its initial frees.
  void enter(const Instruction& step) {
    const bool enters_forward = std::exchange(enters_forward_, step.kind == InstructionKind::LoadInputs);
    if (enters_forward) walk_->enter_forward();
    if (step.kind != InstructionKind::LoadInputs) now_->enter_root();
    switch (step.kind) {
      case InstructionKind::Unshard:
        if (step.phase == StepPhase::Backward) now_->begin_whole_backward();
        return now_->end_hooks();
      case InstructionKind::FetchParameters:
        if (step.phase == StepPhase::Backward) now_->end_hooks();
        return;
      case InstructionKind::WaitForUnshard:
      case InstructionKind::Backward:
      case InstructionKind::FinishReduce:
      case InstructionKind::FlattenGrads:
        return now_->end_hooks();
      case InstructionKind::Reshard:
      case InstructionKind::AccumulateGrads:
        return now_->begin_hook(step.unit);
      case InstructionKind::ReduceGrads:
        now_->begin_hook(step.unit);
        return walk_->enter_reduce(step);
      default:
        return;
    }
  }

  const WalkInput in_;
  Sink& sink_;
  UnitWalk<Sink> units_;
  CallWalk<Sink> calls_;
  CallWalk<Sink>* now_ = &calls_;  // Those of the step, or of an evaluation.
  OptimizerWalk<Sink> optimizer_;
  std::unique_ptr<StepWalk<Sink>> walk_;
  std::array<const Schedule*, 2> next_steps_;  // Schedules of the next two steps; nullptr for the steady one.
  int steps_ = 0;
  GraphPart graph_ = GraphPart::None;  // That which the next instruction of a forward begins.
  bool is_in_graph_ = false;
  struct Other {
    const OtherWalk* of = nullptr;
    std::unique_ptr<Impl> walk;
    bool has_run = false;
    bool has_result = false;
  };
  std::vector<Other> others_;    // [Plan::also]
  bool is_one_action_ = false;   // For another model: its instructions are part of one action.
  int num_done_ = 0;             // Actions of the next step that are done already.
  bool enters_forward_ = false;  // True if the instruction before loaded inputs.
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
int MemoryWalk<Sink>::load_first_batch() {
  return impl_->load_first_batch();
}
template <class Sink>
void MemoryWalk<Sink>::step() {
  impl_->step();
}
template <class Sink>
void MemoryWalk<Sink>::evaluate(const WalkInput& evaluation, const Schedule& forward) {
  impl_->evaluate(evaluation, forward);
}
template <class Sink>
void MemoryWalk<Sink>::reshard(const std::vector<int>& units) {
  impl_->reshard(units);
}
template <class Sink>
void MemoryWalk<Sink>::visit(const std::vector<std::vector<std::int64_t>>& groups, int ids) {
  impl_->visit(groups, ids);
}
template <class Sink>
void MemoryWalk<Sink>::update_zeros() {
  impl_->update_zeros();
}

template class MemoryWalk<LiveSink>;
template class MemoryWalk<AllocatorSink>;
template class MemoryWalk<CurveSink>;
template class MemoryWalk<PeakSink>;
template class MemoryWalk<PoolSink>;
template class MemoryWalk<TraceSink>;

}  // namespace fsdp::simulator
