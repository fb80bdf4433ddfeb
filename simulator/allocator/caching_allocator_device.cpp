// The caching allocator and its device: segments from and to the device, memory that other streams hold, and
// statistics.
//
// A request that no cached block serves requests a segment from the device. If the device (or the memory fraction)
// refuses, the allocator returns more and more of its cache and requests again:
//
//   1. with max_split_size: a cached block that is at least that large, or several, the largest first;
//   2. all cached blocks that are whole segments, after waiting for every stream;
//   3. then it is out of memory.
//
// With a memory fraction and a garbage collection threshold, it first returns the large whole segments that have been
// idle for longer than the average, until reserved memory is below the threshold.
//
// `free` does not free a block that other streams use: the allocator records an event on each of these streams, and a
// later request finds out that they have passed it.
//
// Sources: PyTorch 2.11.0, c10/cuda/CUDACachingAllocator.cpp. CUDA allocates memory in units of 2 MiB, and cudaFree
// waits for all streams.

#include <algorithm>
#include <cassert>

#include "core/base/rounding.h"
#include "simulator/allocator/allocator_sizes.h"
#include "simulator/allocator/caching_allocator.h"

namespace fsdp::simulator {

namespace {

AllocatorStat stat_of(const allocator_detail::Tally& tally) {
  return {.current = tally.current, .peak = tally.peak, .allocated = tally.total, .freed = tally.total - tally.current};
}

AllocatorStats stats_of(const allocator_detail::PoolTally& tally) {
  return {.all = stat_of(tally.all()), .small = stat_of(tally.pools[0]), .large = stat_of(tally.pools[1])};
}

}  // namespace

CachingAllocator::CachingAllocator(const AllocatorDevice& device, const AllocatorSettings& settings) {
  reset(device, settings);
}

void CachingAllocator::reset(const AllocatorDevice& device, const AllocatorSettings& settings) {
  device_ = device;
  settings_ = settings;
  blocks_.clear();
  first_unused_ = kNone;
  std::fill(block_of_id_.begin(), block_of_id_.end(), kNone);
  for (FreeBlocks& free : free_) free.clear();
  for (std::vector<std::int32_t>& unmapped : unmapped_) unmapped.clear();
  expandable_segments_.clear();
  for (EventQueue& queue : events_) {
    queue.blocks.clear();
    queue.first = 0;
    queue.num_recorded = queue.num_completed = 0;
  }
  stream_uses_.clear();
  first_unused_stream_use_ = kNone;
  num_pending_events_ = 0;
  num_searches_[0] = num_searches_[1] = 0;
  for (PoolTally* tally : {&allocation_, &active_, &inactive_split_, &allocated_bytes_, &active_bytes_,
                           &requested_bytes_, &inactive_split_bytes_, &segment_, &reserved_bytes_}) {
    *tally = {};
  }
  oversize_allocations_ = oversize_segments_ = {};
  num_alloc_retries_ = num_ooms_ = num_sync_all_streams_ = num_device_alloc_ = num_device_free_ = 0;
  next_address_ = device_used_ = 0;
  driver_calls_ = {};
  out_of_memory_ = {};
  set_memory_fraction(settings_.per_process_memory_fraction);
}

void CachingAllocator::set_settings(const AllocatorSettings& settings) {
  settings_ = settings;
  apply_settings();
}

void CachingAllocator::set_memory_fraction(double fraction) {
  assert(fraction >= 0 && fraction <= 1);
  is_limited_ = fraction < 1;
  allowed_ = static_cast<std::int64_t>(fraction * static_cast<double>(device_.total.count()));
  apply_settings();
}

void CachingAllocator::apply_settings() {
  max_split_size_ = settings_.max_split_size.count();
  split_limit_ = settings_.expandable_segments ? kUnlimitedSplitSize.count() : max_split_size_;
  min_remainder_[0] = kMinBlockSize;
  min_remainder_[1] = settings_.expandable_segments ? kMinBlockSize : kSmallSize + 1;
  rounds_to_power2_ = std::any_of(settings_.roundup_power2_divisions.begin(), settings_.roundup_power2_divisions.end(),
                                  [](std::int64_t divisions) { return divisions > 1; });
  careful_search_ = settings_.expandable_segments || !expandable_segments_.empty() ||
                    settings_.max_split_size != kUnlimitedSplitSize ||
                    (is_limited_ && settings_.garbage_collection_threshold > 0);
}

std::int64_t CachingAllocator::segment_size(const Request& request) const {
  if (!request.is_large) return kSmallSegment;
  if (request.size < kMinOwnSegment) return settings_.large_segment_size.count();
  return round_up(request.size, kDriverUnit);
}

std::int32_t CachingAllocator::allocate_from_device(const Request& request) {
  collect_garbage();
  std::int32_t index = allocate_segment(request);
  if (index == kNone && release_oversize_blocks(request)) index = allocate_segment(request);
  if (index == kNone) {
    release_cached_blocks();
    ++num_alloc_retries_;
    index = allocate_segment(request);
  }
  return index;
}

std::int32_t CachingAllocator::allocate_segment(const Request& request) {
  const std::int64_t size = segment_size(request);
  // Even if an expandable segment would grow by less.
  if (is_limited_ && reserved_bytes_.current + size > allowed_) return kNone;
  return settings_.expandable_segments ? allocate_expandable(request) : device_malloc(request, size);
}

std::int32_t CachingAllocator::device_malloc(const Request& request, std::int64_t size) {
  const std::int64_t used = round_up(size, kDriverUnit);
  if (device_used_ + device_.used_by_others.count() + used > device_.total.count() ||
      next_address_ + used > allocator_detail::kAddressSpace) {
    ++driver_calls_.num_malloc_failed;
    return kNone;
  }
  ++driver_calls_.num_malloc;
  ++num_device_alloc_;
  use_device(used);
  const std::int32_t index = new_block();
  Block& block = blocks_[index];
  block.address = next_address_;
  block.size = size;
  block.requested = 0;
  block.prev = kNone;
  block.next = kNone;
  block.segment = kNone;
  block.bin = static_cast<std::uint16_t>(request.bin);
  next_address_ += used;
  segment_.add(request.is_large, 1);
  reserved_bytes_.add(request.is_large, size);
  if (size >= max_split_size_) oversize_segments_.add(1);
  return index;
}

void CachingAllocator::use_device(std::int64_t bytes) {
  device_used_ += bytes;
  driver_calls_.peak_used = std::max(driver_calls_.peak_used, Bytes(device_used_));
}

// For a free block that is a whole segment.
void CachingAllocator::release_segment(std::int32_t index) {
  const Block& block = blocks_[index];
  const bool is_large = (block.bin & 1) != 0;
  FreeBlocks& free = free_[block.bin];
  free.erase(free.find(block, index));
  ++driver_calls_.num_free;
  ++num_device_free_;
  use_device(-round_up(block.size, kDriverUnit));
  segment_.remove(is_large, 1);
  reserved_bytes_.remove(is_large, block.size);
  if (block.size >= max_split_size_) oversize_segments_.remove(1);
  delete_block(index);
  for (EventQueue& queue : events_) queue.num_completed = queue.num_recorded;
}

bool CachingAllocator::release_oversize_blocks(const Request& request) {
  if (settings_.max_split_size == kUnlimitedSplitSize) return false;
  FreeBlocks& free = free_[request.bin];
  const auto is_whole = [&](std::int32_t index) {
    return blocks_[index].segment == kNone && blocks_[index].prev == kNone && blocks_[index].next == kNone;
  };
  const std::int64_t wanted = std::max(request.size, max_split_size_);
  const std::size_t first = free.first_of_at_least(wanted);
  if (first < free.size() && blocks_[free.block(first)].segment == kNone) {
    if (!is_whole(free.block(first))) return false;
    release_segment(free.block(first));
    return true;
  }
  std::int64_t released = 0;
  for (std::size_t position = first; position > 0 && released < wanted;) {
    const std::int32_t index = free.block(--position);
    const std::int64_t size = blocks_[index].size;
    if (size < max_split_size_) break;
    if (!is_whole(index)) continue;
    release_segment(index);
    released += size;
  }
  return released >= wanted;
}

void CachingAllocator::empty_cache() {
  release_cached_blocks();
}

void CachingAllocator::release_cached_blocks() {
  ++num_sync_all_streams_;
  finish_all_events();
  for (std::size_t bin = 1; bin < free_.size(); bin += 2) release_bin(bin);
  for (std::size_t bin = 0; bin < free_.size(); bin += 2) release_bin(bin);
}

void CachingAllocator::release_bin(std::size_t bin) {
  // Releasing changes the set, so we first list the blocks to release.
  std::vector<std::int32_t> cached;
  for (std::size_t i = 0; i < free_[bin].size(); ++i) cached.push_back(free_[bin].block(i));
  for (const std::int32_t index : cached) {
    const Block& block = blocks_[index];
    if (block.segment != kNone) {
      unmap_block(index);
    } else if (block.prev == kNone && block.next == kNone) {
      release_segment(index);
    }
  }
}

void CachingAllocator::collect_garbage() {
  if (!is_limited_ || settings_.garbage_collection_threshold <= 0) return;
  const auto threshold =
      static_cast<std::int64_t>(settings_.garbage_collection_threshold * static_cast<double>(allowed_));
  const std::int64_t target = reserved_bytes_.current - threshold;
  if (target <= 0) return;
  std::vector<std::int32_t> whole;
  std::int64_t total_age = 0;
  const auto age = [&](std::int32_t index) { return num_searches_[1] - blocks_[index].idle_since; };
  for (std::size_t bin = 1; bin < free_.size(); bin += 2) {
    for (std::size_t i = 0; i < free_[bin].size(); ++i) {
      const std::int32_t index = free_[bin].block(i);
      // An expandable segment is longer than the device, so no block of it is whole.
      if (blocks_[index].prev != kNone || blocks_[index].next != kNone) continue;
      whole.push_back(index);
      total_age += age(index);
    }
  }
  std::int64_t reclaimed = 0;
  bool has_released = true;
  while (reclaimed < target && has_released && !whole.empty()) {
    const double old = static_cast<double>(total_age) / static_cast<double>(whole.size());
    has_released = false;
    std::vector<std::int32_t> kept;
    for (const std::int32_t index : whole) {
      if (static_cast<double>(age(index)) < old) {
        kept.push_back(index);
        continue;
      }
      has_released = true;
      reclaimed += blocks_[index].size;
      total_age -= age(index);
      release_segment(index);
    }
    whole = std::move(kept);
  }
}

void CachingAllocator::note_out_of_memory(Bytes requested, const Request& request) {
  ++num_ooms_;
  out_of_memory_ = {.requested = requested,
                    .tried = Bytes(segment_size(request)),
                    .device_free = device_.total - device_.used_by_others - Bytes(device_used_),
                    .allowed = is_limited_ ? Bytes(allowed_) : device_.total,
                    .allocated = allocated_bytes(),
                    .reserved = reserved_bytes()};
}

void CachingAllocator::record_stream(AllocationId id, AllocatorStream stream) {
  const std::int32_t index = block_of_id_[static_cast<std::size_t>(id)];
  if (index == kNone) return;
  Block& block = blocks_[index];
  const auto number = static_cast<std::int32_t>(stream);
  if (number == block.bin / 2) return;
  for (std::int32_t use = block.stream_uses; use != kNone; use = stream_uses_[use].next) {
    if (stream_uses_[use].stream == number) return;
  }
  std::int32_t use = first_unused_stream_use_;
  if (use == kNone) {
    use = static_cast<std::int32_t>(stream_uses_.size());
    stream_uses_.emplace_back();
  } else {
    first_unused_stream_use_ = stream_uses_[use].next;
  }
  stream_uses_[use] = {number, block.stream_uses};
  block.stream_uses = use;
  if (static_cast<std::size_t>(number) >= events_.size()) events_.resize(static_cast<std::size_t>(number) + 1);
}

void CachingAllocator::record_events(std::int32_t index) {
  Block& block = blocks_[index];
  block.state = BlockState::PendingFree;
  while (block.stream_uses != kNone) {
    const std::int32_t use = block.stream_uses;
    EventQueue& queue = events_[stream_uses_[use].stream];
    queue.blocks.push_back(index);
    ++queue.num_recorded;
    if (device_.progress == StreamProgress::Instant) queue.num_completed = queue.num_recorded;
    ++block.num_events;
    ++num_pending_events_;
    ++driver_calls_.num_event_record;
    block.stream_uses = stream_uses_[use].next;
    stream_uses_[use].next = first_unused_stream_use_;
    first_unused_stream_use_ = use;
  }
}

// Each stream is in order: after an event that is not done, none is done.
void CachingAllocator::process_events() {
  for (EventQueue& queue : events_) {
    while (queue.first < queue.blocks.size()) {
      const auto num_waiting = static_cast<std::int64_t>(queue.blocks.size() - queue.first);
      if (queue.num_recorded - num_waiting >= queue.num_completed) break;
      finish_event(queue.blocks[queue.first++]);
    }
    if (queue.first == queue.blocks.size()) {
      queue.blocks.clear();
      queue.first = 0;
    }
  }
}

void CachingAllocator::finish_all_events() {
  synchronize();
  if (num_pending_events_ > 0) process_events();
}

void CachingAllocator::finish_event(std::int32_t index) {
  --num_pending_events_;
  if (--blocks_[index].num_events == 0) free_block(index);
}

void CachingAllocator::synchronize(AllocatorStream stream) {
  const auto number = static_cast<std::size_t>(stream);
  if (number < events_.size()) events_[number].num_completed = events_[number].num_recorded;
}

void CachingAllocator::advance(AllocatorStream stream, std::int64_t num_events) {
  const auto number = static_cast<std::size_t>(stream);
  if (number >= events_.size()) return;
  EventQueue& queue = events_[number];
  queue.num_completed = std::max(queue.num_completed, std::min(num_events, queue.num_recorded));
}

void CachingAllocator::synchronize() {
  for (EventQueue& queue : events_) queue.num_completed = queue.num_recorded;
}

AllocatorStatistics CachingAllocator::statistics() const {
  return {.allocation = stats_of(allocation_),
          .segment = stats_of(segment_),
          .active = stats_of(active_),
          .inactive_split = stats_of(inactive_split_),
          .allocated_bytes = stats_of(allocated_bytes_),
          .reserved_bytes = stats_of(reserved_bytes_),
          .active_bytes = stats_of(active_bytes_),
          .inactive_split_bytes = stats_of(inactive_split_bytes_),
          .requested_bytes = stats_of(requested_bytes_),
          .oversize_allocations = stat_of(oversize_allocations_),
          .oversize_segments = stat_of(oversize_segments_),
          .num_alloc_retries = num_alloc_retries_,
          .num_ooms = num_ooms_,
          .num_sync_all_streams = num_sync_all_streams_,
          .num_device_alloc = num_device_alloc_,
          .num_device_free = num_device_free_};
}

void CachingAllocator::reset_peak() {
  for (PoolTally* tally : {&allocation_, &active_, &inactive_split_, &allocated_bytes_, &active_bytes_,
                           &requested_bytes_, &inactive_split_bytes_, &segment_, &reserved_bytes_}) {
    tally->reset_peak();
  }
  oversize_allocations_.peak = oversize_allocations_.current;
  oversize_segments_.peak = oversize_segments_.current;
}

std::vector<SegmentSnapshot> CachingAllocator::snapshot() const {
  const auto has_memory = [&](std::int32_t index) {
    return index != kNone && blocks_[index].state != BlockState::Unused && blocks_[index].state != BlockState::Unmapped;
  };
  std::vector<SegmentSnapshot> segments;
  for (std::int32_t head = 0; head < static_cast<std::int32_t>(blocks_.size()); ++head) {
    if (!has_memory(head) || has_memory(blocks_[head].prev)) continue;
    const Block& first = blocks_[head];
    SegmentSnapshot segment{.address = first.address,
                            .stream = static_cast<AllocatorStream>(first.bin / 2),
                            .is_large = (first.bin & 1) != 0,
                            .is_expandable = first.segment != kNone,
                            .blocks = {}};
    for (std::int32_t i = head; has_memory(i); i = blocks_[i].next) {
      const Block& block = blocks_[i];
      const SnapshotState state = block.state == BlockState::Allocated     ? SnapshotState::Allocated
                                  : block.state == BlockState::PendingFree ? SnapshotState::PendingFree
                                                                           : SnapshotState::Free;
      segment.blocks.push_back(
          {.address = block.address, .size = Bytes(block.size), .requested = Bytes(block.requested), .state = state});
    }
    segments.push_back(std::move(segment));
  }
  std::sort(segments.begin(), segments.end(),
            [](const SegmentSnapshot& a, const SegmentSnapshot& b) { return a.address < b.address; });
  return segments;
}

}  // namespace fsdp::simulator
