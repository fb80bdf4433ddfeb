#pragma once

// Listeners of the memory walk: a plain count, the caching allocator, or the one that finds the live tensors at the
// peak. All have the same four calls.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>
#include <vector>

#include "core/report/report.h"
#include "simulator/allocator/caching_allocator.h"
#include "simulator/allocator/segment_pool.h"
#include "simulator/memory/block_sums.h"
#include "simulator/memory/memory_stream.h"
#include "simulator/ops/tape.h"

namespace fsdp::simulator {

/// No limit: shows the need of a run without one.
inline constexpr Bytes kEndlessMemory{std::int64_t{1} << 50};

/// Counts bytes per stream, in blocks of 512 bytes: a lower bound for the allocator. Reused from one walk to the next
/// for its memory.
class LiveSink {
 public:
  /// Begins a walk.
  void reset(int num_ids) {
    if (places_.size() < static_cast<std::size_t>(num_ids)) places_.resize(static_cast<std::size_t>(num_ids));
    live_ = peak_ = {};
    all_live_ = all_peak_ = 0;
    pool_live_ = pool_peak_ = {};
    before_ = {};
    pool_peaks_before_.clear();
    ++walk_;
  }

  void alloc(int id, std::int64_t bytes, MemoryStream stream, MemoryCategory /*category*/) {
    ++num_events_;
    const std::int64_t rounded = round_up_to_power(bytes, PoolBytes::kBlock);
    const auto s = static_cast<std::size_t>(stream);
    const std::size_t pool = 2 * s + (rounded > SegmentPool::kLargestSmall ? 1 : 0);
    places_[static_cast<std::size_t>(id)] = {rounded, walk_, static_cast<std::uint32_t>(pool)};
    live_[s] += rounded;
    peak_[s] = std::max(peak_[s], live_[s]);
    all_live_ += rounded;
    all_peak_ = std::max(all_peak_, all_live_);
    pool_live_[pool] += rounded;
    pool_peak_[pool] = std::max(pool_peak_[pool], pool_live_[pool]);
  }
  void free(int id) {
    Place& place = places_[static_cast<std::size_t>(id)];
    if (place.walk != walk_) return;
    live_[place.pool / 2] -= place.bytes;
    all_live_ -= place.bytes;
    pool_live_[place.pool] -= place.bytes;
    place.bytes = 0;
  }
  /// Consecutive allocations, with no free between them.
  void alloc_all(const PoolBytes& sums, MemoryStream stream) {
    const auto s = static_cast<std::size_t>(stream);
    live_[s] += sums.small + sums.large;
    peak_[s] = std::max(peak_[s], live_[s]);
    all_live_ += sums.small + sums.large;
    all_peak_ = std::max(all_peak_, all_live_);
    pool_live_[2 * s] += sums.small;
    pool_live_[2 * s + 1] += sums.large;
    for (std::size_t pool = 2 * s; pool < 2 * s + 2; ++pool) {
      pool_peak_[pool] = std::max(pool_peak_[pool], pool_live_[pool]);
    }
  }
  void free_all(const PoolBytes& sums, MemoryStream stream) {
    const auto s = static_cast<std::size_t>(stream);
    live_[s] -= sums.small + sums.large;
    all_live_ -= sums.small + sums.large;
    pool_live_[2 * s] -= sums.small;
    pool_live_[2 * s + 1] -= sums.large;
  }
  void play(const TapeRun& run, MemoryStream stream = MemoryStream::Compute) {
    ++num_events_;
    static_assert(PoolBytes::kLargestSmall == SegmentPool::kLargestSmall);
    const auto s = static_cast<std::size_t>(stream);
    peak_[s] = std::max(peak_[s], live_[s] + run.peak);
    live_[s] += run.small + run.large;
    all_peak_ = std::max(all_peak_, all_live_ + run.peak);
    all_live_ += run.small + run.large;
    std::int64_t& small = pool_live_[2 * s];
    std::int64_t& large = pool_live_[2 * s + 1];
    pool_peak_[2 * s] = std::max(pool_peak_[2 * s], small + run.small_peak);
    pool_peak_[2 * s + 1] = std::max(pool_peak_[2 * s + 1], large + run.large_peak);
    small += run.small;
    large += run.large;
  }
  void mark() {}
  void collective() {}
  /// Memory of one pool before this and of another after it was never reserved at the same time.
  void empty_cache() {
    before_ = std::max(before_, sum_of_peaks());
    pool_peaks_before_.push_back(pool_peak_);
    peak_ = live_;
    pool_peak_ = pool_live_;
  }

  /// Allocations and runs of tapes in all walks so far: a measure of their cost.
  std::int64_t num_events() const { return num_events_; }

  /// No allocator needs less, however often it returns its cache.
  Bytes allocated_lower_bound() const { return Bytes(all_peak_); }

  /// No allocator that keeps its cache reserves less: memory of one stream's pool never serves another.
  Bytes reserved_lower_bound() const { return Bytes(std::max(before_, sum_of_peaks())); }

