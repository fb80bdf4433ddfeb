// A memory snapshot as a curve. The memory allocated before the recording follows from its end: the live memory there,
// less allocations, plus frees.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "core/base/parse_units.h"
#include "core/formats/pickle.h"
#include "gui/overlay/overlay_reader.h"
#include "replay/replay_snapshot_history.h"

namespace fsdp::gui {

namespace {

Result<std::string> read_whole(const std::string& path, std::int64_t size, const OverlayProgress& progress) {
  std::ifstream file(path, std::ios::binary);
  std::string data(static_cast<std::size_t>(size), '\0');
  constexpr std::int64_t kPiece = std::int64_t{1} << 24;
  for (std::int64_t done = 0; done < size; done += kPiece) {
    const std::int64_t count = std::min(kPiece, size - done);
    if (!file.read(data.data() + done, static_cast<std::streamsize>(count))) {
      return failure(path, "The file ends too early, or cannot be read.");
    }
    if (progress && !progress(0.5 * static_cast<double>(done) / static_cast<double>(size))) {
      return failure(path, "Reading was stopped.");
    }
  }
  return data;
}

std::optional<std::size_t> category_of(const PickleValue& event) {
  const std::optional<PickleValue> value = event.find("category");
  if (!value) return std::nullopt;
  const std::optional<std::string_view> text = value->as_text();
  for (std::size_t c = 0; text && c < kNumMemoryCategories; ++c) {
    if (*text == name_of(static_cast<MemoryCategory>(c))) return c;
  }
  return std::nullopt;
}

/// Smaller sizes occur in every program.
constexpr std::int64_t kLeastTelling = 4096;

std::vector<std::int64_t> distinct_sizes(const replay::SnapshotHistory& history) {
  std::set<std::int64_t> sizes;
  const auto add = [&](const replay::SnapshotEvent& event) {
    if (event.action == replay::SnapshotAction::Alloc && event.size >= kLeastTelling) sizes.insert(event.size);
  };
  for (const replay::SnapshotEvent& event : history.events) add(event);
  for (const replay::SnapshotEvent& event : history.at_end) add(event);
  return {sizes.begin(), sizes.end()};
}

/// Bytes allocated before the recording. 0 for a recording that ends with blocks that it does not list.
std::int64_t bytes_before(const replay::SnapshotHistory& history) {
  std::int64_t total = 0;
  for (const replay::SnapshotEvent& block : history.at_end) total += block.size;
  for (const replay::SnapshotEvent& event : history.events) {
    if (event.action == replay::SnapshotAction::Alloc) total -= event.size;
    if (event.action == replay::SnapshotAction::FreeCompleted) total += event.size;
  }
  return std::max<std::int64_t>(0, total);
}

struct Block {
  std::int64_t size = 0;
  std::optional<std::size_t> category;
};

}  // namespace

Result<Overlay> read_snapshot_overlay(const std::string& path, const OverlayLimits& limits,
                                      const OverlayProgress& progress) {
  std::error_code error;
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
  if (size > limits.snapshot_bytes) {
    return failure(path, "The snapshot is too large: " + format_bytes(Bytes(size)) + ".",
                   "At most " + format_bytes(Bytes(limits.snapshot_bytes)) +
                       "; record one or two steps, or pass max_entries to _record_memory_history.");
  }
  const std::string name = std::filesystem::path(path).filename();
  FSDP_TRY(std::string data, read_whole(path, size, progress));
  FSDP_TRY(const PickleDocument document, read_pickle(std::move(data), name));
  if (progress && !progress(0.8)) return failure(path, "Reading was stopped.");
  FSDP_TRY(const replay::SnapshotHistory history, replay::read_snapshot_history(document, name));

  Overlay overlay;
  overlay.name = name;
  overlay.source = "memory snapshot";
  const PickleValue events = document.root().find("device_traces")->at(history.device);
  std::int64_t total = bytes_before(history);
  std::map<std::int64_t, Block> blocks;
  std::array<std::int64_t, kNumMemoryCategories> live{};
  bool has_categories = false;
  std::optional<std::int64_t> first;
  for (std::size_t i = 0; i < history.events.size() && overlay.time.size() < limits.events; ++i) {
    const replay::SnapshotEvent& event = history.events[i];
    if (event.action == replay::SnapshotAction::Alloc) {
      const Block block{event.size, category_of(events.at(i))};
      has_categories = has_categories || block.category.has_value();
      total += block.size;
      if (block.category) live[*block.category] += block.size;
      blocks[event.address] = block;
    } else if (event.action == replay::SnapshotAction::FreeCompleted) {
      total -= event.size;
      const auto found = blocks.find(event.address);
      if (found != blocks.end() && found->second.category) live[*found->second.category] -= found->second.size;
      if (found != blocks.end()) blocks.erase(found);
    } else {
      continue;
    }
    const std::optional<PickleValue> stamp = events.at(i).find("time_us");
    const std::int64_t now = stamp ? stamp->as_int().value_or(0) : static_cast<std::int64_t>(i);
    if (!first) first = now;
    const double time = static_cast<double>(now - *first) * 1e-6;
    overlay.time.push_back(overlay.time.empty() ? 0 : std::max(overlay.time.back(), time));
    overlay.allocated.push_back(total);
    for (std::size_t c = 0; c < live.size(); ++c) overlay.live[c].push_back(live[c]);
  }
  overlay.requests = distinct_sizes(history);
  if (!has_categories) overlay.live = {};
  if (overlay.time.empty()) return failure(path, "The snapshot has no allocation.");
  StepReport report;
  report.kind = "measured";
  report.memory.peaks = {Bytes(-1), Bytes(-1), Bytes(-1), Bytes(-1)};
  report.receives_gradient_parameters = -1;
  report.buffers = Bytes(-1);
  const auto peak = std::max_element(overlay.allocated.begin(), overlay.allocated.end());
  report.memory.peaks.live = Bytes(*peak);
  for (std::size_t c = 0; has_categories && c < overlay.live.size(); ++c) {
    report.memory.at_peak[c] = Bytes(overlay.live[c][peak - overlay.allocated.begin()]);
  }
  overlay.report = std::move(report);
  return overlay;
}

}  // namespace fsdp::gui
