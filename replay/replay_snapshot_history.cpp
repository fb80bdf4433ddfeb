#include "replay/replay_snapshot_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "replay/replay_snapshot_settings.h"

namespace fsdp::replay {

namespace {

constexpr std::size_t kMostErrors = 50;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 42;
constexpr std::int64_t kMostBytesInAll = std::int64_t{1} << 60;  ///< Far below an overflow of any sum.
constexpr std::int64_t kMostAddress = std::int64_t{1} << 60;
constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();

struct NamedAction {
  std::string_view name;
  SnapshotAction action;
};
constexpr NamedAction kActions[] = {{"alloc", SnapshotAction::Alloc},
                                    {"free_requested", SnapshotAction::FreeRequested},
                                    {"free_completed", SnapshotAction::FreeCompleted},
                                    {"free", SnapshotAction::FreeCompleted},
                                    {"segment_alloc", SnapshotAction::SegmentMade},
                                    {"segment_map", SnapshotAction::SegmentMade},
                                    {"segment_free", SnapshotAction::SegmentGone},
                                    {"segment_unmap", SnapshotAction::SegmentGone},
                                    {"oom", SnapshotAction::OutOfMemory}};

class HistoryReader {
 public:
  explicit HistoryReader(const std::string& name) : name_(name) {}

  Result<SnapshotHistory> read(const PickleValue& root) {
    const std::optional<PickleValue> traces = root.find("device_traces");
    if (!traces || traces->kind() != PickleKind::List) {
      return failure(name_, "It is a pickle, but not a memory snapshot: it has no device_traces.",
                     "Write one with torch.cuda.memory._dump_snapshot, or with fsdp-plan rehearse --snapshot.");
    }
    choose_device(*traces);
    if (num_events_ == 0) {
      return failure(name_, "The snapshot has no history.",
                     "Call torch.cuda.memory._record_memory_history() before the work begins.");
    }
    read_events(traces->at(history_.device));
    read_segments(root);
    read_settings(root);
    if (!errors_.empty()) return tl::unexpected(std::move(errors_));
    return std::move(history_);
  }

 private:
  void complain(const std::string& where, std::string what) {
    if (errors_.size() < kMostErrors) errors_.push_back({fmt::format("{}: {}", name_, where), std::move(what), {}});
  }

  /// Chooses the device with the longest history.
  void choose_device(const PickleValue& traces) {
    std::size_t num_with_events = 0;
    for (std::size_t i = 0; i < traces.size(); ++i) {
      const std::size_t size = traces.at(i).size();
      num_with_events += size > 0 ? 1 : 0;
      if (size <= num_events_) continue;
      num_events_ = size;
      history_.device = i;
    }
    if (num_with_events > 1) {
      history_.notes.push_back(fmt::format("The snapshot has the history of {} devices; this is device {}.",
                                           num_with_events, history_.device));
    }
  }

  std::int64_t number_of(const PickleValue& dict, std::string_view key, const std::string& where, std::int64_t most) {
    const std::optional<PickleValue> value = dict.find(key);
    const std::optional<std::int64_t> number = value ? value->as_int() : std::nullopt;
    if (number && *number >= 0 && *number <= most) return *number;
    complain(where, number  ? fmt::format("\"{}\" is {}, which is impossible.", key, *number)
                    : value ? fmt::format("\"{}\" is not a number.", key)
                            : fmt::format("\"{}\" is missing.", key));
    return 0;
  }

  std::int64_t size_of(const PickleValue& dict, std::string_view key, const std::string& where) {
    const std::int64_t bytes = number_of(dict, key, where, kMostBytes);
    if (bytes_in_all_ <= kMostBytesInAll && bytes_in_all_ + bytes > kMostBytesInAll) {
      complain(where, "The sizes add up to more than is possible.");
    }
    bytes_in_all_ = std::min(bytes_in_all_ + bytes, kMostBytesInAll + 1);
    return bytes;
  }

  void read_events(const PickleValue& events) {
    std::set<std::string, std::less<>> unknown;
    history_.events.resize(events.size());
    for (std::size_t i = 0; i < events.size(); ++i) {
      const PickleValue entry = events.at(i);
      const std::optional<PickleValue> name = entry.find("action");
      const std::optional<std::string_view> text = name ? name->as_text() : std::nullopt;
      const std::string where = fmt::format("device_traces[{}][{}]", history_.device, i);
      if (!text) {
        complain(where, "It has no action.");
        continue;
      }
      const auto known = std::find_if(std::begin(kActions), std::end(kActions),
                                      [&](const NamedAction& each) { return each.name == *text; });
      if (known == std::end(kActions)) {
        if (*text != "snapshot") unknown.emplace(*text);
        continue;
      }
      SnapshotEvent& event = history_.events[i];
      event.action = known->action;
      history_.has_expandable_segments |= *text == "segment_map" || *text == "segment_unmap";
      const bool is_oom = event.action == SnapshotAction::OutOfMemory;
      event.address = number_of(entry, is_oom ? "device_free" : "addr", where, kMostAddress);
      event.size = size_of(entry, "size", where);
      event.stream = number_of(entry, "stream", where, kAny);
    }
    for (const std::string& each : unknown) {
      history_.notes.push_back(fmt::format("Events \"{}\" are unknown and were skipped.", each));
    }
  }

  void read_segments(const PickleValue& root) {
    const std::optional<PickleValue> segments = root.find("segments");
    if (!segments) return;
    for (std::size_t i = 0; i < segments->size(); ++i) {
      const PickleValue segment = segments->at(i);
      const std::string where = fmt::format("segments[{}]", i);
      if (number_of(segment, "device", where, 1 << 20) != static_cast<std::int64_t>(history_.device)) continue;
      const std::int64_t total = size_of(segment, "total_size", where);
      history_.reserved_at_end += total;
      const std::int64_t stream = number_of(segment, "stream", where, kAny);
      const std::optional<PickleValue> blocks = segment.find("blocks");
      std::int64_t address = number_of(segment, "address", where, kMostAddress);
      history_.segments_at_end.push_back({SnapshotAction::SegmentMade, address, total, stream});
      const std::optional<PickleValue> expandable = segment.find("is_expandable");
      history_.has_expandable_segments |= expandable && expandable->as_bool().value_or(false);
      for (std::size_t b = 0; blocks && b < blocks->size(); ++b) {
        const PickleValue block = blocks->at(b);
        const std::string place = fmt::format("{}.blocks[{}]", where, b);
        const std::int64_t size = size_of(block, "size", place);
        const std::optional<PickleValue> state = block.find("state");
        if (state && state->as_text() == "active_allocated") {
          const std::int64_t asked =
              block.find("requested_size") ? number_of(block, "requested_size", place, kMostBytes) : size;
          history_.at_end.push_back({SnapshotAction::Alloc, address, asked, stream});
        }
        address += size;
      }
    }
  }

  void read_settings(const PickleValue& root) {
    const std::optional<PickleValue> settings = root.find("allocator_settings");
    if (!settings) {
      history_.notes.emplace_back("The snapshot does not record its settings; the defaults are used.");
      return;
    }
    auto [text, read] = settings_of_snapshot(*settings, history_.notes);
    history_.settings_text = std::move(text);
    history_.settings = read;
  }

  const std::string& name_;
  SnapshotHistory history_;
  Errors errors_;
  std::size_t num_events_ = 0;
  std::int64_t bytes_in_all_ = 0;
};

}  // namespace

Result<SnapshotHistory> read_snapshot_history(const PickleDocument& document, const std::string& name) {
  return HistoryReader(name).read(document.root());
}

}  // namespace fsdp::replay
