#include "replay/export_step.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>

#include "core/base/json_writer.h"
#include "text/source_text.h"

namespace fsdp::replay {

namespace {

/// A name as a cell. A spreadsheet runs a cell that begins with such a sign as a formula.
std::string cell_of(const std::string& name) {
  const bool is_formula = !name.empty() && std::string_view("=+-@").find(name.front()) != std::string_view::npos;
  const std::string text = (is_formula ? "'" : "") + text::one_line(name);
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string column_of(MemoryCategory category) {
  std::string name(name_of(category));
  for (char& c : name) c = c == ' ' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name + "_bytes";
}

}  // namespace

Trace trace_of(const StepReport& report, const simulator::StepCurves& curves, std::int64_t rank) {
  Trace trace{.kind = report.kind,
              .model = report.model,
              .gpu = report.gpu,
              .device_memory = report.memory.budget,
              .rank = rank,
              .world_size = report.gpus_per_node * report.nodes,
              .gpus_per_node = report.gpus_per_node,
              .step = curves.step,
              .events = curves.events,
              .memory = {}};
  const simulator::MemoryCurve* curve = curves.find(RunPhase::SteadyStep);
  if (curve == nullptr) return trace;
  const auto nanosecond = [&](std::size_t i) { return std::llround(curve->time[i].count() * 1e9); };
  for (std::size_t begin = 0; begin < curve->size();) {
    std::size_t end = begin + 1;
    std::size_t highest = begin;
    while (end < curve->size() && nanosecond(end) == nanosecond(begin)) {
      if (curve->total[end] > curve->total[highest]) highest = end;
      ++end;
    }
    // For one nanosecond the highest moment, which may be the peak, then the last one.
    trace.memory.push_back({curve->time[begin], curve->live_at(highest), Bytes(curve->reserved[highest])});
    if (highest + 1 != end) {
      trace.memory.push_back({curve->time[begin], curve->live_at(end - 1), Bytes(curve->reserved[end - 1])});
    }
    begin = end;
  }
  return trace;
}

std::string to_memory_csv(const simulator::StepCurves& curves) {
  std::string text =
      "phase,event,seconds,instruction,unit,tensor,change_bytes,live_bytes,allocated_bytes,reserved_bytes";
  for (int c = 0; c < kNumMemoryCategories; ++c) text += "," + column_of(static_cast<MemoryCategory>(c));
  text += "\r\n";
  for (std::size_t p = 0; p < curves.phases.size(); ++p) {
    const simulator::MemoryCurve& curve = curves.phases[p];
    for (std::size_t i = 0; i < curve.size(); ++i) {
      const PeakMoment place = curves.moment_at(p, i);
      text += fmt::format("{},{},{},{},{},{},{},{},{},{}", name_of(curve.phase), i, shortest(curve.time[i].count()),
                          cell_of(place.instruction), cell_of(place.unit), cell_of(curves.tensor_at(p, i)),
                          curve.change[i], curve.total[i], curve.allocated[i], curve.reserved[i]);
      for (const auto& live : curve.live) text += fmt::format(",{}", live[i]);
      text += "\r\n";
    }
  }
  return text;
}

}  // namespace fsdp::replay
