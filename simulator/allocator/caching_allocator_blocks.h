#pragma once

// The parts of the caching allocator model: blocks in one flat array, and the sorted sets of free blocks. Only
// simulator/allocator/caching_allocator* and simulator/allocator/expandable_segments.cpp need this file.

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp::simulator::allocator_detail {

inline constexpr std::int32_t kNone = -1;

enum class BlockState : std::uint8_t {
  Unused,       ///< A free entry of the array.
  Allocated,    ///< In use by the caller.
  PendingFree,  ///< Freed, but another stream may still use it.
  Free,
  Unmapped,  ///< Address space of an expandable segment, with no memory mapped.
};

/// A stretch of a segment. The blocks of one segment tile it without a hole and are linked in order of address.
struct alignas(64) Block {
  std::int64_t address = 0;
  std::int64_t size = 0;
  std::int64_t requested = 0;
  /// Searches of the pool before the block was freed. Used for whole plain segments only, and only a free makes one
  /// whole.
  std::int64_t idle_since = 0;
  std::int32_t prev = kNone;
  std::int32_t next = kNone;
  std::int32_t segment = kNone;      ///< Index of the expandable segment. kNone for a plain one.
  std::int32_t stream_uses = kNone;  ///< The first stream, other than its own, that uses the block.
  std::int32_t num_events = 0;
  std::uint16_t bin = 0;  ///< 2 * stream + (large ? 1 : 0)
  BlockState state = BlockState::Unused;
};
static_assert(sizeof(Block) == 64, "one cache line for each block");

/// Addresses stay below this: 512 TiB, the limit of a place among the free blocks. A driver has less.
inline constexpr std::int64_t kAddressSpace = std::int64_t{1} << 49;

/// The free blocks of one stream and pool, by size and, for equal sizes, by address.
///
/// A flat sorted array: a training step has tens to a few hundred free blocks in each pool, for which one memmove of a
/// few cache lines is faster than the pointers of a tree. A split or a merge moves an entry within the array and
/// touches only the entries between its old and its new place.
class FreeBlocks {
 public:
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  void clear() { entries_.clear(); }

  std::int32_t block(std::size_t position) const {
    return static_cast<std::int32_t>(entries_[position].place & kBlockMask);
  }

  /// The position of the smallest block of at least `size` bytes, the lowest address first; size() if there is none.
  std::size_t first_of_at_least(std::int64_t size) const {
    const Entry* base = entries_.data();
    std::size_t count = entries_.size();
    while (count > 1) {
      const std::size_t half = count / 2;
      base = base[half - 1].size < size ? base + half : base;
      count -= half;
    }
    const auto position = static_cast<std::size_t>(base - entries_.data());
    return position + static_cast<std::size_t>(count == 1 && base->size < size);
  }

  /// The position of this very block.
  std::size_t find(const Block& block, std::int32_t index) const {
    const std::size_t position = lower_bound(make_entry(block, index));
    assert(position < size() && this->block(position) == index);
    return position;
  }

  void insert(const Block& block, std::int32_t index) {
    const Entry entry = make_entry(block, index);
    const std::size_t position = lower_bound(entry);
    entries_.insert(entries_.begin() + static_cast<std::ptrdiff_t>(position), entry);
  }

  void erase(std::size_t position) { entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(position)); }

  /// erase(position), then insert(block), in one operation.
  void replace(std::size_t position, const Block& block, std::int32_t index) {
    const Entry entry = make_entry(block, index);
    Entry* entries = entries_.data();
    if (is_less(entry, entries[position])) {
      while (position > 0 && is_less(entry, entries[position - 1])) {
        entries[position] = entries[position - 1];
        --position;
      }
    } else {
      while (position + 1 < entries_.size() && is_less(entries[position + 1], entry)) {
        entries[position] = entries[position + 1];
        ++position;
      }
    }
    entries[position] = entry;
  }

 private:
  // The address in units of 512 bytes takes 40 bits, which is 512 TiB; the index takes 24.
  static constexpr int kBlockBits = 24;
  static constexpr std::uint64_t kBlockMask = (std::uint64_t{1} << kBlockBits) - 1;

  struct Entry {
    std::int64_t size;
    std::uint64_t place;  // Address first, so that the order of places is the order of addresses.
  };

  static Entry make_entry(const Block& block, std::int32_t index) {
    assert(static_cast<std::uint64_t>(index) <= kBlockMask);
    return {block.size,
            (static_cast<std::uint64_t>(block.address) >> 9) << kBlockBits | static_cast<std::uint64_t>(index)};
  }

  static bool is_less(const Entry& a, const Entry& b) {
    // One comparison of 128 bits instead of two and a choice. Sizes are never negative.
    __extension__ using Wide = unsigned __int128;
    const auto wide = [](const Entry& entry) {
      return static_cast<Wide>(static_cast<std::uint64_t>(entry.size)) << 64 | entry.place;
    };
    return wide(a) < wide(b);
  }

  std::size_t lower_bound(const Entry& entry) const {
    const Entry* base = entries_.data();
    std::size_t count = entries_.size();
    while (count > 1) {
      const std::size_t half = count / 2;
      base = is_less(base[half - 1], entry) ? base + half : base;
      count -= half;
    }
    const auto position = static_cast<std::size_t>(base - entries_.data());
    return position + static_cast<std::size_t>(count == 1 && is_less(*base, entry));
  }

  std::vector<Entry> entries_;
};

/// A quantity that goes up and down, with its peak and the sum of its rises. The falls are the difference.
struct Tally {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t total = 0;

  void add(std::int64_t amount) {
    current += amount;
    total += amount;
    peak = peak < current ? current : peak;
  }
  void remove(std::int64_t amount) { current -= amount; }
};

/// A tally for each of the two pools, and the sums of both that do not follow from these: every request pays for each
/// number.
struct PoolTally {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  Tally pools[2];  ///< [small, large]

  void add(bool is_large, std::int64_t amount) {
    pools[is_large].add(amount);
    current += amount;
    peak = peak < current ? current : peak;
  }
  void remove(bool is_large, std::int64_t amount) {
    pools[is_large].remove(amount);
    current -= amount;
  }
  Tally all() const { return {.current = current, .peak = peak, .total = pools[0].total + pools[1].total}; }
  void reset_peak() {
    peak = current;
    for (Tally& tally : pools) tally.peak = tally.current;
  }
};

}  // namespace fsdp::simulator::allocator_detail
