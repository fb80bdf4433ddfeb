// One pool of one stream of the caching allocator, by itself.
//
// A request looks for a free block in the pool of its stream and size class and nowhere else, and a new segment belongs
// to that pool for good. On a device without end nothing is ever given back, so what one pool does never depends on
// another: the reserved memory is the sum of what each reserves alone, and it only rises. Who asks for nothing but that
// sum needs no statistics, no events and no names of segments.
//
// The rules are those of caching_allocator.cpp: best fit, of equal sizes the lowest address; the front is handed out
// and the rest is kept if it is worth it; free neighbors melt. The free blocks stand on shelves, sixteen for each
// power of two, with a bit for each shelf that is not empty: a request looks on its own shelf and then takes the first
// block of the next one that is filled. Most shelves hold a few blocks, so nothing long is searched or moved. Where
// many are of one size (thousands of experts), they are freed in the order of their addresses or against it, in one
// stretch of them or in two by turns: a shelf has two marks where blocks were put last, and the place of a block is
// looked for from the nearer one.
//
// An expandable segment grows by pages behind its last block, and by what that one lacks where it is free. It is the
// last choice for a request that another block serves, and rests of 512 bytes are kept.
//
// Sources: simulator/allocator/caching_allocator.cpp, expandable_segments.cpp. A test compares both, step by step, on
// random requests and on whole plans.
//
// Not modeled: the settings that pools_suffice() refuses; expandable segments that give back pages, or are full.

#include "simulator/allocator/segment_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdlib>
#include <utility>

#include "core/base/rounding.h"
#include "simulator/allocator/allocator_sizes.h"

