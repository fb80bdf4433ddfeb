// One pool of one stream of the caching allocator, in isolation.
//
// A request searches only the pool of its stream and size class, and a new segment belongs to that pool for good. A
// device without a limit gets nothing back, so pools do not depend on each other: the reserved memory is the sum of
// what each reserves alone, and it only rises. A caller that needs only that sum needs no statistics, events or names
// of segments.
//
// The rules are those of caching_allocator.cpp: best fit, and the lowest address among equal sizes; the pool returns
// the front and keeps the rest if it is large enough; free neighbors merge. The free blocks are on shelves, one for
// each size below 2 MiB and sixteen for each power of two above, with a bit for each shelf that is not empty: a request
// looks on its own shelf and then takes the first block of the next filled one. Most shelves have a few blocks, so
// there is no long search or move. The latest block is on no shelf: most pairs of malloc and free cut from it and merge
// with it again. If many blocks have one size (thousands of experts), they are freed in ascending or descending order
// of address, in one stretch or alternating between two: a shelf has two marks at the latest insertions, and the search
// for a block's place starts from the nearer one.
//
// Consecutive requests of one size (the temporaries of an optimizer for thousands of equal shards) are served at once:
// the best block for the first one is cut at its front, and its rest is smaller than all others that are large enough,
// so it is the best for the next request, until it is too small. A free block does not record its origin, so adjacent
// blocks of several requests can be freed at once as well.
//
// An expandable segment grows by pages after its last block, less the size of that block if it is free. It is the last
// choice for a request that another block serves, and rests of 512 bytes are kept.
//
// Sources: simulator/allocator/caching_allocator.cpp, expandable_segments.cpp. A test compares both, step by step, on
// random requests and on whole plans.
//
// Not modeled: the settings that pools_suffice() refuses; expandable segments that return pages, or are full.

#include "simulator/allocator/segment_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdlib>
#include <memory>
#include <utility>

#include "core/base/rounding.h"
#include "simulator/allocator/allocator_sizes.h"

