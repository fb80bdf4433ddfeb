// On CPU one thread computes, starts collectives and waits for them; others carry them out. So the lane of the
// computing thread has its instructions, interrupted while it waited for a collective; the lane of a collective has the
// time from its call to the end of the wait for its result. Gloo runs them one after the other: one that was called
// while its lane was busy begins when the previous one has ended.
//
// On a GPU the streams themselves time the spans, and the compute stream's lane is interrupted while it waited.
//
// Not modeled: how much of that time Gloo's threads waited for a core. The sum after a direct reduce-scatter counts as
// waiting for it.

#include "executor/measured/measured_trace.h"

#include <algorithm>
#include <array>
#include <utility>

namespace fsdp::executor {

namespace {

Stream stream_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::AllGather:
      return Stream::AllGather;
    case CollectiveKind::ReduceScatter:
      return Stream::ReduceScatter;
    default:
      return Stream::AllReduce;
  }
}

class TraceMaker {
 public:
  TraceMaker(const ModelIndex& index, const Layout& layout, const Schedule& schedule, const StepMeasurement& step)
      : index_(index), layout_(layout), actions_(actions_of(schedule)), step_(step) {}

  std::vector<StreamEvent> events() && {
    waits_ = step_.stream_events.empty() ? waits_of_host() : waits_of_stream();
    for (std::size_t c = 0; c < step_.collectives.size(); ++c) add_collective(c);
    Seconds start{0};
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      const Seconds end = start + step_.instruction_times[i];
      add_instruction(static_cast<int>(i), start, end);
      start = end;
    }
    return std::move(events_);
  }

 private:
  /// The computing lane waits.
  struct Wait {
    Seconds from{0};
    Seconds to{0};
    std::int32_t collective = -1;  // The collective that it waits for.
  };

  std::vector<Wait> waits_of_host() {
    std::vector<Wait> waits;
    for (std::size_t c = 0; c < step_.collectives.size(); ++c) {
      const CollectiveTimes& times = step_.collective_times[c];
      spans_.push_back({times.called, times.waited_to});
      if (times.waited_to > times.waited_from) {
        waits.push_back({times.waited_from, times.waited_to, static_cast<std::int32_t>(c)});
      }
    }
    std::sort(waits.begin(), waits.end(), [](const Wait& a, const Wait& b) { return a.from < b.from; });
    return waits;
  }

  // Collectives are timed in the order of their calls; the compute stream waits for the all-gather of a unit.
  std::vector<Wait> waits_of_stream() {
    std::vector<Wait> waits;
    for (const StreamEvent& event : step_.stream_events) {
      if (event.stream != Stream::Compute) {
        spans_.push_back({event.start, event.end});
        continue;
      }
      const int unit = actions_[event.instruction].unit;
      std::int32_t collective = static_cast<std::int32_t>(spans_.size()) - 1;
      while (collective >= 0 &&
             unit_of(actions_[step_.collective_instructions[collective]]) != layout_.units[unit].name) {
        --collective;
      }
      waits.push_back({event.start, event.end, collective});
    }
    return waits;
  }

  void add_collective(std::size_t c) {
    // The norms of clipping are part of the compute stream's work on a GPU.
    if (c >= spans_.size()) return;
    const Collective& collective = step_.collectives[c];
    const Stream stream = stream_of(collective.kind);
    Seconds& busy_until = busy_until_[static_cast<std::size_t>(stream)];
    StreamEvent event{.stream = stream, .name = collective.unit, .unit = collective.unit, .phase = collective.phase};
    event.start = std::max(spans_[c].first, busy_until);
    event.end = std::max(spans_[c].second, event.start);
    for (const Wait& wait : waits_) {
      if (wait.collective == static_cast<std::int32_t>(c)) event.exposed += wait.to - wait.from;
    }
    event.payload = StreamPayload{.kind = collective.kind,
                                  .dtype = collective.dtype,
                                  .bytes = collective.payload,
                                  .group = collective.group,
                                  .group_size = collective.group_size};
    event.instruction = step_.collective_instructions[c];
    event.micro_batch = actions_[event.instruction].micro_batch;
    busy_until = event.end;
    events_.push_back(std::move(event));
  }

  // Adds an instruction without the times at which it waited.
  void add_instruction(int instruction, Seconds start, Seconds end) {
    std::vector<std::int32_t> waited;
    for (; next_wait_ < waits_.size() && waits_[next_wait_].from < end; ++next_wait_) {
      const Wait& wait = waits_[next_wait_];
      // A wait for parameters begins with the wait.
      const bool has_work = actions_[instruction].kind != InstructionKind::WaitForUnshard;
      if (has_work) add_work(instruction, start, wait.from, std::exchange(waited, {}));
      start = std::max(start, wait.to);
      if (wait.collective >= 0) waited = {wait.collective};
    }
    add_work(instruction, start, end, std::move(waited));
  }

  void add_work(int instruction, Seconds start, Seconds end, std::vector<std::int32_t> waited) {
    if (end <= start) return;
    const Instruction& step = actions_[instruction];
    StreamEvent event{.stream = Stream::Compute, .name = name_of_work(step), .unit = unit_of(step)};
    event.phase = step.phase;
    event.start = start;
    event.end = end;
    event.instruction = instruction;
    event.micro_batch = step.micro_batch;
    event.waits_for = std::move(waited);
    events_.push_back(std::move(event));
  }

  std::string unit_of(const Instruction& step) const {
    return step.unit < 0 ? std::string() : layout_.units[step.unit].name;
  }

  // As the predicted lane names it.
  std::string name_of_work(const Instruction& step) const {
    switch (step.kind) {
      case InstructionKind::Forward:
      case InstructionKind::Backward: {
        const int module = index_.model->calls[step.call].module;
        return module < 0 ? "loss" : index_.model->modules[module].name;
      }
      case InstructionKind::Unshard:
      case InstructionKind::ReduceGrads:
        return "copy-in " + unit_of(step);
      case InstructionKind::WaitForUnshard:
        return "copy-out " + unit_of(step);
      case InstructionKind::OptimizerStep:
        return "optimizer";
      default:
        return std::string(name_of(step.kind));
    }
  }

  const ModelIndex& index_;
  const Layout& layout_;
  const std::vector<Instruction> actions_;
  const StepMeasurement& step_;
  std::vector<StreamEvent> events_;
  std::array<Seconds, kNumStreams> busy_until_{};
  std::vector<std::pair<Seconds, Seconds>> spans_;  // [num collectives]
  std::vector<Wait> waits_;                         // In order of time.
  std::size_t next_wait_ = 0;
};

}  // namespace

Trace measured_trace(const ModelIndex& index, const Plan& plan, const Layout& layout, const Schedule& schedule,
                     const StepMeasurement& step, const std::string& device, std::int64_t rank) {
  Trace trace;
  trace.kind = "measured";
  trace.model = index.model->name;
  trace.gpu = device;
  trace.rank = rank;
  trace.world_size = plan.mesh.world_size();
  trace.gpus_per_node = trace.world_size;
  trace.step = step.wall;
  trace.events = TraceMaker(index, layout, schedule, step).events();
  trace.memory = step.memory;
  return trace;
}

}  // namespace fsdp::executor