  /// The same for an allocator of plain segments, with separate pools for small and large requests.
  Bytes pools_lower_bound() const {
    std::int64_t most = std::accumulate(pool_peak_.begin(), pool_peak_.end(), std::int64_t{0});
    for (const OfPools& before : pool_peaks_before_) {
      most = std::max(most, std::accumulate(before.begin(), before.end(), std::int64_t{0}));
    }
    return Bytes(most);
  }

  /// The same, with each pool in whole segments.
  Bytes segments_lower_bound(Bytes large_segment) const {
    std::int64_t most = sum_of_segments(pool_peak_, large_segment);
    for (const OfPools& before : pool_peaks_before_) most = std::max(most, sum_of_segments(before, large_segment));
    return Bytes(most);
  }

 private:
  using OfPools = std::array<std::int64_t, std::size_t{2} * kNumMemoryStreams>;
  struct Place {
    std::int64_t bytes = 0;
    std::uint32_t walk = 0;  // The walk that made it.
    std::uint32_t pool = 0;
  };

  std::int64_t sum_of_peaks() const {
    std::int64_t sum = 0;
    for (const std::int64_t peak : peak_) sum += peak;
    return sum;
  }

  static std::int64_t sum_of_segments(const OfPools& peaks, Bytes large_segment) {
    constexpr std::int64_t kUnit = 2 << 20;  // Unit of the driver, and a small segment.
    std::int64_t sum = 0;
    for (std::size_t pool = 0; pool < peaks.size(); ++pool) {
      const bool is_whole = pool % 2 == 0 || large_segment.count() % kUnit == 0;
      sum += is_whole ? (peaks[pool] + kUnit - 1) / kUnit * kUnit : peaks[pool];
    }
    return sum;
  }

  std::vector<Place> places_;  // [num ids]
  std::int64_t num_events_ = 0;
  std::uint32_t walk_ = 0;
  std::array<std::int64_t, kNumMemoryStreams> live_{};
  std::array<std::int64_t, kNumMemoryStreams> peak_{};
  std::int64_t all_live_ = 0;  // Sum of all streams together.
  std::int64_t all_peak_ = 0;
  OfPools pool_live_{};
  OfPools pool_peak_{};
  std::int64_t before_ = 0;                 // The maximum of the peaks' sums before the cache was emptied.
  std::vector<OfPools> pool_peaks_before_;  // Peaks of the pools, each time.
};

/// Feeds the caching allocator and counts live bytes beside it.
class AllocatorSink {
 public:
  /// The walk ends if more than `enough` bytes are reserved. An allocator with OnDemand progress recovers memory that
  /// another stream uses after the CPU has waited for it.
  AllocatorSink(int num_ids, CachingAllocator& allocator, Bytes enough = kEndlessMemory, bool holds = false)
      : bytes_(static_cast<std::size_t>(num_ids), 0), allocator_(allocator), enough_(enough), holds_(holds) {}

  void alloc(int id, std::int64_t bytes, MemoryStream stream, MemoryCategory /*category*/) {
    ++num_requests_;
    bytes_[id] = bytes;
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    const AllocationOutcome outcome =
        allocator_.malloc(static_cast<AllocationId>(id), Bytes(bytes), static_cast<AllocatorStream>(stream));
    has_failed_ = has_failed_ || outcome == AllocationOutcome::OutOfMemory;
  }
  void free(int id) {
    live_ -= bytes_[id];
    allocator_.free(static_cast<AllocationId>(id));
  }
  /// True if memory that another stream uses returns late.
  bool holds() const { return holds_; }
  /// The other stream passes its use at `ticket`.
  void free_behind(int id, MemoryStream stream, std::int64_t ticket) {
    if (holds_ && bytes_[id] > 0) {
      allocator_.record_stream(static_cast<AllocationId>(id), static_cast<AllocatorStream>(stream));
      events_[static_cast<std::size_t>(stream)].tickets.push_back(ticket);
    }
    free(id);
  }
  /// The CPU knows that a stream has passed `ticket`.
  void reach(MemoryStream stream, std::int64_t ticket) {
    Events& events = events_[static_cast<std::size_t>(stream)];
    while (!events.tickets.empty() && events.tickets.front() <= ticket) {
      events.tickets.pop_front();
      ++events.num_done;
    }
    if (holds_) allocator_.advance(static_cast<AllocatorStream>(stream), events.num_done);
  }
  void mark() {}
  void collective() {}
  void empty_cache() { allocator_.empty_cache(); }

  bool has_enough() const { return has_failed_ || allocator_.reserved_bytes() > enough_; }
  /// True if a device with a limit ran out of memory, which ends the walk.
  bool has_failed() const { return has_failed_; }
  std::int64_t num_requests() const { return num_requests_; }
  Bytes live() const { return Bytes(live_); }
  Bytes peak_live() const { return Bytes(peak_); }
  Bytes peak_allocated() const { return allocator_.peak_allocated_bytes(); }
  Bytes peak_reserved() const { return allocator_.peak_reserved_bytes(); }
  void reset_peak() {
    peak_ = live_;
    allocator_.reset_peak();
  }
  const CachingAllocator& allocator() const { return allocator_; }

