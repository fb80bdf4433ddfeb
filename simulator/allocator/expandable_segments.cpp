// Expandable segments: one long range of addresses for each stream and pool, a part of which has memory.
//
//   | a | b |  free  |        unmapped         |
//
// The range is 9/8 of the device, so it always suffices. If no free block fits, the allocator maps memory right after
// the last free block, in whole pages (2 MiB in the small pool, a large segment's size in the large one). So reserved
// memory follows the use closely, and no free blocks remain in segments of the wrong size. Returning memory takes whole
// pages out of free blocks and leaves unmapped stretches between mapped ones, which are filled first the next time.
//
// Sources: PyTorch 2.11.0, c10/cuda/CUDACachingAllocator.cpp.
//
// Not modeled: peers and memory shared between processes, which use more of the driver, but no other sizes.

#include <algorithm>
#include <cassert>

#include "core/base/rounding.h"
#include "simulator/allocator/caching_allocator.h"

namespace fsdp::simulator {

namespace {

constexpr std::int64_t kSmallPage = 2LL << 20;
/// For a device without a limit: more than any has, and short enough for a range of every stream.
constexpr std::int64_t kLongestRange = std::int64_t{1} << 43;

}  // namespace

// The size that the block can reach without a new range: the search prefers the smallest.
std::int64_t CachingAllocator::size_with_room(std::int32_t index) const {
  const Block& block = blocks_[index];
  const bool can_grow = block.next != kNone && blocks_[block.next].state == BlockState::Unmapped;
  return block.size + (can_grow ? blocks_[block.next].size : 0);
}

std::int32_t CachingAllocator::allocate_expandable(const Request& request) {
  std::int32_t index = find_expandable_room(request);
  if (index == kNone) return kNone;
  if (blocks_[index].state == BlockState::Unmapped && !map_block(index, std::min(blocks_[index].size, request.size))) {
    return kNone;
  }
  while (blocks_[index].size < request.size) {
    // The block ends at unmapped space; mapping merges both, under the index of the latter.
    const std::int32_t next = blocks_[index].next;
    if (!map_block(next, std::min(request.size - blocks_[index].size, blocks_[next].size))) return kNone;
    index = next;
  }
  FreeBlocks& free = free_[request.bin];
  free.erase(free.find(blocks_[index], index));
  return index;
}

// The first block, in order of address, of a row of free and unmapped ones that is long enough in all. kNone if the
// addresses are used up.
std::int32_t CachingAllocator::find_expandable_room(const Request& request) {
  const auto is_usable = [&](std::int32_t index) {
    return index != kNone && (blocks_[index].state == BlockState::Free || blocks_[index].state == BlockState::Unmapped);
  };
  for (const std::int32_t unmapped : unmapped_[request.bin]) {
    const std::int32_t prev = blocks_[unmapped].prev;
    const std::int32_t start = is_usable(prev) ? prev : unmapped;
    std::int64_t size = 0;
    for (std::int32_t i = start; size < request.size && is_usable(i); i = blocks_[i].next) size += blocks_[i].size;
    if (size >= request.size) return start;
  }
  return reserve_expandable_segment(request);
}

std::int32_t CachingAllocator::reserve_expandable_segment(const Request& request) {
  const std::int64_t page_size = request.is_large ? settings_.large_segment_size.count() : kSmallPage;
  const std::int64_t total = device_.total.count();
  const std::int64_t size = round_up(std::min(total + total / 8, kLongestRange), page_size);
  // A range that is as long as the device refuses a larger request by itself.
  const bool is_cut = total > kLongestRange;
  if (size == 0 || (is_cut && size < request.size) || next_address_ + size > allocator_detail::kAddressSpace)
    return kNone;
  ++driver_calls_.num_reserve;
  const std::int32_t index = new_block();
  Block& block = blocks_[index];
  block.address = next_address_;
  block.size = size;
  block.requested = 0;
  block.prev = kNone;
  block.next = kNone;
  block.segment = static_cast<std::int32_t>(expandable_segments_.size());
  block.bin = static_cast<std::uint16_t>(request.bin);
  block.state = BlockState::Unmapped;
  expandable_segments_.push_back({next_address_, size, page_size});
  next_address_ += size;
  insert_unmapped(index);
  return index;
}

// Maps the front of an unmapped block, whole pages, and merges it with its free neighbors. False if out of memory.
bool CachingAllocator::map_block(std::int32_t index, std::int64_t size) {
  const std::int64_t page_size = expandable_segments_[blocks_[index].segment].page_size;
  assert((blocks_[index].address - expandable_segments_[blocks_[index].segment].address) % page_size == 0);
  const std::int64_t num_pages = (size + page_size - 1) / page_size;
  const std::int64_t available = device_.total.count() - device_.used_by_others.count() - device_used_;
  const std::int64_t num_that_fit = std::clamp<std::int64_t>(available / page_size, 0, num_pages);
  driver_calls_.num_create += num_that_fit;
  use_device(num_that_fit * page_size);
  if (num_that_fit < num_pages) {
    // The driver maps page by page, so the first pages were made, and go back.
    use_device(-num_that_fit * page_size);
    ++driver_calls_.num_create_failed;
    return false;
  }
  const std::int64_t mapped = num_pages * page_size;
  erase_unmapped(index);
  if (mapped < blocks_[index].size) {
    const std::int32_t rest_index = new_block();
    Block& block = blocks_[index];
    Block& rest = blocks_[rest_index];
    rest.address = block.address + mapped;
    rest.size = block.size - mapped;
    rest.requested = 0;
    rest.prev = index;
    rest.next = block.next;
    rest.segment = block.segment;
    rest.bin = block.bin;
    rest.state = BlockState::Unmapped;
    if (rest.next != kNone) blocks_[rest.next].prev = rest_index;
    block.next = rest_index;
    block.size = mapped;
    insert_unmapped(rest_index);
  }
  Block& block = blocks_[index];
  const bool is_large = (block.bin & 1) != 0;
  block.state = BlockState::Free;
  merge_same_state(index, block.prev);
  merge_same_state(index, block.next);
  free_[block.bin].insert(block, index);
  reserved_bytes_.add(is_large, mapped);
  ++num_device_alloc_;
  return true;
}

// Takes the whole pages out of a free block. The rests at both ends stay free.
void CachingAllocator::unmap_block(std::int32_t index) {
  const ExpandableSegment segment = expandable_segments_[blocks_[index].segment];
  const std::int64_t offset = blocks_[index].address - segment.address;
  const std::int64_t begin = round_up(offset, segment.page_size);
  const std::int64_t end = (offset + blocks_[index].size) / segment.page_size * segment.page_size;
  if (begin >= end) return;
  FreeBlocks& free = free_[blocks_[index].bin];
  free.erase(free.find(blocks_[index], index));

  const std::int64_t before = begin - offset;
  const std::int64_t after = offset + blocks_[index].size - end;
  const bool is_large = (blocks_[index].bin & 1) != 0;
  const auto cut = [&](std::int64_t address, std::int64_t size) {
    const std::int32_t leftover_index = new_block();
    Block& leftover = blocks_[leftover_index];
    leftover.address = address;
    leftover.size = size;
    leftover.requested = 0;
    leftover.segment = blocks_[index].segment;
    leftover.bin = blocks_[index].bin;
    leftover.state = BlockState::Free;
    free.insert(leftover, leftover_index);
    return leftover_index;
  };
  if (before > 0) {
    const std::int32_t leftover = cut(segment.address + offset, before);
    blocks_[leftover].prev = blocks_[index].prev;
    blocks_[leftover].next = index;
    if (blocks_[leftover].prev != kNone) blocks_[blocks_[leftover].prev].next = leftover;
    blocks_[index].prev = leftover;
  }
  if (after > 0) {
    const std::int32_t leftover = cut(segment.address + end, after);
    blocks_[leftover].prev = index;
    blocks_[leftover].next = blocks_[index].next;
    if (blocks_[leftover].next != kNone) blocks_[blocks_[leftover].next].prev = leftover;
    blocks_[index].next = leftover;
  }
  Block& block = blocks_[index];
  block.address = segment.address + begin;
  block.size = end - begin;
  block.state = BlockState::Unmapped;
  merge_same_state(index, block.prev);
  merge_same_state(index, block.next);
  use_device(begin - end);
  driver_calls_.num_unmap += (end - begin) / segment.page_size;
  reserved_bytes_.remove(is_large, end - begin);
  ++num_device_free_;
  // An empty range goes back as well; its entry in the list of segments stays, because blocks hold indices into it.
  if (block.prev == kNone && block.next == kNone) {
    delete_block(index);
  } else {
    insert_unmapped(index);
  }
}

// For a block that is in no set at the moment; takes the neighbor out of its own.
void CachingAllocator::merge_same_state(std::int32_t index, std::int32_t neighbor) {
  if (neighbor == kNone || blocks_[neighbor].state != blocks_[index].state) return;
  if (blocks_[neighbor].state == BlockState::Free) {
    FreeBlocks& free = free_[blocks_[neighbor].bin];
    free.erase(free.find(blocks_[neighbor], neighbor));
  } else {
    erase_unmapped(neighbor);
  }
  absorb(index, neighbor);
}

void CachingAllocator::insert_unmapped(std::int32_t index) {
  std::vector<std::int32_t>& unmapped = unmapped_[blocks_[index].bin];
  const auto is_before = [&](std::int32_t a, std::int32_t b) { return blocks_[a].address < blocks_[b].address; };
  unmapped.insert(std::lower_bound(unmapped.begin(), unmapped.end(), index, is_before), index);
}

void CachingAllocator::erase_unmapped(std::int32_t index) {
  std::vector<std::int32_t>& unmapped = unmapped_[blocks_[index].bin];
  const auto place = std::find(unmapped.begin(), unmapped.end(), index);
  assert(place != unmapped.end());
  unmapped.erase(place);
}

}  // namespace fsdp::simulator
