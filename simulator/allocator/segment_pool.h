#pragma once

// Reserved memory of one pool of one stream, and the sizes of its blocks: the caching allocator
// (simulator/allocator/caching_allocator.h) under its default settings, on a device without a limit. segment_pool.cpp
// explains why pools are independent.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/units.h"
#include "simulator/allocator/allocator_settings.h"

namespace fsdp::simulator {

/// True if a pool behaves like the caching allocator under these settings: they must not keep blocks whole, limit
/// memory, return the cache or round in steps.
bool pools_suffice(const AllocatorSettings& settings);

class SegmentPool {
  static constexpr std::int32_t kNowhere = -1;
  static constexpr std::int32_t kLoose = -2;

 public:
  /// A stretch of a segment, linked in order of address. Valid until it is freed. Callers read its size.
  struct Block {
    std::int64_t address = 0;
    std::int64_t size = 0;  ///< If it serves a request: its bytes, including a rest too small to keep apart.
    Block* prev = nullptr;
    Block* next = nullptr;
    Block* shelf_prev = nullptr;  ///< Its neighbors on the shelf while it is free.
    Block* shelf_next = nullptr;
    std::int32_t shelf = kNowhere;  ///< Its shelf while it is free, or kLoose.

    bool is_free() const { return shelf != kNowhere; }
  };

  /// The small pool serves requests up to this size.
  static constexpr std::int64_t kLargestSmall = 1 << 20;

  explicit SegmentPool(bool is_large) : is_large_(is_large) {}

  /// As after construction. `large_segment`: for requests below 10 MiB in the large pool. With `expands` the pool has
  /// one expandable segment, and the large pool's grows by `large_segment`.
  void reset(std::int64_t large_segment, bool expands = false);

  /// The block that serves the request. REQUIRES: a multiple of 512 above 0, on the pool's side of kLargestSmall.
  Block* malloc(std::int64_t size);
  void free(Block* block);

  /// `count` requests of one size, one after the other. Adds the blocks that serve them to `blocks`: adjacent ones are
  /// one block, which is freed as a whole.
  void malloc_alike(std::int64_t size, std::int64_t count, std::vector<Block*>& blocks);

  /// Returns the unused segments. REQUIRES: they are plain.
  void give_back();

  /// Falls only in give_back.
  std::int64_t reserved() const { return reserved_; }

 private:
  static constexpr int kNone = -1;
  static constexpr std::size_t kBlocksTogether = 256;
  using Blocks = std::array<Block, kBlocksTogether>;

  /// A list of free blocks of one size or, above 2 MiB, of nearly one, by size and address.
  struct Shelf {
    Block* first = nullptr;
    /// Beside the latest insertions; nullptr if there was none.
    std::array<Block*, 2> marks = {};
  };
  static constexpr int kShelvesPerWord = 64;
  static constexpr int kNumWords = 75;  ///< 64 for sizes below 2 MiB, 11 for 44 powers of two above.

  static int shelf_of(std::int64_t size);
  int next_shelf(int first) const;
  Shelf& shelf_at(int shelf) { return shelves_[static_cast<std::size_t>(shelf)]; }
  static bool is_before(const Block& one, const Block& other) {
    return one.size != other.size ? one.size < other.size : one.address < other.address;
  }
  Block* find_best(std::int64_t size);
  Block* find_or_make(std::int64_t size, std::int64_t count);
  Block* take_front(Block* block, std::int64_t size);
  /// The mark of a shelf that is likely to be near the block: of the same size, at the nearest address.
  static std::size_t nearest_mark(const Shelf& shelf, const Block& of);
  void put(Block* block);
  void shelve(Block* block);
  static void put_among(Shelf& shelf, Block* block);
  void remove(Block* block);
  void settle(Block* block);
  void absorb_next(Block* block);
  Block* new_segment(std::int64_t size);
  Block* grow(std::int64_t size);
  Block* new_block();
  Block* add_block();
  void delete_block(Block* block);

  bool is_large_;
  bool expands_ = false;
  Block* last_ = nullptr;        // For an expandable segment: its last block.
  std::int64_t least_rest_ = 0;  // The least rest that is kept apart.
  std::int64_t large_segment_ = 0;
  std::int64_t reserved_ = 0;
  std::int64_t next_address_ = 0;
  std::vector<std::unique_ptr<Blocks>> blocks_;
  std::size_t num_blocks_ = 0;     // Blocks of these in use, or ready for use.
  Block* first_unused_ = nullptr;  // Linked by `next`.
  Block* loose_ = nullptr;         // The free block that is on no shelf.
  std::vector<Shelf> shelves_;     // Empty before the first request.
  // A bit for each shelf that is not empty, and one for each word of these that is not 0.
  std::array<std::uint64_t, kNumWords> filled_{};
  std::array<std::uint64_t, 2> filled_words_{};
};

}  // namespace fsdp::simulator