 private:
  std::vector<std::int64_t> bytes_;
  std::int64_t num_requests_ = 0;
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
  CachingAllocator& allocator_;
  Bytes enough_;
  bool holds_;
  bool has_failed_ = false;
  struct Events {
    std::deque<std::int64_t> tickets;  // Tickets of unfinished ones.
    std::int64_t num_done = 0;
  };
  std::array<Events, kNumMemoryStreams> events_;
};

/// Finds the moment of the highest live bytes, and replays up to a moment to list the live tensors.
class PeakSink {
 public:
  explicit PeakSink(int num_ids, std::int64_t stop_after = -1)
      : bytes_(static_cast<std::size_t>(num_ids), 0), category_(bytes_.size()), stop_after_(stop_after) {}

  void alloc(int id, std::int64_t bytes, MemoryStream /*stream*/, MemoryCategory category) {
    if (stopped()) return;
    const auto slot = static_cast<std::size_t>(id);
    bytes_[slot] = bytes;
    category_[slot] = category;
    live_ += bytes;
    live_by_category_[static_cast<std::size_t>(category)] += Bytes(bytes);
    ++num_events_;
    if (!most_from_mark_.empty()) most_from_mark_.back() = std::max(most_from_mark_.back(), live_);
    if (live_ > peak_) {
      peak_ = live_;
      peak_event_ = num_events_;
      peak_mark_ = num_marks_;
      peak_id_ = id;
    }
  }
  void free(int id) {
    if (stopped()) return;
    const auto slot = static_cast<std::size_t>(id);
    live_ -= bytes_[slot];
    live_by_category_[static_cast<std::size_t>(category_[slot])] -= Bytes(bytes_[slot]);
    bytes_[slot] = 0;
    ++num_events_;
  }
  /// Marks the start of an action of the schedule.
  void mark() {
    ++num_marks_;
    most_from_mark_.push_back(live_);
  }
  /// Marks the call of a collective.
  void collective() { live_at_collective_.push_back(live_by_category_); }
  void empty_cache() {}

  std::int64_t peak_event() const { return peak_event_; }
  std::int64_t peak_mark() const { return peak_mark_; }
  int peak_id() const { return peak_id_; }
  /// [actions] The maximum of live bytes from the start of each to the start of the next.
  const std::vector<std::int64_t>& most_from_mark() const { return most_from_mark_; }
  const std::vector<BytesByCategory>& live_at_collective() const { return live_at_collective_; }
  std::int64_t bytes_of(int id) const { return bytes_[id]; }
  MemoryCategory category_of(int id) const { return category_[id]; }
  int num_ids() const { return static_cast<int>(bytes_.size()); }

 private:
  bool stopped() const { return stop_after_ >= 0 && num_events_ >= stop_after_; }

  std::vector<std::int64_t> bytes_;
  std::vector<MemoryCategory> category_;
  std::vector<std::int64_t> most_from_mark_;
  std::vector<BytesByCategory> live_at_collective_;
  BytesByCategory live_by_category_{};
  std::int64_t stop_after_;
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t num_events_ = 0;
  std::int64_t num_marks_ = 0;
  std::int64_t peak_event_ = 0;
  std::int64_t peak_mark_ = 0;
  int peak_id_ = -1;
};

/// One allocation (bytes of 0 and more) or free (-1).
struct MemoryEvent {
  int id = 0;
  std::int64_t bytes = 0;
  MemoryStream stream = MemoryStream::Compute;
  MemoryCategory category = MemoryCategory::Temp;

  bool is_free() const { return bytes < 0; }
  bool operator==(const MemoryEvent&) const = default;
};

/// Records everything.
class TraceSink {
 public:
  /// As after construction, but keeps its memory for the next walk.
  void reset() {
    events_.clear();
    marks_.clear();
    cache_returns_.clear();
  }
  void alloc(int id, std::int64_t bytes, MemoryStream stream, MemoryCategory category) {
    events_.push_back({id, bytes, stream, category});
  }
  void free(int id) { events_.push_back({id, -1, MemoryStream::Compute, MemoryCategory::Temp}); }
  void mark() { marks_.push_back(events_.size()); }
  void collective() {}
  void empty_cache() { cache_returns_.push_back(events_.size()); }

  const std::vector<MemoryEvent>& events() const { return events_; }
  /// Number of events before each action.
  const std::vector<std::size_t>& marks() const { return marks_; }
  /// Number of events before each time that the program returned its cache.
  const std::vector<std::size_t>& cache_returns() const { return cache_returns_; }

 private:
  std::vector<MemoryEvent> events_;
  std::vector<std::size_t> marks_;
  std::vector<std::size_t> cache_returns_;
};

}  // namespace fsdp::simulator
