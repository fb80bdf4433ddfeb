// The timeline of a step without its CPU (simulator/time/timeline.cpp): the earliest start of each collective and each
// stretch of compute, on its streams. Omitting the CPU delays no start, so the end is a bound. On a busy GPU it is the
// step time itself.
//
// The order of events is that of the schedule, which is lowered once for many plans. If a unit stays unsharded, the
// plan has the same events without the gather, the wait and the copy-out of that unit's backward. A checkpointed block
// takes longer in its backward, in the same place.
//
// Not counted: the CPU, and work on no GPU stream.

#include "planner/search/step_order.h"

#include <algorithm>
#include <array>
#include <utility>

#include "simulator/time/shared_wire.h"

namespace fsdp::planner {

class StepOrder::Walk {
 public:
  Walk(const Durations& in, std::size_t num_units)
      : in_(in),
        gathered_(num_units),
        reduced_(num_units),
        copied_out_(num_units * kNumSlots),
        wire_(in.reduces_apart) {}

  void run(const std::vector<Event>& events, bool is_first, bool has_kept) {
    is_first_ = is_first;
    has_kept_ = has_kept;
    last_call_ = -1;
    for (const Event& event : events) {
      if (!event.again || !in_.stays[static_cast<std::size_t>(event.unit)]) run(event);
    }
  }

  Seconds end() const { return compute_; }

 private:
  void run(const Event& event) {
    const auto unit = static_cast<std::size_t>(event.unit);
    switch (event.kind) {
      case EventKind::Gather:
        return gather(event);
      case EventKind::CopyOut:
        if (gate_after_root_) gate_ = *std::exchange(gate_after_root_, std::nullopt);
        compute_ = std::max(compute_, gathered_[unit]) + (*in_.units)[unit].copy_out;
        copied_out_[static_cast<std::size_t>(event.output)] = compute_;
        return;
      case EventKind::Freed:
        gate_ = copied_out_[static_cast<std::size_t>(event.output)];
        return;
      case EventKind::FreedByRoot:
        gate_after_root_ = copied_out_[static_cast<std::size_t>(event.output)];
        return;
      case EventKind::Forward: {
        const std::vector<Seconds>& times = in_.calls[static_cast<std::size_t>(event.call)]->forward;
        compute_ += times[static_cast<std::size_t>(event.op_end)] - times[static_cast<std::size_t>(event.op_begin)];
        return;
      }
      case EventKind::Backward: {
        const simulator::CallTimes& times = *in_.calls[static_cast<std::size_t>(event.call)];
        if (event.call != last_call_) compute_ += times.recompute;
        last_call_ = event.call;
        compute_ += times.backward[static_cast<std::size_t>(event.op_end)] -
                    times.backward[static_cast<std::size_t>(event.op_begin)];
        return;
      }
      case EventKind::Keep:
        compute_ += is_first_ ? (*in_.units)[unit].keep_gradients : (*in_.units)[unit].add_gradients;
        return;
      case EventKind::Reduce:
        return reduce(unit);
      case EventKind::WaitForReduce:
        compute_ = std::max(compute_, reduced_[unit]);
        return;
      case EventKind::Finish:
        compute_ = std::max({compute_, all_reduce_, to_host_});
        return;
    }
  }

  void gather(const Event& event) {
    const auto unit = static_cast<std::size_t>(event.unit);
    const simulator::UnitTimes& times = (*in_.units)[unit];
    copy_in_ = std::max(copy_in_, gate_) + times.copy_in;
    const Seconds duration = event.again ? (*in_.gathers_again)[unit] : times.all_gather;
    Seconds& gathers = in_.reduces_apart ? gathers_ : communicator_;
    wire_.occupy(gathers, copy_in_, duration, times.latency);
    gathered_[unit] = gathers;
  }

  void reduce(std::size_t unit) {
    const simulator::UnitTimes& times = (*in_.units)[unit];
    if (has_kept_) compute_ += times.add_gradients;
    compute_ += times.reduce_copy;
    wire_.occupy(communicator_, compute_, times.reduce_scatter, times.latency);
    reduced_[unit] = communicator_;
    if (in_.has_replicas) all_reduce_ = std::max(all_reduce_, communicator_) + times.all_reduce;
    to_host_ = std::max({to_host_, communicator_, all_reduce_}) + times.to_host;
  }

