// What the caching allocator tells about itself: statistics and the map of its segments.

#include <algorithm>

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
