#pragma once

// A model of PyTorch's CUDA caching allocator: which address, which block and how much reserved memory each request
// gets, on a device of a given size, without the device. caching_allocator.cpp explains how it works and what it omits.

#include <array>
#include <cstdint>
#include <vector>

#include "core/base/units.h"
#include "simulator/allocator/allocator_settings.h"
#include "simulator/allocator/caching_allocator_blocks.h"

namespace fsdp::simulator {

/// The caller's name of an allocation. Small and dense numbers, from 0: the allocator has a table of them. A number may
/// be reused after its free.
enum class AllocationId : std::int32_t {};

/// A stream. Small and dense numbers; 0 is the default stream.
enum class AllocatorStream : std::int32_t {};

/// When a stream passes an event that the allocator recorded on it. Matters for `record_stream` only.
enum class StreamProgress {
  Instant,   ///< Immediately: the GPU keeps up with the CPU.
  OnDemand,  ///< Only in `synchronize`, or when the allocator itself has to wait.
};

struct AllocatorDevice {
  Bytes total{80LL << 30};  ///< As the driver reports it.
  /// Memory used outside the allocator: context, NCCL, other processes.
  Bytes used_by_others{0};
  StreamProgress progress = StreamProgress::Instant;

  bool operator==(const AllocatorDevice&) const = default;
};

enum class AllocationOutcome {
  Allocated,
  Empty,        ///< A request of 0 bytes: no block, nothing changes.
  OutOfMemory,  ///< The id has no block; `free` and `record_stream` of it do nothing.
};

/// The reason why a request failed, in the terms of PyTorch's message.
struct OutOfMemory {
  Bytes requested{0};
  Bytes tried{0};        ///< The segment that the device refused.
  Bytes device_free{0};  ///< Free memory of the device at that moment.
  Bytes allowed{0};      ///< The limit by the memory fraction. Defaults to the device's total.
  Bytes allocated{0};
  Bytes reserved{0};

  bool operator==(const OutOfMemory&) const = default;
};

struct AllocatorStat {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;  ///< Sum of all increases.
  std::int64_t freed = 0;      ///< Sum of all decreases.

  bool operator==(const AllocatorStat&) const = default;
};

/// One statistic for both pools together and for each.
struct AllocatorStats {
  AllocatorStat all, small, large;

  bool operator==(const AllocatorStats&) const = default;
};

/// The figures of `torch.cuda.memory_stats()`, in counts and bytes.
struct AllocatorStatistics {
  AllocatorStats allocation;       ///< Live allocations.
  AllocatorStats segment;          ///< Segments from cudaMalloc; expandable segments do not count.
  AllocatorStats active;           ///< Allocated, or waiting for a stream.
  AllocatorStats inactive_split;   ///< Free blocks of split plain segments.
  AllocatorStats allocated_bytes;  ///< Sizes of blocks, not of requests.
  AllocatorStats reserved_bytes;   ///< Bytes from the device.
  AllocatorStats active_bytes;
  AllocatorStats inactive_split_bytes;
  AllocatorStats requested_bytes;      ///< Requested sizes of all active blocks.
  AllocatorStat oversize_allocations;  ///< At or above `max_split_size`.
  AllocatorStat oversize_segments;
  std::int64_t num_alloc_retries = 0;  ///< Requests that emptied the cache and asked the device again.
  std::int64_t num_ooms = 0;
  std::int64_t num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0;  ///< cudaMalloc calls and mapped ranges.
  std::int64_t num_device_free = 0;   ///< cudaFree calls and unmapped ranges.

  bool operator==(const AllocatorStatistics&) const = default;
};

/// Calls that reached the device's driver, each of which stops the CPU for microseconds to milliseconds.
struct DriverCalls {
  std::int64_t num_malloc = 0;  ///< cudaMalloc
  std::int64_t num_malloc_failed = 0;
  std::int64_t num_free = 0;    ///< cudaFree
  std::int64_t num_create = 0;  ///< cuMemCreate: pages of expandable segments.
  std::int64_t num_create_failed = 0;
  std::int64_t num_unmap = 0;    ///< cuMemUnmap, by page.
  std::int64_t num_reserve = 0;  ///< cuMemAddressReserve
  std::int64_t num_event_record = 0;
  Bytes peak_used{0};  ///< Highest use of the device's memory, in its own units of 2 MiB, without other users.