  const Durations& in_;
  std::vector<Seconds> gathered_, reduced_;  // [num units] Ends.
  std::vector<Seconds> copied_out_;          // [num units, slots]
  Seconds compute_{0}, copy_in_{0}, communicator_{0}, gathers_{0}, all_reduce_{0}, to_host_{0};
  simulator::SharedWire wire_;
  Seconds gate_{0};
  std::optional<Seconds> gate_after_root_;
  bool is_first_ = true;   // True in the first micro-batch.
  bool has_kept_ = false;  // True if there are gradients of earlier micro-batches.
  int last_call_ = -1;
};

StepOrder::StepOrder(const Schedule& schedule, std::size_t num_units) : num_units_(num_units) {
  const std::vector<Instruction>& instructions = schedule.instructions;
  const int last = instructions.empty() ? 0 : instructions.back().micro_batch;
  std::array<std::vector<bool>, 2> has_run = {std::vector<bool>(num_units), std::vector<bool>(num_units)};
  int micro_batch = 0;
  for (std::size_t begin = 0; begin < instructions.size();) {
    const Action action = action_at(instructions, begin);
    const Instruction& main = instructions[action.main];
    begin = action.end;
    if (main.phase == StepPhase::Optimizer) continue;
    if (std::exchange(micro_batch, main.micro_batch) != main.micro_batch) {
      for (std::vector<bool>& units : has_run) units.assign(num_units, false);
    }
    bool again = false;
    if (main.kind == InstructionKind::Unshard || main.kind == InstructionKind::WaitForUnshard) {
      std::vector<bool>& units = has_run[main.kind == InstructionKind::Unshard ? 0 : 1];
      again = units[static_cast<std::size_t>(main.unit)];
      units[static_cast<std::size_t>(main.unit)] = true;
    }
    add(instructions, action, again, main.micro_batch == last ? reducing_ : keeping_);
  }
}

void StepOrder::add(const std::vector<Instruction>& instructions, const Action& action, bool again,
                    std::vector<Event>& events) {
  const Instruction& main = instructions[action.main];
  for (std::size_t i = action.begin; i < action.end; ++i) {
    const Instruction& step = instructions[i];
    const std::optional<EventKind> kind = kind_of(step, main);
    if (!kind) continue;
    events.push_back({.kind = *kind,
                      .again = again && *kind != EventKind::WaitForReduce,
                      .unit = *kind == EventKind::WaitForReduce ? step.unit : main.unit,
                      .output = step.unit * kNumSlots + step.slot,
                      .call = step.call,
                      .op_begin = step.op_begin,
                      .op_end = step.op_end});
  }
}

std::optional<StepOrder::EventKind> StepOrder::kind_of(const Instruction& step, const Instruction& main) {
  switch (step.kind) {
    case InstructionKind::Unshard:
      return EventKind::Gather;
    case InstructionKind::WaitForUnshard:
      return EventKind::CopyOut;
    case InstructionKind::Forward:
      return EventKind::Forward;
    case InstructionKind::Backward:
      return EventKind::Backward;
    case InstructionKind::AccumulateGrads:
      return EventKind::Keep;
    case InstructionKind::ReduceGrads:
      return EventKind::Reduce;
    case InstructionKind::FinishReduce:
      return EventKind::Finish;
    case InstructionKind::Free:
      if (step.buffer == BufferKind::ReduceInput) return EventKind::WaitForReduce;
      if (step.buffer != BufferKind::AllGatherOutput) return std::nullopt;
      if (main.kind == InstructionKind::WaitForUnshard) return EventKind::Freed;
      if (main.kind == InstructionKind::LeaveRoot) return EventKind::FreedByRoot;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

Seconds StepOrder::least(const Durations& durations) const {
  Walk walk(durations, num_units_);
  for (std::int64_t m = 0; m < durations.micro_batches; ++m) {
    const bool reduces = durations.reduces_each || m + 1 == durations.micro_batches;
    walk.run(reduces ? reducing_ : keeping_, m == 0, m > 0 && !durations.reduces_each);
  }
  return walk.end();
}

}  // namespace fsdp::planner
