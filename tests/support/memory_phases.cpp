#include "tests/support/memory_phases.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::simulator {

namespace {

// The name of the phase that ends with an action of the schedule; empty where none does.
std::string phase_ended_by(const std::vector<Instruction>& actions, std::size_t action, int step, bool accumulates) {
  const Instruction& now = actions[action];
  const std::string tag = accumulates ? fmt::format("step{}.{}", step, now.micro_batch) : fmt::format("step{}", step);
  switch (now.kind) {
    case InstructionKind::Forward:
      return actions[action + 1].phase == StepPhase::Backward ? tag + ".forward" : "";
    case InstructionKind::FinishReduce:
      return tag + ".backward";
    case InstructionKind::ClipGradNorm:
      return fmt::format("step{}.clip", step);
    case InstructionKind::OptimizerStep:
      return fmt::format("step{}.optimizer", step);
    case InstructionKind::ZeroGrad:
      return fmt::format("step{}.zero_grad", step);
    default:
      return "";
  }
}

// Where phases end, as numbers of events.
struct PhaseEnd {
  std::string name;
  std::size_t events = 0;
};

std::vector<PhaseEnd> phase_ends(const PreparedPlan& prepared, const TraceSink& sink) {
  std::vector<PhaseEnd> ends = {{"init", sink.marks().front()}};
  const std::vector<Instruction> actions = actions_of(prepared.schedule);
  const std::size_t length = actions.size();
  for (std::size_t m = 0; m < sink.marks().size(); ++m) {
    const std::string name =
        phase_ended_by(actions, m % length, static_cast<int>(m / length), prepared.plan.accumulation > 1);
    const std::size_t end = m + 1 < sink.marks().size() ? sink.marks()[m + 1] : sink.events().size();
    if (!name.empty()) ends.push_back({name, end});
  }
  return ends;
}

TraceSink trace(const PreparedPlan& prepared, int steps) {
  TraceSink sink;
  MemoryWalk<TraceSink> walk(prepared.walk_input(), sink);
  walk.initialize();
  for (int step = 0; step < steps; ++step) walk.step();
  return sink;
}

}  // namespace

std::vector<MemoryPhase> walk_phases(const PreparedPlan& prepared, int steps) {
  const TraceSink sink = trace(prepared, steps);
  std::vector<MemoryPhase> phases;
  std::map<int, std::int64_t> live;
  std::map<MemoryStream, int> streams;
  std::int64_t total = 0;
  std::size_t next = 0;
  for (const PhaseEnd& end : phase_ends(prepared, sink)) {
    MemoryPhase phase{.name = end.name, .allocations = {}, .peak = total};
    for (; next < end.events; ++next) {
      const MemoryEvent& event = sink.events()[next];
      if (event.is_free()) {
        total -= live[event.id];
        live.erase(event.id);
        continue;
      }
      live[event.id] = event.bytes;
      total += event.bytes;
      const int stream = streams.try_emplace(event.stream, static_cast<int>(streams.size())).first->second;
      ++phase.allocations[{stream, event.bytes}];
      phase.peak = std::max(phase.peak, total);
    }
    phase.at_end = total;
    phases.push_back(std::move(phase));
  }
  return phases;
}

std::vector<AllocatorPhase> allocate_phases(const PreparedPlan& prepared, int steps, const std::string& settings) {
  const TraceSink sink = trace(prepared, steps);
  CachingAllocator allocator;
  allocator.reset({.total = Bytes(std::int64_t{1} << 50)}, *parse_allocator_settings(settings));
  std::vector<AllocatorPhase> phases;
  std::size_t next = 0;
  for (const PhaseEnd& end : phase_ends(prepared, sink)) {
    allocator.reset_peak();
    for (; next < end.events; ++next) {
      const MemoryEvent& event = sink.events()[next];
      if (event.is_free()) {
        allocator.free(static_cast<AllocationId>(event.id));
      } else {
        allocator.malloc(static_cast<AllocationId>(event.id), Bytes(event.bytes),
                         static_cast<AllocatorStream>(event.stream));
      }
    }
    phases.push_back({allocator.peak_allocated_bytes().count(), allocator.peak_reserved_bytes().count()});
  }
  return phases;
}

std::string differences(const MemoryPhase& recorded, const MemoryPhase& walked) {
  std::map<std::pair<int, std::int64_t>, int> surplus;
  for (const auto& [what, count] : walked.allocations) surplus[what] += count;
  for (const auto& [what, count] : recorded.allocations) surplus[what] -= count;
  std::string text;
  for (const auto& [what, count] : surplus) {
    if (count == 0) continue;
    text += fmt::format("  {} x {} bytes on stream {} too {}\n", count < 0 ? -count : count, what.second, what.first,
                        count < 0 ? "few" : "many");
  }
  return text;
}

}  // namespace fsdp::simulator