  bool operator==(const DriverCalls&) const = default;
};

enum class SnapshotState { Allocated, PendingFree, Free };

struct BlockSnapshot {
  std::int64_t address = 0;
  Bytes size{0};
  Bytes requested{0};  ///< Bytes of the last request that the block served. 0 if none.
  SnapshotState state = SnapshotState::Free;

  bool operator==(const BlockSnapshot&) const = default;
};

/// A segment from cudaMalloc, or a mapped stretch of an expandable one.
struct SegmentSnapshot {
  std::int64_t address = 0;
  AllocatorStream stream{};
  bool is_large = false;
  bool is_expandable = false;
  std::vector<BlockSnapshot> blocks;  ///< In order of address; they tile the segment.

  bool operator==(const SegmentSnapshot&) const = default;
};

/// The allocator of one device. Copies are deep and cheap (a few arrays); `reset` keeps the memory for the next run.
///
/// Addresses start at 0, rise, and are never reused.
class CachingAllocator {
 public:
  explicit CachingAllocator(const AllocatorDevice& device = {}, const AllocatorSettings& settings = {});

  /// As after construction.
  void reset(const AllocatorDevice& device, const AllocatorSettings& settings);

  /// REQUIRES: `id` is not live; `bytes` is not negative.
  AllocationOutcome malloc(AllocationId id, Bytes bytes, AllocatorStream stream);

  /// Ends the life of `id`. If other streams use the block, it stays active until they have passed this moment and the
  /// next `malloc` has noticed that. REQUIRES: `id` had a malloc.
  void free(AllocationId id);

  /// Another stream uses the block: `torch.Tensor.record_stream`.
  void record_stream(AllocationId id, AllocatorStream stream);

  /// The CPU waits for one stream, or for all: everything recorded on it so far is done.
  void synchronize(AllocatorStream stream);
  void synchronize();

  /// A stream has passed the first `num_events` events that were recorded on it.
  void advance(AllocatorStream stream, std::int64_t num_events);

  /// Returns all cached whole segments to the device: `torch.cuda.empty_cache()`.
  void empty_cache();

  /// `torch.cuda.set_per_process_memory_fraction`; 1 removes the limit. REQUIRES: fraction in [0, 1].
  void set_memory_fraction(double fraction);

  /// Changes settings at run time; `parse_allocator_settings` makes them from those in force.
  /// `per_process_memory_fraction` no longer has an effect.
  void set_settings(const AllocatorSettings& settings);
  const AllocatorSettings& settings() const { return settings_; }

  /// Changes the memory that others use on the device, for example when NCCL connects.
  void set_used_by_others(Bytes bytes) { device_.used_by_others = bytes; }

  /// Lowers every peak to the current value: `torch.cuda.reset_peak_memory_stats()`.
  void reset_peak();

  Bytes allocated_bytes() const { return Bytes(allocated_bytes_.current); }
  Bytes active_bytes() const { return Bytes(active_bytes_.current); }
  Bytes requested_bytes() const { return Bytes(requested_bytes_.current); }
  Bytes reserved_bytes() const { return Bytes(reserved_bytes_.current); }
  Bytes peak_allocated_bytes() const { return Bytes(allocated_bytes_.peak); }
  Bytes peak_reserved_bytes() const { return Bytes(reserved_bytes_.peak); }
  std::int64_t num_alloc_retries() const { return num_alloc_retries_; }
  /// Memory of the device that the allocator holds, in the driver's units of 2 MiB.
  Bytes device_used_bytes() const { return Bytes(device_used_); }

  /// The block of a live id. REQUIRES: its malloc returned Allocated, and it was not freed.
  std::int64_t address(AllocationId id) const { return block_of(id).address; }
  Bytes block_bytes(AllocationId id) const { return Bytes(block_of(id).size); }

  AllocatorStatistics statistics() const;
  const DriverCalls& driver_calls() const { return driver_calls_; }
  /// The last request that failed.
  const OutOfMemory& last_out_of_memory() const { return out_of_memory_; }
  /// All segments, in order of address.
  std::vector<SegmentSnapshot> snapshot() const;

 private:
  using Block = allocator_detail::Block;
  using BlockState = allocator_detail::BlockState;
  using FreeBlocks = allocator_detail::FreeBlocks;
  using PoolTally = allocator_detail::PoolTally;
  using Tally = allocator_detail::Tally;
  static constexpr std::int32_t kNone = allocator_detail::kNone;

