// Converts PyTorch's memory snapshot to a list of requests.
//
// A snapshot has the allocator's history, event by event, and the map of its segments at the end. The history names
// blocks by their address, which another setting would change; so an address becomes an id from its alloc to its free.
// Other entries are the allocator's own acts, which the model may repeat: segments that were made, mapped and freed.
// Three facts are not written in it and follow from the order of events:
//
//   a stream that used a block    free_completed comes later than free_requested: an event on a separate stream,
//                                 which is over when the free was completed
//   torch.cuda.empty_cache()      a call of that name frees segments; if the history has no stack: no segment is made
//                                 at once, or there was room for one
//   the memory of the device      free memory when a request was refused, or when the cache had to be emptied
//
// A history that began late, or that was cut at its length, has blocks whose allocation it does not contain. They, and
// blocks of the final segments without an alloc, existed before. They are requested first, by address.
//
// Sources: PyTorch 2.11.0, torch/csrc/cuda/memory_snapshot.cpp for the keys, c10/cuda/CUDACachingAllocator.cpp for when
// an event is written; snapshots of rehearsals.
//
// Not modeled: private pools of CUDA graphs, because events name no pool.

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/base/parse_units.h"
#include "replay/replay_before.h"
#include "replay/replay_recording.h"
#include "replay/replay_snapshot_history.h"

namespace fsdp::replay {

namespace {

using simulator::TraceOperation;
using simulator::TraceStep;

constexpr std::int64_t kPage = 2LL << 20;
/// If no request was refused, the memory of the device is unknown.
constexpr std::int64_t kUnknownDevice = std::int64_t{1} << 42;

using Action = SnapshotAction;
using Event = SnapshotEvent;

/// The calling stack, innermost first; only the first part of a stack in a hostile file.
std::vector<PythonFrame> stack_of(const PickleValue& event) {
  constexpr std::size_t kMostFrames = 200;
  std::vector<PythonFrame> stack;
  const std::optional<PickleValue> frames = event.find("frames");
  for (std::size_t i = 0; frames && i < std::min(frames->size(), kMostFrames); ++i) {
    const auto text = [&](std::string_view key) {
      const std::optional<PickleValue> value = frames->at(i).find(key);
      return std::string(value ? value->as_text().value_or("") : "");
    };
    const std::optional<PickleValue> line = frames->at(i).find("line");
    stack.push_back(
        {.file = text("filename"), .line = line ? line->as_int().value_or(0) : 0, .function = text("name")});
  }
  return stack;
}

class TraceMaker {
 public:
  TraceMaker(std::shared_ptr<const PickleDocument> document, SnapshotHistory history)
      : history_(std::move(history)),
        events_(history_.events),
        at_end_(history_.at_end),
        reserved_at_end_(history_.reserved_at_end) {
    recording_.snapshot = std::move(document);
    recording_.is_snapshot = true;
    recording_.device_number = history_.device;
    recording_.notes = history_.notes;
    recording_.trace.settings_text = history_.settings_text;
    recording_.trace.settings = history_.settings;
  }

  Recording make() {
    find_limits();
    make_what_was_before();
    for (std::size_t i = 0; i < events_.size();) i = add_group(i);
    finish();
    return std::move(recording_);
  }

 private:
  static bool is_internal(Action action) {
    return action == Action::SegmentMade || action == Action::SegmentGone || action == Action::Other;
  }

  bool collects_garbage() const { return recording_.trace.settings.garbage_collection_threshold > 0; }

