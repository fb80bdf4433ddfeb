// The segments at the start follow from those at the end and from the events, read backwards. Each is made by a request
// of its size, which is freed again; the blocks are then cut from its front. Best fit has no other choice, because all
// earlier segments are full. Free memory is cut too, and freed when all blocks are in place:
//
//   | a | free | b | free |      request a, x, b, y in this order; in the end x and y are freed
//
// The large pool never has a free block of up to 1 MiB. Such a short gap between two blocks belongs to the first of
// them, because it was not worth a split. So its place is requested whole, freed, and requested again with the block's
// own size.
//
// Sources: the rules of simulator/allocator/caching_allocator.cpp.
//
// Not modeled: a block that was not worth a split, if the memory after it is free by then. Its last piece, of up to 1
// MiB, counts as free.
#include "replay/replay_before.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/base/rounding.h"
#include "simulator/allocator/allocator_sizes.h"

namespace fsdp::replay {

namespace {

using simulator::kDriverUnit;
using simulator::kMinBlockSize;
using simulator::kMinOwnSegment;
using simulator::kSmallSegment;
using simulator::kSmallSize;
using simulator::TraceOperation;
using simulator::TraceStep;

/// By address, at the start of the history; nullopt if the events contradict each other.
std::optional<std::map<std::int64_t, SnapshotEvent>> segments_at_begin(const SnapshotHistory& history) {
  std::map<std::int64_t, SnapshotEvent> segments;
  for (const SnapshotEvent& segment : history.segments_at_end) segments[segment.address] = segment;
  for (auto event = history.events.rbegin(); event != history.events.rend(); ++event) {
    if (event->action == SnapshotAction::SegmentMade && segments.erase(event->address) == 0) return std::nullopt;
    if (event->action != SnapshotAction::SegmentGone) continue;
    if (!segments.emplace(event->address, *event).second) return std::nullopt;
  }
  return segments;
}

class Maker {
 public:
  explicit Maker(std::span<const SnapshotEvent> blocks)
      : blocks_(blocks), next_id_(static_cast<std::int32_t>(blocks.size())) {}

  /// False if the known facts contradict each other.
  bool make(std::int64_t begin, std::int64_t size, std::int64_t handle, std::int16_t stream) {
    const std::size_t first = next_block_;
    while (next_block_ < blocks_.size() && blocks_[next_block_].address < begin + size) ++next_block_;
    if (first < next_block_ && blocks_[first].address < begin) return false;
    stream_ = stream;
    const bool is_large = size != kSmallSegment;
    if (is_large) {
      if (size < kMinOwnSegment || size % kDriverUnit != 0) return false;
      free(fill(size));
    }
    std::int64_t at = begin;
    for (std::size_t i = first; i < next_block_; ++i) {
      const std::int64_t end = i + 1 < next_block_ ? blocks_[i + 1].address : begin + size;
      if (blocks_[i].stream != handle || !fill_up(at, blocks_[i].address, is_large) || !place(i, end, is_large, at))
        return false;
    }
    if (!fill_up(at, begin + size, is_large)) return false;
    for (const auto& [filler, block] : uncut_) {
      free(filler);
      malloc(block, blocks_[block].size);
    }
    uncut_.clear();
    return true;
  }

  bool has_all() const { return next_block_ == blocks_.size(); }

  std::vector<TraceStep> take() && {
    for (const std::int32_t id : fillers_) free(id);
    return std::move(steps_);
  }

 private:
  void malloc(std::int32_t id, std::int64_t bytes) {
    steps_.push_back({.bytes = bytes, .id = id, .stream = stream_, .operation = TraceOperation::Malloc});
  }
  void free(std::int32_t id) { steps_.push_back({.id = id, .operation = TraceOperation::Free}); }

  std::int32_t fill(std::int64_t bytes) {
    malloc(next_id_, bytes);
    return next_id_++;
  }

  /// Fills the free memory between two places. In the small pool a request has at most 1 MiB.
  bool fill_up(std::int64_t from, std::int64_t to, bool is_large) {
    if (from > to || (is_large && to - from > 0 && to - from <= kSmallSize)) return false;
    while (from < to) {
      const std::int64_t bytes = is_large ? to - from : std::min(to - from, kSmallSize);
      fillers_.push_back(fill(bytes));
      from += bytes;
    }
    return true;
  }

  /// Places a block, with the rest that it did not split off; `at` becomes its end.
  bool place(std::size_t i, std::int64_t next, bool is_large, std::int64_t& at) {
    const std::int64_t rounded = round_up(blocks_[i].size, kMinBlockSize);
    const bool is_large_request = rounded > kSmallSize;
    at = blocks_[i].address + rounded;
    if (rounded == 0 || at > next || is_large_request != is_large) return false;
    if (is_large && at < next && next - at <= kSmallSize) {
      uncut_.emplace_back(fill(next - blocks_[i].address), static_cast<std::int32_t>(i));
      at = next;
    } else {
      malloc(static_cast<std::int32_t>(i), blocks_[i].size);
    }
    return true;
  }

  std::span<const SnapshotEvent> blocks_;
  std::vector<TraceStep> steps_;
  std::vector<std::int32_t> fillers_;
  std::vector<std::pair<std::int32_t, std::int32_t>> uncut_;  ///< The filler of a block's place, and the block.
  std::size_t next_block_ = 0;
  std::int32_t next_id_;
  std::int16_t stream_ = 0;
};

}  // namespace

std::vector<TraceStep> steps_to_begin_with(const SnapshotHistory& history, std::span<const SnapshotEvent> blocks,
                                           const std::function<std::int16_t(std::int64_t)>& stream_of) {
  const simulator::AllocatorSettings& settings = history.settings;
  const bool rounds = std::any_of(settings.roundup_power2_divisions.begin(), settings.roundup_power2_divisions.end(),
                                  [](std::int64_t divisions) { return divisions > 1; });
  if (rounds || settings.expandable_segments || history.has_expandable_segments ||
      settings.max_split_size != simulator::kUnlimitedSplitSize) {
    return {};
  }
  const auto segments = segments_at_begin(history);
  if (!segments) return {};
  Maker maker(blocks);
  for (const auto& [address, segment] : *segments) {
    if (!maker.make(address, segment.size, segment.stream, stream_of(segment.stream))) return {};
  }
  if (!maker.has_all()) return {};
  return std::move(maker).take();
}

}  // namespace fsdp::replay
