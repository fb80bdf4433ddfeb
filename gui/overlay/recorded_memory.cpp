#include "gui/overlay/recorded_memory.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/base/parse_units.h"
#include "text/python_text.h"

namespace fsdp::gui {

using simulator::TraceOperation;

namespace {

/// Calls `at(step)` after each step, with the live blocks by id.
template <class At>
void walk(const replay::Recording& recording, const At& at) {
  std::unordered_map<std::int32_t, std::size_t> live;  // By id: the step of the allocation.
  for (std::size_t i = 0; i < recording.trace.steps.size(); ++i) {
    const simulator::TraceStep& step = recording.trace.steps[i];
    if (step.operation == TraceOperation::Malloc) live[step.id] = i;
    if (step.operation == TraceOperation::Free) live.erase(step.id);
    if (!at(i, live)) return;
  }
}

std::vector<std::int64_t> live_bytes(const replay::Recording& recording) {
  std::vector<std::int64_t> live;
  live.reserve(recording.trace.steps.size());
  std::unordered_map<std::int32_t, std::int64_t> sizes;
  std::int64_t now = 0;
  for (const simulator::TraceStep& step : recording.trace.steps) {
    if (step.operation == TraceOperation::Malloc) {
      sizes[step.id] = step.bytes;
      now += step.bytes;
    } else if (step.operation == TraceOperation::Free) {
      const auto found = sizes.find(step.id);
      if (found != sizes.end()) now -= found->second;
      if (found != sizes.end()) sizes.erase(found);
    }
    live.push_back(now);
  }
  return live;
}

bool is_of_torch(const PythonFrame& frame) {
  return frame.file.find("/torch/") != std::string::npos || frame.file.starts_with("torch/") ||
         !(frame.file.ends_with(".py") || frame.file.starts_with("<"));
}

}  // namespace

std::optional<Bytes> RecordedMemory::device() const {
  if (!recording.knows_device) return std::nullopt;
  return recording.trace.device.total;
}

std::vector<RecordedSite> sites_at(const RecordedMemory& memory, std::size_t step) {
  std::vector<std::size_t> asked;
  walk(memory.recording, [&](std::size_t i, const auto& live) {
    if (i < step) return true;
    for (const auto& [id, by] : live) asked.push_back(by);
    return false;
  });
  std::sort(asked.begin(), asked.end());
  std::map<std::string, RecordedSite> sites;
  for (const std::size_t by : asked) {
    const bool was_before = by < memory.recording.num_before;
    std::vector<PythonFrame> stack = memory.recording.origin(by).stack;
    std::string key = was_before ? "before" : "";
    for (const PythonFrame& frame : stack) key += frame.file + ":" + std::to_string(frame.line) + frame.function + "\n";
    RecordedSite& site = sites[key];
    site.stack = std::move(stack);
    site.was_before = was_before;
    ++site.count;
    site.bytes += Bytes(memory.recording.trace.steps[by].bytes);
  }
  std::vector<RecordedSite> all;
  for (auto& [key, site] : sites) all.push_back(std::move(site));
  std::stable_sort(all.begin(), all.end(),
                   [](const RecordedSite& a, const RecordedSite& b) { return a.bytes > b.bytes; });
  return all;
}

std::string line_of(const RecordedSite& site) {
  if (site.stack.empty()) return site.was_before ? "before the recording began" : "no stack was recorded";
  const auto own =
      std::find_if(site.stack.begin(), site.stack.end(), [](const PythonFrame& frame) { return !is_of_torch(frame); });
  return text::frame_text(own == site.stack.end() ? site.stack.front() : *own, "");
}

Result<RecordedMemory> read_recorded_memory(const std::string& path, const OverlayLimits& limits,
                                            const OverlayProgress& progress) {
  std::error_code error;
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
  if (!error && size > limits.snapshot_bytes) {
    return failure(path, "The snapshot is too large: " + format_bytes(Bytes(size)) + ".",
                   "At most " + format_bytes(Bytes(limits.snapshot_bytes)) +
                       "; record one or two steps, or pass max_entries to _record_memory_history.");
  }
  RecordedMemory memory;
  FSDP_TRY(memory.recording, replay::read_recording(path));
  if (progress && !progress(0.5)) return failure(path, "Reading was stopped.");
  memory.name = std::filesystem::path(path).filename();
  memory.live = live_bytes(memory.recording);
  if (memory.live.empty()) return failure(path, "The snapshot has no allocation.");
  memory.peak =
      static_cast<std::size_t>(std::max_element(memory.live.begin(), memory.live.end()) - memory.live.begin());
  memory.as_was = replay::as_recorded(memory.recording);
  memory.recorded = replay::replay(memory.recording, memory.as_was);
  if (progress && !progress(0.8)) return failure(path, "Reading was stopped.");
  memory.at_peak = sites_at(memory, memory.peak);
  return memory;
}

Result<render::ReplayAnswer> replay_with(const RecordedMemory& memory, const std::string& settings,
                                         const std::string& device_memory) {
  Errors errors;
  replay::ReplayRequest request = memory.as_was;
  const Result<simulator::AllocatorSettings> read = simulator::parse_allocator_settings(settings);
  if (read) {
    request.settings_text = settings;
    request.settings = *read;
  } else {
    errors = read.error();
  }
  if (!device_memory.empty()) {
    const Result<Bytes> total = parse_size(device_memory, "--memory");
    if (total) request.device.total = *total;
    if (!total) append(errors, total.error());
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  render::ReplayAnswer answer{.recording = memory.recording,
                              .as_was = memory.as_was,
                              .recorded = memory.recorded,
                              .request = request,
                              .replayed = replay::replay(memory.recording, request),
                              .knows_device = memory.recording.knows_device || !device_memory.empty()};
  return answer;
}

}  // namespace fsdp::gui