  /// Finds the memory reserved when the history began, the most ever reserved, and from them the memory of the device.
  void find_limits() {
    std::int64_t change = 0;
    for (const Event& event : events_) {
      if (event.action == Action::SegmentMade) change += event.size;
      if (event.action == Action::SegmentGone) change -= event.size;
    }
    const std::int64_t before = std::max<std::int64_t>(0, reserved_at_end_ - change);
    recording_.reserved_before = Bytes(before);
    std::int64_t reserved = before;
    std::int64_t most = before;
    std::int64_t limit = kUnknownDevice;
    for (const Event& event : events_) {
      if (event.action == Action::SegmentMade) reserved += event.size;
      if (event.action == Action::SegmentGone) reserved -= event.size;
      most = std::max(most, reserved);
      if (event.action == Action::OutOfMemory) limit = std::min(limit, reserved + event.address);
    }
    most_reserved_ = most;
    recording_.knows_device = limit < kUnknownDevice;
    recording_.trace.device.total = Bytes(std::min(std::max(limit, most), kUnknownDevice));
    reserved_ = before;
  }

  std::int16_t stream_of(std::int64_t handle) {
    const auto [entry, is_new] = streams_.try_emplace(handle, static_cast<std::int16_t>(streams_.size()));
    if (is_new && streams_.size() > kMostStreams) entry->second = 0;
    return entry->second;
  }

  void add(const TraceStep& step, std::uint32_t event) {
    recording_.trace.steps.push_back(step);
    recording_.event_of_step.push_back(event);
    recording_.reserved.emplace_back(reserved_);
  }

  std::int32_t new_id() {
    if (unused_ids_.empty()) return num_ids_++;
    const std::int32_t id = unused_ids_.back();
    unused_ids_.pop_back();
    return id;
  }

  void malloc(const Event& event, std::uint32_t index) {
    const auto old = live_.find(event.address);
    // Its free was lost when the history was cut.
    if (old != live_.end()) free(old, index);
    const std::int32_t id = new_id();
    live_[event.address] = id;
    add({.bytes = event.size, .id = id, .stream = stream_of(event.stream), .operation = TraceOperation::Malloc}, index);
  }

  void free(std::unordered_map<std::int64_t, std::int32_t>::iterator live, std::uint32_t index) {
    add({.id = live->second, .operation = TraceOperation::Free}, index);
    unused_ids_.push_back(live->second);
    live_.erase(live);
  }

  /// Requests the blocks that the history frees or that exist at its end, and whose allocation it does not contain.
  void make_what_was_before() {
    std::unordered_map<std::int64_t, bool> seen;  // By address: whether it is live.
    std::vector<Event> before;
    for (const Event& event : events_) {
      if (event.action == Action::Alloc) seen[event.address] = true;
      if (event.action != Action::FreeRequested && event.action != Action::FreeCompleted) continue;
      const auto [entry, is_new] = seen.try_emplace(event.address, false);
      if (is_new) before.push_back(event);
      entry->second = false;
    }
    for (const Event& block : at_end_) {
      if (!seen.contains(block.address)) before.push_back(block);
    }
    std::sort(before.begin(), before.end(), [](const Event& a, const Event& b) { return a.address < b.address; });
    for (const Event& block : before) {
      malloc(block, Recording::kNoEvent);
      recording_.bytes_before += Bytes(block.size);
    }
    recording_.num_before = recording_.trace.steps.size();
    const bool has_twins = recording_.num_before != before.size();
    if (!has_twins) {
      recording_.exact_before =
          steps_to_begin_with(history_, before, [this](std::int64_t handle) { return stream_of(handle); });
    }
  }