namespace fsdp::simulator {

namespace {

constexpr int kUnitBits = 9;    // Bits of kMinBlockSize.
constexpr int kExactBits = 12;  // Blocks of fewer units have a shelf for each size,
constexpr int kShelfBits = 4;   // larger ones sixteen for each power of two.
static_assert(kMinBlockSize == 1 << kUnitBits);

std::uint64_t bit_of(int number) {
  return std::uint64_t{1} << (number % 64);
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
  least_rest_ = is_large_ && !expands ? kMebibyte + 1 : kMinBlockSize;
  last_ = nullptr;
  reserved_ = next_address_ = 0;
  num_blocks_ = 0;
  first_unused_ = loose_ = nullptr;
  for (int shelf = next_shelf(0); shelf != kNone; shelf = next_shelf(shelf + 1)) shelf_at(shelf) = {};
  filled_ = {};
  filled_words_ = {};
}

inline int SegmentPool::shelf_of(std::int64_t size) {
  const std::uint64_t units = static_cast<std::uint64_t>(size) >> kUnitBits;
  if (units < std::uint64_t{1} << kExactBits) return static_cast<int>(units);
  const int log2 = 63 - std::countl_zero(units);
  const auto part = static_cast<int>(units >> (log2 - kShelfBits) & ((1U << kShelfBits) - 1));
  return (1 << kExactBits) + ((log2 - kExactBits) << kShelfBits) + part;
}

// The first filled one from `first` on; kNone if there is none.
inline int SegmentPool::next_shelf(int first) const {
  const int word = first / kShelvesPerWord;
  if (word >= kNumWords) return kNone;
  const std::uint64_t bits = filled_[word] & ~std::uint64_t{0} << (first % kShelvesPerWord);
  if (bits != 0) return word * kShelvesPerWord + std::countr_zero(bits);
  int half = (word + 1) / kShelvesPerWord;
  std::uint64_t words = filled_words_[half] & ~std::uint64_t{0} << ((word + 1) % kShelvesPerWord);
  if (words == 0 && half == 0) words = filled_words_[++half];
  if (words == 0) return kNone;
  const int next = half * kShelvesPerWord + std::countr_zero(words);
  return next * kShelvesPerWord + std::countr_zero(filled_[next]);
}

std::size_t SegmentPool::nearest_mark(const Shelf& shelf, const Block& of) {
  if (shelf.marks[1] == nullptr) return 0;
  if (shelf.marks[0] == nullptr) return 1;
  const auto distance = [&](const Block* mark) {
    return std::pair(mark->size != of.size, std::abs(mark->address - of.address));
  };
  return distance(shelf.marks[1]) < distance(shelf.marks[0]) ? 1 : 0;
}

void SegmentPool::put_among(Shelf& shelf, Block* block) {
  constexpr int kFar = 8;  // The number of skipped blocks from which on another stretch begins.
  const std::size_t which = nearest_mark(shelf, *block);
  Block* const mark = shelf.marks[which];
  Block* before = nullptr;
  Block* after = shelf.first;
  int passed = 0;
  if (mark != nullptr && is_before(*mark, *block)) {
    before = mark;
    after = mark->shelf_next;
  } else if (mark != nullptr) {
    before = mark->shelf_prev;
    after = mark;
    for (; before != nullptr && !is_before(*before, *block); ++passed) {
      after = before;
      before = before->shelf_prev;
    }
  }
  for (; after != nullptr && is_before(*after, *block); ++passed) {
    before = after;
    after = after->shelf_next;
  }
  shelf.marks[passed > kFar ? 1 - which : which] = block;
  block->shelf_prev = before;
  block->shelf_next = after;
  (before == nullptr ? shelf.first : before->shelf_next) = block;
  if (after != nullptr) after->shelf_prev = block;
}

inline void SegmentPool::shelve(Block* block) {
  block->shelf = shelf_of(block->size);
  Shelf& shelf = shelf_at(block->shelf);
  if (shelf.first != nullptr) return put_among(shelf, block);
  const int word = block->shelf / kShelvesPerWord;
  filled_[word] |= bit_of(block->shelf);
  filled_words_[word / kShelvesPerWord] |= bit_of(word);
  shelf.first = block;
  block->shelf_prev = block->shelf_next = nullptr;
}

// The next request or merge is likely to involve the latest block, so it stays off the shelves until another one
// replaces it.
inline void SegmentPool::put(Block* block) {
  block->shelf = kLoose;
  Block* const before = std::exchange(loose_, block);
  if (before != nullptr) shelve(before);
}

inline void SegmentPool::remove(Block* block) {
  const int number = std::exchange(block->shelf, kNowhere);
  if (number == kLoose) {
    loose_ = nullptr;
    return;
  }
  Shelf& shelf = shelf_at(number);
  for (Block*& mark : shelf.marks) {
    if (mark == block) mark = block->shelf_prev != nullptr ? block->shelf_prev : block->shelf_next;
  }
  if (block->shelf_next != nullptr) block->shelf_next->shelf_prev = block->shelf_prev;
  if (block->shelf_prev != nullptr) {
    block->shelf_prev->shelf_next = block->shelf_next;
    return;
  }
  shelf.first = block->shelf_next;
  if (block->shelf_next != nullptr) return;
  const int word = number / kShelvesPerWord;
  filled_[word] &= ~bit_of(number);
  if (filled_[word] == 0) filled_words_[word / kShelvesPerWord] &= ~bit_of(word);
}

// Moves a free block whose size or address has changed to its place, which for large blocks is mostly the same.
inline void SegmentPool::settle(Block* block) {
  if (block->shelf == kLoose) return;
  if (shelf_of(block->size) == block->shelf &&
      (block->shelf_prev == nullptr || is_before(*block->shelf_prev, *block)) &&
      (block->shelf_next == nullptr || is_before(*block, *block->shelf_next))) {
    return;
  }
  remove(block);
  put(block);
}

SegmentPool::Block* SegmentPool::add_block() {
  if (shelves_.empty()) shelves_.resize(std::size_t{kNumWords} * kShelvesPerWord);
  if (num_blocks_ == blocks_.size() * kBlocksTogether) blocks_.push_back(std::make_unique<Blocks>());
  Block* block = &(*blocks_[num_blocks_ / kBlocksTogether])[num_blocks_ % kBlocksTogether];
  ++num_blocks_;
  return block;
}

inline SegmentPool::Block* SegmentPool::new_block() {
  Block* block = first_unused_;
  if (block == nullptr) return add_block();
  first_unused_ = block->next;
  return block;
}

inline void SegmentPool::delete_block(Block* block) {
  block->next = first_unused_;
  first_unused_ = block;
}

// The next one is on no shelf.
inline void SegmentPool::absorb_next(Block* block) {
  Block* const gone = block->next;
  if (gone == last_) last_ = block;
  block->size += gone->size;
  block->next = gone->next;
  if (block->next != nullptr) block->next->prev = block;
  delete_block(gone);
}

// Among equal sizes the one with the lowest address. nullptr if no block is large enough.
inline SegmentPool::Block* SegmentPool::find_best(std::int64_t size) {
  const auto first_from = [&](int from) {
    const int next = next_shelf(from);
    return next == kNone ? nullptr : shelf_at(next).first;
  };
  const auto behind = [&](const Block& one) {
    return one.shelf_next != nullptr ? one.shelf_next : first_from(one.shelf + 1);
  };
  Block* best = first_from(shelf_of(size));
  while (best != nullptr && best->size < size) best = behind(*best);
  if (best == last_ && best != nullptr) best = behind(*best);
  if (loose_ != nullptr && loose_ != last_ && loose_->size >= size && (best == nullptr || is_before(*loose_, *best))) {
    return loose_;
  }
  if (best != nullptr || last_ == nullptr) return best;
  return last_->is_free() && last_->size >= size ? last_ : nullptr;
}

SegmentPool::Block* SegmentPool::new_segment(std::int64_t size) {
  const std::int64_t bytes = !is_large_              ? kSmallSegment
                             : size < kMinOwnSegment ? large_segment_
                                                     : round_up_to_power(size, kDriverUnit);
  Block* const block = new_block();
  *block = {.address = next_address_, .size = bytes};
  next_address_ += round_up_to_power(bytes, kDriverUnit);
  reserved_ += bytes;
  put(block);
  return block;
}

SegmentPool::Block* SegmentPool::grow(std::int64_t size) {
  const std::int64_t page = is_large_ ? large_segment_ : kSmallSegment;
  const bool has_rest = last_ != nullptr && last_->is_free();
  const std::int64_t missing = has_rest ? size - last_->size : size;
  const std::int64_t bytes = (missing + page - 1) / page * page;
  reserved_ += bytes;
  if (has_rest) {
    last_->size += bytes;
    settle(last_);
  } else {
    Block* const block = new_block();
    *block = {.address = next_address_, .size = bytes, .prev = last_};
    if (last_ != nullptr) last_->next = block;
    last_ = block;
    put(block);
  }
  next_address_ += bytes;
  return last_;
}

// A free block with room for at least one request of this size. A new one has room for all `count` if it is the end of
// an expandable segment, which takes as many pages as for single requests.
inline SegmentPool::Block* SegmentPool::find_or_make(std::int64_t size, std::int64_t count) {
  Block* const block = find_best(size);
  if (block != nullptr) return block;
  return expands_ ? grow(count * size) : new_segment(size);
}

// The first `size` bytes of a free block, and the rest if it is too small to keep apart.
inline SegmentPool::Block* SegmentPool::take_front(Block* block, std::int64_t size) {
  if (block->size - size < least_rest_) {
    remove(block);
    return block;
  }
  Block* const front = new_block();
  Block& rest = *block;
  *front = {.address = rest.address, .size = size, .prev = rest.prev, .next = block};
  if (rest.prev != nullptr) rest.prev->next = front;
  rest.prev = front;
  rest.address += size;
  rest.size -= size;
  settle(block);
  return front;
}

SegmentPool::Block* SegmentPool::malloc(std::int64_t size) {
  assert(size > 0 && size % kMinBlockSize == 0 && (size > kLargestSmall) == is_large_);
  return take_front(find_or_make(size, 1), size);
}

void SegmentPool::malloc_alike(std::int64_t size, std::int64_t count, std::vector<Block*>& blocks) {
  assert(size > 0 && size % kMinBlockSize == 0 && (size > kLargestSmall) == is_large_);
  while (count > 0) {
    Block* const block = find_or_make(size, count);
    const std::int64_t served = std::min(count, block->size / size);
    blocks.push_back(take_front(block, served * size));
    count -= served;
  }
}

void SegmentPool::free(Block* block) {
  assert(!block->is_free());
  Block* const next = block->next;
  Block* const prev = block->prev;
  const bool next_is_free = next != nullptr && next->is_free();
  if (prev != nullptr && prev->is_free()) {
    absorb_next(prev);
    if (next_is_free) {
      remove(next);
      absorb_next(prev);
    }
    return settle(prev);
  }
  if (!next_is_free) return put(block);
  Block& rest = *next;
  rest.address = block->address;
  rest.size += block->size;
  rest.prev = prev;
  if (prev != nullptr) prev->next = next;
  delete_block(block);
  settle(next);
}

void SegmentPool::give_back() {
  assert(!expands_);
  if (loose_ != nullptr) shelve(std::exchange(loose_, nullptr));
  for (int shelf = next_shelf(0); shelf != kNone; shelf = next_shelf(shelf + 1)) {
    for (Block* block = shelf_at(shelf).first; block != nullptr;) {
      Block* const next = block->shelf_next;
      if (block->prev == nullptr && block->next == nullptr) {
        reserved_ -= block->size;
        remove(block);
        delete_block(block);
      }
      block = next;
    }
  }
}

}  // namespace fsdp::simulator
