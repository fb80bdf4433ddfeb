// The bytes of one model, apart from the others: the recorded walk has the number of each tensor, and a model has a
// range of numbers.

#include "simulator/other_reports.h"

#include <algorithm>
#include <cstdint>

namespace fsdp::simulator {

namespace {

struct HeldBytes {
  std::int64_t resident = 0;  ///< After initialization.
  std::int64_t most = 0;      ///< In two steps.
};

HeldBytes held_bytes(const TraceSink& trace, std::size_t made, int first, int end) {
  HeldBytes held;
  std::int64_t live = 0;
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(end - first), 0);
  for (std::size_t e = 0; e < trace.events().size(); ++e) {
    if (e == made) held.resident = live;
    const MemoryEvent& event = trace.events()[e];
    if (event.id < first || event.id >= end) continue;
    std::int64_t& own = bytes[static_cast<std::size_t>(event.id - first)];
    live += event.is_free() ? -own : event.bytes;
    own = event.is_free() ? 0 : event.bytes;
    if (e >= made) held.most = std::max(held.most, live);
  }
  return held;
}

}  // namespace

std::vector<OtherReport> other_reports(const PreparedPlan& prepared, const TrafficReport& traffic) {
  std::vector<OtherReport> reports;
  if (prepared.others == nullptr) return reports;
  TraceSink trace;
  MemoryWalk<TraceSink> walk(prepared.short_walk_input(), trace);
  walk.initialize();
  const std::size_t made = trace.events().size();
  walk.step();
  walk.step();
  int first = 0;
  for (std::size_t i = 0; i < prepared.others->models.size(); ++i) {
    const PreparedOther& other = prepared.others->models[i];
    const int result = prepared.others->walks[i].result;
    const HeldBytes held = held_bytes(trace, made, first, result);
    first = result + 1;
    OtherReport report{.name = other.name, .how = to_text(prepared.plan.also[i])};
    report.resident = Bytes(held.resident);
    report.forward = Bytes(std::max<std::int64_t>(0, held.most - held.resident));
    report.kept = Bytes(prepared.others->walks[i].result_bytes);
    report.host = other.host.shards;
    for (const Collective& collective : traffic.collectives) {
      if (!collective.unit.starts_with(other.name + ": ")) continue;
      ++report.gathers;
      report.gathered += collective.payload;
    }
    report.time = static_cast<double>(prepared.plan.accumulation) * other.time.step;
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace fsdp::simulator