  /// Adds one request, and first the allocator's preceding work for it: the waits that were over, then the segments.
  /// Returns the index after them.
  std::size_t add_group(std::size_t begin) {
    std::size_t end = begin;
    bool gave_back = false;
    bool made = false;
    bool was_called = false;
    std::int64_t asked = 0;
    std::int64_t reserved_when_full = reserved_;
    std::vector<std::size_t> over;
    while (end < events_.size() && (is_internal(events_[end].action) || is_wait_over(events_[end]))) {
      const Event& event = events_[end];
      if (event.action == Action::FreeCompleted) over.push_back(end);
      if (event.action == Action::SegmentGone && !gave_back) {
        reserved_when_full = reserved_;
        was_called = is_in_empty_cache(end);
      }
      gave_back = gave_back || event.action == Action::SegmentGone;
      made = made || event.action == Action::SegmentMade;
      if (event.action == Action::SegmentMade) asked += event.size;
      if (event.action == Action::SegmentMade) reserved_ += event.size;
      if (event.action == Action::SegmentGone) reserved_ -= event.size;
      ++end;
    }
    const bool is_request =
        end < events_.size() && (events_[end].action == Action::Alloc || events_[end].action == Action::OutOfMemory);
    const bool is_oom = is_request && events_[end].action == Action::OutOfMemory;
    const bool was_needed = is_oom || (made && (collects_garbage() || reserved_when_full + asked > most_reserved_));
    const bool is_retry = gave_back && is_request && was_needed && !was_called;
    if (is_retry && !is_oom && !collects_garbage()) note_limit(reserved_when_full + asked);
    if (!is_retry) add_waits(over);
    if (gave_back && !is_retry) add({.operation = TraceOperation::EmptyCache}, event_number(begin));
    if (end < events_.size()) add_request(end++);
    if (is_retry) add_waits(over);
    return end;
  }

  /// Whether torch.cuda.empty_cache() is among the callers: in C++ (`THCPModule_emptyCache`), in Python, or in both.
  bool is_in_empty_cache(std::size_t event) const {
    const std::optional<PickleValue> traces = recording_.snapshot->root().find("device_traces");
    const std::vector<PythonFrame> stack = stack_of(traces->at(history_.device).at(event));
    return std::any_of(stack.begin(), stack.end(), [](const PythonFrame& frame) {
      return frame.function == "empty_cache" || frame.function.find("emptyCache") != std::string::npos;
    });
  }

  static std::uint32_t event_number(std::size_t index) { return static_cast<std::uint32_t>(index); }

  /// The device refused to reserve this much.
  void note_limit(std::int64_t refused) {
    if (recording_.knows_device) return;
    refused_ = std::min(refused_, refused);
  }

  bool is_wait_over(const Event& event) const {
    return event.action == Action::FreeCompleted && waiting_.contains(event.address);
  }

  void add_waits(const std::vector<std::size_t>& over) {
    for (const std::size_t index : over) {
      const auto waiting = waiting_.find(events_[index].address);
      if (waiting == waiting_.end()) continue;
      add({.stream = waiting->second, .operation = TraceOperation::Synchronize}, event_number(index));
      unused_streams_.push_back(waiting->second);
      waiting_.erase(waiting);
    }
  }

  void add_request(std::size_t index) {
    const Event& event = events_[index];
    switch (event.action) {
      case Action::Alloc:
        return malloc(event, event_number(index));
      case Action::OutOfMemory: {
        // The rest is unknown, so a request that is served now is freed at once.
        const std::int32_t id = new_id();
        add({.bytes = event.size, .id = id, .stream = stream_of(event.stream), .operation = TraceOperation::Malloc},
            event_number(index));
        add({.id = id, .operation = TraceOperation::Free}, event_number(index));
        unused_ids_.push_back(id);
        return;
      }
      default:
        break;
    }
    const auto live = live_.find(event.address);
    if (live == live_.end()) return;
    const bool is_done_at_once = event.action == Action::FreeCompleted ||
                                 (index + 1 < events_.size() && events_[index + 1].address == event.address &&
                                  events_[index + 1].action == Action::FreeCompleted);
    if (!is_done_at_once && !waiting_.contains(event.address)) {
      if (const std::optional<std::int16_t> stream = stream_to_wait_for()) {
        add({.id = live->second, .stream = *stream, .operation = TraceOperation::RecordStream}, event_number(index));
        waiting_[event.address] = *stream;
      }
    }
    free(live, event_number(index));
  }

