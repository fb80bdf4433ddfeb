// The caching allocator of PyTorch: the handling of every request.
//
// The allocator asks the device for segments and cuts them into blocks, because cudaMalloc is slow and cudaFree stops
// the GPU. A request is rounded up to 512 bytes and served by its stream and pool:
//
//   request (rounded)        pool    segment, if a new one is needed
//   up to 1 MiB              small   2 MiB
//   up to 10 MiB             large   20 MiB
//   from 10 MiB              large   the request, rounded up to 2 MiB
//
// Best fit: the smallest free block that is large enough; among equals the one with the lowest address. The allocator
// returns its front, and the rest becomes a free block again if it is large enough: 512 bytes in the small pool, more
// than 1 MiB in the large one. So a large block may be up to 1 MiB larger than its request, and counts in full. A freed
// block merges with its free neighbors in the segment:
//
//   | a | free | b | free |   --free b-->   | a |      free      |
//
// Blocks never change their stream, and segments return to the device only when the memory runs out, or on request.
//
// Here a block is an entry of a flat array, linked to its neighbors by index, and the free blocks of each stream and
// pool are a sorted array (caching_allocator_blocks.h). No request allocates memory once the arrays have grown, and
// features that few programs use (events, expandable segments, limits) cost one well-predicted branch.
//
// Sources: PyTorch 2.11.0, c10/cuda/CUDACachingAllocator.cpp (rules and constants) and its library libc10_cuda.so,
// which was run on the traces of tests/golden/allocator and on thousands of random ones (tests/simulator/
// caching_allocator_oracle_test.cpp) and gave the same addresses, sizes and statistics after every step.
//
// Not modeled: CUDA graphs and private pools, the cudaMallocAsync backend, memory shared between processes, free-memory
// callbacks, and several threads. The addresses of a real driver differ, and among equal free blocks the lowest address
// wins: that can change reserved memory by a segment or two, seldom allocated memory. If `max_split_size` is lowered
// while larger blocks are split already, PyTorch 2.11 can stop with a CUDA error when memory runs out; here such a
// block stays. The peak of inactive_split can differ when one request ends the wait of several blocks on several
// streams, for which PyTorch has no fixed order.

#include "simulator/allocator/caching_allocator.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "core/base/rounding.h"
#include "simulator/allocator/allocator_sizes.h"