  struct Request {
    std::int64_t size;  ///< Rounded.
    std::int32_t bin;
    bool is_large;
  };
  struct StreamUse {
    std::int32_t stream;
    std::int32_t next;
  };
  /// Events of one stream that are not known to be done: blocks, oldest first.
  struct EventQueue {
    std::vector<std::int32_t> blocks;
    std::size_t first = 0;           ///< Entries before it are done.
    std::int64_t num_recorded = 0;   ///< Events ever recorded on the stream.
    std::int64_t num_completed = 0;  ///< The number of these that the stream has passed.
  };
  struct ExpandableSegment {
    std::int64_t address;
    std::int64_t size;
    std::int64_t page_size;
  };

  // caching_allocator.cpp: the path of every request.
  std::int64_t round_size(std::int64_t bytes) const;
  std::size_t find_free_carefully(const Request& request);
  bool should_split(std::int64_t block_size, const Request& request) const;
  std::int32_t split_front(std::int32_t index, const Request& request);
  void free_block(std::int32_t index);
  void absorb(std::int32_t index, std::int32_t neighbor);
  std::int32_t new_block();
  void delete_block(std::int32_t index);
  const Block& block_of(AllocationId id) const;
  void add_streams(std::int32_t stream);

  // caching_allocator_device.cpp: segments from and to the device, streams, settings.
  void apply_settings();
  std::int64_t segment_size(const Request& request) const;
  std::int32_t allocate_from_device(const Request& request);
  std::int32_t allocate_segment(const Request& request);
  std::int32_t device_malloc(const Request& request, std::int64_t size);
  void use_device(std::int64_t bytes);
  void release_segment(std::int32_t index);
  bool release_oversize_blocks(const Request& request);
  void release_cached_blocks();
  void release_bin(std::size_t bin);
  void collect_garbage();
  void note_out_of_memory(Bytes requested, const Request& request);
  void record_events(std::int32_t index);
  void process_events();
  void finish_all_events();
  void finish_event(std::int32_t index);

  // expandable_segments.cpp
  std::int32_t allocate_expandable(const Request& request);
  std::int32_t find_expandable_room(const Request& request);
  std::int32_t reserve_expandable_segment(const Request& request);
  bool map_block(std::int32_t index, std::int64_t size);
  void unmap_block(std::int32_t index);
  void merge_same_state(std::int32_t index, std::int32_t neighbor);
  void insert_unmapped(std::int32_t index);
  void erase_unmapped(std::int32_t index);
  std::int64_t size_with_room(std::int32_t index) const;

  // Hot.
  std::vector<Block> blocks_;
  std::vector<std::int32_t> block_of_id_;
  std::vector<FreeBlocks> free_;  ///< [bin]
  std::int32_t first_unused_ = kNone;
  std::int64_t num_pending_events_ = 0;
  std::int64_t min_remainder_[2] = {};  ///< [small, large] A smaller rest is not split off.
  std::int64_t split_limit_ = 0;        ///< Requests of this size and above are not split.
  std::int64_t max_split_size_ = 0;
  std::int64_t num_searches_[2] = {};  ///< [small, large] Counted while garbage collection is on.
  bool rounds_to_power2_ = false;
  bool careful_search_ = false;  ///< True if the first block that is large enough may not be the best.
  PoolTally allocation_, active_, inactive_split_;
  PoolTally allocated_bytes_, active_bytes_, requested_bytes_, inactive_split_bytes_;

  // Rare.
  AllocatorSettings settings_;
  AllocatorDevice device_;
  PoolTally segment_, reserved_bytes_;
  Tally oversize_allocations_, oversize_segments_;
  std::int64_t num_alloc_retries_ = 0;
  std::int64_t num_ooms_ = 0;
  std::int64_t num_sync_all_streams_ = 0;
  std::int64_t num_device_alloc_ = 0;
  std::int64_t num_device_free_ = 0;
  std::int64_t next_address_ = 0;
  std::int64_t device_used_ = 0;
  std::int64_t allowed_ = 0;  ///< Limit of reserved bytes by the memory fraction.
  bool is_limited_ = false;
  DriverCalls driver_calls_;
  OutOfMemory out_of_memory_;
  std::vector<std::vector<std::int32_t>> unmapped_;  ///< [bin], by address.
  std::vector<ExpandableSegment> expandable_segments_;
  std::vector<EventQueue> events_;  ///< [stream]
  std::vector<StreamUse> stream_uses_;
  std::int32_t first_unused_stream_use_ = kNone;
};

}  // namespace fsdp::simulator