  /// A stream that no request uses and no other block waits for.
  std::optional<std::int16_t> stream_to_wait_for() {
    recording_.trace.device.progress = simulator::StreamProgress::OnDemand;
    if (unused_streams_.empty()) {
      if (num_waits_ >= kMostStreams) return std::nullopt;
      return static_cast<std::int16_t>(simulator::kMostTraceStream - num_waits_++);
    }
    const std::int16_t stream = unused_streams_.back();
    unused_streams_.pop_back();
    return stream;
  }

  void finish() {
    if (!recording_.knows_device && refused_ < kUnknownDevice) {
      recording_.knows_device = true;
      recording_.trace.device.total =
          Bytes(std::min(std::max(most_reserved_, (refused_ - 1) / kPage * kPage), kUnknownDevice));
      recording_.notes.push_back(fmt::format("The cache had to be emptied, so the device had at most {}.",
                                             format_bytes(recording_.trace.device.total)));
    }
    if (recording_.num_before > 0) {
      recording_.notes.push_back(
          fmt::format("{} in {} {} there before the recording began{}.", format_bytes(recording_.bytes_before),
                      recording_.num_before, recording_.num_before == 1 ? "block was" : "blocks were",
                      recording_.exact_before.empty() ? "; the free blocks between them are unknown"
                                                      : "; other settings begin without its free memory"));
    }
    compact_waits();
    recording_.text = simulator::to_text(recording_.trace);
  }

  /// The streams of waits come right after those of requests: a table in the allocator is as long as their highest
  /// number.
  void compact_waits() {
    const auto num_streams = static_cast<std::int32_t>(streams_.size());
    for (TraceStep& step : recording_.trace.steps) {
      if (step.operation != TraceOperation::RecordStream && step.operation != TraceOperation::Synchronize) continue;
      step.stream = static_cast<std::int16_t>(num_streams + simulator::kMostTraceStream - step.stream);
    }
  }

  static constexpr std::size_t kMostStreams = 8000;

  SnapshotHistory history_;
  Recording recording_;
  const std::vector<Event>& events_;
  const std::vector<Event>& at_end_;
  std::int64_t reserved_at_end_;
  std::int64_t most_reserved_ = 0;
  std::int64_t reserved_ = 0;
  std::int64_t refused_ = kUnknownDevice;                ///< The smallest reserved total that was refused.
  std::unordered_map<std::int64_t, std::int32_t> live_;  ///< From address to id.
  std::vector<std::int32_t> unused_ids_;
  std::int32_t num_ids_ = 0;
  std::unordered_map<std::int64_t, std::int16_t> streams_;  ///< From handle to stream.
  std::unordered_map<std::int64_t, std::int16_t> waiting_;  ///< From address to the stream that still uses the block.
  std::vector<std::int16_t> unused_streams_;
  std::size_t num_waits_ = 0;
};

}  // namespace

Result<Recording> read_recorded_snapshot(std::string data, const std::string& name) {
  FSDP_TRY(PickleDocument document, read_pickle(std::move(data), name));
  FSDP_TRY(SnapshotHistory history, read_snapshot_history(document, name));
  auto kept = std::make_shared<const PickleDocument>(std::move(document));
  Recording recording = TraceMaker(std::move(kept), std::move(history)).make();
  if (recording.trace.steps.empty()) return failure(name, "The history of the snapshot has no request in it.");
  return recording;
}

RecordedOrigin Recording::origin(std::size_t step) const {
  RecordedOrigin origin;
  if (!is_snapshot || step >= event_of_step.size() || event_of_step[step] == kNoEvent) return origin;
  const std::optional<PickleValue> traces = snapshot->root().find("device_traces");
  const PickleValue event = traces->at(device_number).at(event_of_step[step]);
  const std::optional<PickleValue> time = event.find("time_us");
  if (time) origin.time_us = time->as_int();
  origin.stack = stack_of(event);
  return origin;
}

}  // namespace fsdp::replay