namespace fsdp::simulator {

namespace {}  // namespace

std::int64_t CachingAllocator::round_size(std::int64_t bytes) const {
  if (rounds_to_power2_) [[unlikely]] {
    const int log2 = 63 - std::countl_zero(static_cast<std::uint64_t>(bytes));
    const std::int64_t divisions = settings_.roundup_power2_divisions[std::clamp(log2 - 20, 0, 15)];
    if (divisions > 1 && bytes > kMinBlockSize * divisions) {
      return round_up_to_power(bytes, (std::int64_t{1} << log2) / divisions);
    }
  }
  return round_up_to_power(bytes, kMinBlockSize);
}

bool CachingAllocator::should_split(std::int64_t block_size, const Request& request) const {
  return block_size - request.size >= min_remainder_[request.is_large] && request.size < split_limit_;
}

AllocationOutcome CachingAllocator::malloc(AllocationId id, Bytes bytes, AllocatorStream stream) {
  assert(bytes >= Bytes(0));
  const auto slot = static_cast<std::size_t>(id);
  if (slot >= block_of_id_.size()) block_of_id_.resize(std::max(slot + 1, 2 * block_of_id_.size()), kNone);
  assert(block_of_id_[slot] == kNone);
  if (bytes == Bytes(0)) return AllocationOutcome::Empty;

  if (num_pending_events_ > 0) [[unlikely]]
    process_events();
  const std::int64_t size = round_size(bytes.count());
  const bool is_large = size > kSmallSize;
  const Request request{size, 2 * static_cast<std::int32_t>(stream) + is_large, is_large};
  if (static_cast<std::size_t>(request.bin) >= free_.size()) [[unlikely]]
    add_streams(static_cast<std::int32_t>(stream));

  FreeBlocks& free = free_[request.bin];
  const std::size_t position = careful_search_ ? find_free_carefully(request) : free.first_of_at_least(size);
  const bool is_cached = position < free.size();
  std::int32_t index = kNone;
  if (is_cached) [[likely]] {
    index = free.block(position);
  } else {
    index = allocate_from_device(request);
    if (index == kNone) {
      note_out_of_memory(bytes, request);
      return AllocationOutcome::OutOfMemory;
    }
  }

  if (should_split(blocks_[index].size, request)) {
    const std::int32_t rest = index;
    index = split_front(rest, request);
    if (is_cached) {
      free.replace(position, blocks_[rest], rest);
    } else {
      free.insert(blocks_[rest], rest);
    }
  } else {
    const Block& whole = blocks_[index];
    if (whole.segment == kNone && (whole.prev != kNone || whole.next != kNone)) {
      inactive_split_bytes_.remove(is_large, whole.size);
      inactive_split_.remove(is_large, 1);
    }
    if (is_cached) free.erase(position);
  }

  Block& block = blocks_[index];
  block.state = BlockState::Allocated;
  block.requested = bytes.count();
  block_of_id_[slot] = index;
  allocation_.add(is_large, 1);
  allocated_bytes_.add(is_large, block.size);
  active_.add(is_large, 1);
  active_bytes_.add(is_large, block.size);
  requested_bytes_.add(is_large, block.requested);
  if (block.size >= max_split_size_) [[unlikely]]
    oversize_allocations_.add(1);
  return AllocationOutcome::Allocated;
}

// The new block is the front and keeps the segment's order; the old one is the rest, which the caller adds to the free
// blocks.
std::int32_t CachingAllocator::split_front(std::int32_t index, const Request& request) {
  const std::int32_t front_index = new_block();
  Block& rest = blocks_[index];
  Block& front = blocks_[front_index];
  const bool was_split = rest.prev != kNone || rest.next != kNone;
  front.address = rest.address;
  front.size = request.size;
  front.prev = rest.prev;
  front.next = index;
  front.segment = rest.segment;
  front.bin = rest.bin;
  if (front.prev != kNone) blocks_[front.prev].next = front_index;
  rest.prev = front_index;
  rest.address += request.size;
  rest.size -= request.size;
  rest.state = BlockState::Free;
  if (rest.segment == kNone) {
    if (was_split) {
      inactive_split_bytes_.remove(request.is_large, request.size);
    } else {
      inactive_split_bytes_.add(request.is_large, rest.size);
      inactive_split_.add(request.is_large, 1);
    }
  }
  return front_index;
}

// Without the settings that lead here, the first block that is large enough is the best.
std::size_t CachingAllocator::find_free_carefully(const Request& request) {
  if (is_limited_ && settings_.garbage_collection_threshold > 0) ++num_searches_[request.is_large];
  const FreeBlocks& free = free_[request.bin];
  const auto is_expandable = [&](std::size_t position) { return blocks_[free.block(position)].segment != kNone; };
  std::size_t position = free.first_of_at_least(request.size);
  if (position == free.size()) return position;
  if (is_expandable(position)) {
    if (settings_.expandable_segments) {
      // A block that can grow counts with its maximum size, so that the end of a segment is the last choice.
      while (is_expandable(position) && position + 1 < free.size() &&
             size_with_room(free.block(position + 1)) < size_with_room(free.block(position))) {
        ++position;
      }
    } else {
      do ++position;
      while (position < free.size() && is_expandable(position));
      if (position == free.size()) return position;
    }
  }
  const std::int64_t size = blocks_[free.block(position)].size;
  if (request.size < max_split_size_ && size >= max_split_size_) return free.size();
  if (request.size >= max_split_size_ && size >= request.size + settings_.max_non_split_rounding_size.count()) {
    return free.size();
  }
  return position;
}

void CachingAllocator::free(AllocationId id) {
  const auto slot = static_cast<std::size_t>(id);
  assert(slot < block_of_id_.size());
  const std::int32_t index = block_of_id_[slot];
  if (index == kNone) return;
  block_of_id_[slot] = kNone;
  const Block& block = blocks_[index];
  const bool is_large = (block.bin & 1) != 0;
  allocation_.remove(is_large, 1);
  allocated_bytes_.remove(is_large, block.size);
  if (block.size >= max_split_size_) [[unlikely]]
    oversize_allocations_.remove(1);
  if (block.stream_uses != kNone) [[unlikely]] {
    record_events(index);
  } else {
    free_block(index);
  }
}

void CachingAllocator::free_block(std::int32_t index) {
  Block& block = blocks_[index];
  FreeBlocks& free = free_[block.bin];
  const bool is_large = (block.bin & 1) != 0;
  active_.remove(is_large, 1);
  active_bytes_.remove(is_large, block.size);
  requested_bytes_.remove(is_large, block.requested);

  // `place` is the entry of a neighbor that the merged block takes over.
  const std::size_t no_place = free.size();
  std::size_t place = no_place;
  const std::int64_t own_size = block.size;
  std::int64_t num_merged = 0;
  const std::int32_t prev = block.prev;
  if (prev != kNone && blocks_[prev].state == BlockState::Free) {
    place = free.find(blocks_[prev], prev);
    absorb(index, prev);
    ++num_merged;
  }
  const std::int32_t next = block.next;
  if (next != kNone && blocks_[next].state == BlockState::Free) {
    const std::size_t second = free.find(blocks_[next], next);
    absorb(index, next);
    ++num_merged;
    if (place != no_place) {
      free.erase(second);
      place -= static_cast<std::size_t>(second < place);
    } else {
      place = second;
    }
  }
  block.state = BlockState::Free;
  block.idle_since = num_searches_[is_large];
  if (num_merged > 0) {
    free.replace(place, block, index);
  } else {
    free.insert(block, index);
  }

  if (block.segment != kNone) return;
  const bool is_split = block.prev != kNone || block.next != kNone;
  const std::int64_t num_more = (is_split ? 1 : 0) - num_merged;
  const std::int64_t bytes_more = (is_split ? block.size : 0) - (block.size - own_size);
  if (num_more > 0) inactive_split_.add(is_large, num_more);
  if (num_more < 0) inactive_split_.remove(is_large, -num_more);
  if (bytes_more > 0) inactive_split_bytes_.add(is_large, bytes_more);
  if (bytes_more < 0) inactive_split_bytes_.remove(is_large, -bytes_more);
}

// Takes over the neighbor's bytes and links; the caller updates the sets.
void CachingAllocator::absorb(std::int32_t index, std::int32_t neighbor_index) {
  Block& block = blocks_[index];
  const Block& neighbor = blocks_[neighbor_index];
  block.size += neighbor.size;
  if (block.prev == neighbor_index) {
    block.address = neighbor.address;
    block.prev = neighbor.prev;
    if (block.prev != kNone) blocks_[block.prev].next = index;
  } else {
    block.next = neighbor.next;
    if (block.next != kNone) blocks_[block.next].prev = index;
  }
  delete_block(neighbor_index);
}

std::int32_t CachingAllocator::new_block() {
  if (first_unused_ == kNone) {
    blocks_.emplace_back();
    return static_cast<std::int32_t>(blocks_.size()) - 1;
  }
  const std::int32_t index = first_unused_;
  first_unused_ = blocks_[index].next;
  return index;
}

// Members that the creator of a new block does not set must be those of a fresh one.
void CachingAllocator::delete_block(std::int32_t index) {
  Block& block = blocks_[index];
  assert(block.stream_uses == kNone && block.num_events == 0);
  block.state = BlockState::Unused;
  block.next = first_unused_;
  first_unused_ = index;
}

const CachingAllocator::Block& CachingAllocator::block_of(AllocationId id) const {
  const std::int32_t index = block_of_id_[static_cast<std::size_t>(id)];
  assert(index != kNone);
  return blocks_[index];
}

void CachingAllocator::add_streams(std::int32_t stream) {
  // 2 * stream + 1 has to fit the block's 16 bits.
  assert(stream >= 0 && stream < (1 << 15));
  free_.resize(2 * static_cast<std::size_t>(stream) + 2);
  unmapped_.resize(free_.size());
}

}  // namespace fsdp::simulator