namespace fsdp::simulator {

namespace {

constexpr int kShelfBits = 4;  // Sixteen shelves for each power of two.

std::uint64_t bit_of(int shelf) {
  return std::uint64_t{1} << (shelf % 64);
}

}  // namespace

bool pools_suffice(const AllocatorSettings& settings) {
  return settings.max_split_size == kUnlimitedSplitSize && settings.per_process_memory_fraction >= 1 &&
         std::none_of(settings.roundup_power2_divisions.begin(), settings.roundup_power2_divisions.end(),
                      [](std::int64_t divisions) { return divisions > 1; });
}

void SegmentPool::reset(std::int64_t large_segment, bool expands) {
  large_segment_ = large_segment;
  expands_ = expands;
  last_ = kNone;
  reserved_ = next_address_ = 0;
  // Of a stream that nobody uses there is nothing to forget.
  if (blocks_.empty()) return;
  blocks_.clear();
  first_unused_ = kNone;
  std::fill(shelves_.begin(), shelves_.end(), kNone);
  std::fill(marks_.begin(), marks_.end(), Marks{kNone, kNone});
  filled_ = {};
}

int SegmentPool::shelf_of(std::int64_t size) {
  const auto units = static_cast<std::uint64_t>(size / kMinBlockSize);
  const int log2 = 63 - std::countl_zero(units);
  if (log2 < kShelfBits) return static_cast<int>(units);
  const int shelf = (log2 - kShelfBits + 1) << kShelfBits;
  return std::min(kNumShelves - 1, shelf + static_cast<int>(units >> (log2 - kShelfBits) & ((1U << kShelfBits) - 1)));
}

// The first filled one from `first` on; kNumShelves if there is none.
int SegmentPool::next_shelf(int first) const {
  if (first >= kNumShelves) return kNumShelves;
  auto word = static_cast<std::size_t>(first / kShelvesPerWord);
  std::uint64_t bits = filled_[word] & ~std::uint64_t{0} << (first % kShelvesPerWord);
  while (bits == 0) {
    if (++word == filled_.size()) return kNumShelves;
    bits = filled_[word];
  }
  return static_cast<int>(word) * kShelvesPerWord + std::countr_zero(bits);
}

// Of equal sizes that with the lowest address; none: no block is large enough.
std::int32_t SegmentPool::find_best(std::int64_t size) {
  const int shelf = shelf_of(size);
  std::int32_t index = first_of(shelf);
  while (index != kNone && at(index).size < size) index = at(index).shelf_next;
  const auto first_from = [&](int from) {
    const int next = next_shelf(from);
    return next == kNumShelves ? kNone : first_of(next);
  };
  if (index == kNone) index = first_from(shelf + 1);
  if (!expands_ || index != last_ || index == kNone) return index;
  const std::int32_t other = at(index).shelf_next != kNone ? at(index).shelf_next : first_from(at(index).shelf + 1);
  return other != kNone ? other : index;
}

std::size_t SegmentPool::nearest_mark(const Marks& marks, const Block& block) const {
  if (marks[1] == kNone) return 0;
  if (marks[0] == kNone) return 1;
  const auto distance = [&](std::int32_t mark) {
    const Block& other = blocks_[mark];
    return std::pair(other.size != block.size, std::abs(other.address - block.address));
  };
  return distance(marks[1]) < distance(marks[0]) ? 1 : 0;
}

void SegmentPool::put(std::int32_t index) {
  constexpr int kFar = 8;  // Blocks that were passed: another stretch begins.
  Block& block = at(index);
  const int shelf = shelf_of(block.size);
  const auto is_before = [&](const Block& other) {
    return other.size != block.size ? other.size < block.size : other.address < block.address;
  };
  if (first_of(shelf) == kNone) filled_[shelf / kShelvesPerWord] |= bit_of(shelf);
  Marks& marks = marks_[shelf];
  const std::size_t which = nearest_mark(marks, block);
  const std::int32_t mark = marks[which];
  std::int32_t before = kNone;
  std::int32_t after = first_of(shelf);
  int passed = 0;
  if (mark != kNone && is_before(at(mark))) {
    before = mark;
    after = at(mark).shelf_next;
  } else if (mark != kNone) {
    before = at(mark).shelf_prev;
    after = mark;
    for (; before != kNone && !is_before(at(before)); ++passed) {
      after = before;
      before = at(before).shelf_prev;
    }
  }
  for (; after != kNone && is_before(at(after)); ++passed) {
    before = after;
    after = at(after).shelf_next;
  }
  marks[passed > kFar ? 1 - which : which] = index;
  block.shelf = static_cast<std::int16_t>(shelf);
  block.shelf_prev = before;
  block.shelf_next = after;
  (before == kNone ? first_of(shelf) : at(before).shelf_next) = index;
  if (after != kNone) at(after).shelf_prev = index;
}

void SegmentPool::remove(std::int32_t index) {
  Block& block = at(index);
  const int shelf = std::exchange(block.shelf, kNowhere);
  for (std::int32_t& mark : marks_[shelf]) {
    if (mark == index) mark = block.shelf_prev != kNone ? block.shelf_prev : block.shelf_next;
  }
  if (block.shelf_next != kNone) at(block.shelf_next).shelf_prev = block.shelf_prev;
  if (block.shelf_prev != kNone) {
    at(block.shelf_prev).shelf_next = block.shelf_next;
    return;
  }
  first_of(shelf) = block.shelf_next;
  if (block.shelf_next == kNone) filled_[shelf / kShelvesPerWord] &= ~bit_of(shelf);
}

std::int32_t SegmentPool::malloc(std::int64_t size) {
  assert(size > 0 && size % kMinBlockSize == 0 && (size > kLargestSmall) == is_large_);
  std::int32_t index = find_best(size);
  if (index != kNone) {
    remove(index);
  } else {
    index = expands_ ? grow(size) : new_segment(size);
  }
  const std::int64_t rest = at(index).size - size;
  if (rest < (is_large_ && !expands_ ? kMebibyte + 1 : kMinBlockSize)) return index;
  const std::int32_t rest_index = new_block();
  Block& front = at(index);
  at(rest_index) = {.address = front.address + size, .size = rest, .prev = index, .next = front.next};
  if (front.next != kNone) at(front.next).prev = rest_index;
  if (index == last_) last_ = rest_index;
  front.next = rest_index;
  front.size = size;
  put(rest_index);
  return index;
}

void SegmentPool::free(std::int32_t index) {
  assert(!at(index).is_free());
  const std::int32_t next = at(index).next;
  if (next != kNone && at(next).is_free()) {
    remove(next);
    absorb_next(index);
  }
  const std::int32_t prev = at(index).prev;
  if (prev != kNone && at(prev).is_free()) {
    remove(prev);
    absorb_next(prev);
    index = prev;
  }
  put(index);
}

// The caller has taken both off their shelves.
void SegmentPool::absorb_next(std::int32_t index) {
  Block& block = at(index);
  const std::int32_t gone = block.next;
  if (gone == last_) last_ = index;
  block.size += at(gone).size;
  if (at(gone).next != kNone) at(at(gone).next).prev = at(gone).prev;
  block.next = at(gone).next;
  delete_block(gone);
}

std::int32_t SegmentPool::new_segment(std::int64_t size) {
  const std::int64_t bytes = !is_large_              ? kSmallSegment
                             : size < kMinOwnSegment ? large_segment_
                                                     : round_up_to_power(size, kDriverUnit);
  const std::int32_t index = new_block();
  at(index) = {.address = next_address_, .size = bytes};
  next_address_ += round_up_to_power(bytes, kDriverUnit);
  reserved_ += bytes;
  return index;
}

std::int32_t SegmentPool::grow(std::int64_t size) {
  const std::int64_t page = is_large_ ? large_segment_ : kSmallSegment;
  const bool has_rest = last_ != kNone && at(last_).is_free();
  const std::int64_t missing = has_rest ? size - at(last_).size : size;
  const std::int64_t bytes = (missing + page - 1) / page * page;
  reserved_ += bytes;
  if (has_rest) {
    remove(last_);
    at(last_).size += bytes;
  } else {
    const std::int32_t index = new_block();
    at(index) = {.address = next_address_, .size = bytes, .prev = last_};
    if (last_ != kNone) at(last_).next = index;
    last_ = index;
  }
  next_address_ += bytes;
  return last_;
}

std::int32_t SegmentPool::new_block() {
  if (first_unused_ == kNone) {
    blocks_.emplace_back();
    return static_cast<std::int32_t>(blocks_.size()) - 1;
  }
  const std::int32_t index = first_unused_;
  first_unused_ = at(index).next;
  return index;
}

void SegmentPool::give_back() {
  assert(!expands_);
  for (int shelf = next_shelf(0); shelf != kNumShelves; shelf = next_shelf(shelf + 1)) {
    for (std::int32_t index = first_of(shelf); index != kNone;) {
      const std::int32_t next = at(index).shelf_next;
      if (at(index).prev == kNone && at(index).next == kNone) {
        reserved_ -= at(index).size;
        remove(index);
        delete_block(index);
      }
      index = next;
    }
  }
}

void SegmentPool::delete_block(std::int32_t index) {
  at(index) = {.next = first_unused_};
  first_unused_ = index;
}

}  // namespace fsdp::simulator
