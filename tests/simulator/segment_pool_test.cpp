#include "simulator/allocator/segment_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "simulator/allocator/caching_allocator.h"

namespace fsdp::simulator {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kDefaultSegment = 20 * kMiB;

SegmentPool pool_of(bool is_large) {
  SegmentPool pool(is_large);
  pool.reset(kDefaultSegment);
  return pool;
}

TEST(SegmentPool, SmallRequestsShareSegmentsOfTwoMebibytes) {
  SegmentPool pool = pool_of(false);
  for (int i = 0; i < 2; ++i) pool.malloc(kMiB);  // Both halves of one.
  EXPECT_EQ(pool.reserved(), 2 * kMiB);
  pool.malloc(512);
  EXPECT_EQ(pool.reserved(), 4 * kMiB);
}

TEST(SegmentPool, LargeRequestsShareSegmentsUpToTenMebibytes) {
  SegmentPool pool = pool_of(true);
  pool.malloc(8 * kMiB);
  pool.malloc(8 * kMiB);  // 20 = 8 + 8 + 4
  EXPECT_EQ(pool.reserved(), 20 * kMiB);
  pool.malloc(11 * kMiB);  // Rounded up to 12.
  EXPECT_EQ(pool.reserved(), 32 * kMiB);
}

TEST(SegmentPool, FreeNeighborsMergeForALargerRequest) {
  SegmentPool pool = pool_of(true);
  SegmentPool::Block* const first = pool.malloc(6 * kMiB);
  SegmentPool::Block* const second = pool.malloc(6 * kMiB);
  SegmentPool::Block* const third = pool.malloc(8 * kMiB);  // Full.
  pool.free(first);
  pool.free(third);
  pool.free(second);
  pool.malloc(20 * kMiB);
  EXPECT_EQ(pool.reserved(), 20 * kMiB);
}

TEST(SegmentPool, SmallerOfTwoHolesIsUsed) {
  SegmentPool pool = pool_of(true);
  SegmentPool::Block* const wide = pool.malloc(30 * kMiB);
  SegmentPool::Block* const narrow = pool.malloc(12 * kMiB);
  pool.free(wide);
  pool.free(narrow);
  pool.malloc(11 * kMiB);  // Leaves the 30 whole; 1 MiB is not split off the 12.
  pool.malloc(30 * kMiB);
  EXPECT_EQ(pool.reserved(), 42 * kMiB);
}

TEST(SegmentPool, RemainderOfOneMebibyteStaysWithItsBlock) {
  SegmentPool pool = pool_of(true);
  pool.malloc(5 * kMiB);
  SegmentPool::Block* const middle = pool.malloc(6 * kMiB);
  SegmentPool::Block* const last = pool.malloc(9 * kMiB);
  pool.free(middle);
  pool.malloc(5 * kMiB);  // Has all 6,
  pool.free(last);
  pool.malloc(9 * kMiB + 512);  // and so 9 are left, not 10.
  EXPECT_EQ(pool.reserved(), 40 * kMiB);
}

TEST(SegmentPool, ExpandableSegmentGrowsByMissingPages) {
  SegmentPool pool(true);
  pool.reset(kDefaultSegment, true);
  pool.malloc(15 * kMiB);  // Leaves 5 of 20.
  pool.malloc(24 * kMiB);  // Lacks 19.
  EXPECT_EQ(pool.reserved(), 40 * kMiB);
}

TEST(SegmentPool, TheEndOfAnExpandableSegmentIsTheLastChoice) {
  SegmentPool pool(true);
  pool.reset(kDefaultSegment, true);
  SegmentPool::Block* const hole = pool.malloc(12 * kMiB);
  pool.malloc(2 * kMiB);  // Leaves 6.
  pool.free(hole);
  pool.malloc(4 * kMiB);   // Fits into the end, and takes the hole.
  pool.malloc(25 * kMiB);  // Lacks 19.
  EXPECT_EQ(pool.reserved(), 40 * kMiB);
}

TEST(SegmentPool, EqualAdjacentRequestsAreOneBlock) {
  SegmentPool pool = pool_of(false);
  std::vector<SegmentPool::Block*> blocks;
  pool.malloc_alike(kMiB / 2, 9, blocks);  // Four in each segment of two MiB, and one more.
  ASSERT_EQ(blocks.size(), 3U);
  EXPECT_EQ(blocks[0]->size, 2 * kMiB);
  EXPECT_EQ(blocks[2]->size, kMiB / 2);
  EXPECT_EQ(pool.reserved(), 6 * kMiB);
  for (SegmentPool::Block* const block : blocks) pool.free(block);
  for (int i = 0; i < 6; ++i) pool.malloc(kMiB);  // Whole again.
  EXPECT_EQ(pool.reserved(), 6 * kMiB);
}

// Sizes of a few kinds, so that equal blocks meet and every shelf is searched.
std::int64_t any_size(bool is_large) {
  if (!is_large) return 512 * *rc::gen::element(1, 2, 3, 16, 17, 31, 33, 512, 1000, 2047, 2048);
  return 512 * *rc::gen::oneOf(rc::gen::element(2049, 4096, 10239, 10240, 20479, 20480, 40960, 40961, 200000),
                               rc::gen::inRange(2049, 100000));
}

// 100 runs of up to 300 requests, of one tensor or of several alike, and frees.
RC_GTEST_PROP(SegmentPool, ReservesWhatTheCachingAllocatorReserves, ()) {
  const bool is_large = *rc::gen::arbitrary<bool>();
  const std::int64_t segment = *rc::gen::element(kDefaultSegment, 64 * kMiB);
  const bool expands = *rc::gen::arbitrary<bool>();
  SegmentPool pool(is_large);
  pool.reset(segment, *rc::gen::arbitrary<bool>());
  pool.malloc(any_size(is_large));  // What a run before has left must not matter.
  pool.reset(segment, expands);
  CachingAllocator allocator({.total = Bytes(std::int64_t{1} << 50)},
                             {.large_segment_size = Bytes(segment), .expandable_segments = expands});
  std::int64_t allocated = 0;
  struct Live {
    std::vector<AllocationId> ids;
    std::vector<SegmentPool::Block*> blocks;
  };
  std::vector<Live> live;
  AllocationId next_id{0};
  const int num_steps = *rc::gen::inRange(1, 300);
  for (int step = 0; step < num_steps; ++step) {
    if (!live.empty() && *rc::gen::inRange(0, 5) < 2) {
      const auto which = live.begin() + *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(live));
      for (SegmentPool::Block* const block : which->blocks) {
        allocated -= block->size;
        pool.free(block);
      }
      for (const AllocationId id : which->ids) allocator.free(id);
      live.erase(which);
    } else {
      const std::int64_t size = any_size(is_large);
      const std::int64_t count = *rc::gen::element(1, 1, 1, 2, 3, 50);
      live.emplace_back();
      if (count == 1) {
        live.back().blocks.push_back(pool.malloc(size));
      } else {
        pool.malloc_alike(size, count, live.back().blocks);
      }
      for (SegmentPool::Block* const block : live.back().blocks) allocated += block->size;
      for (std::int64_t i = 0; i < count; ++i) {
        live.back().ids.push_back(next_id);
        allocator.malloc(next_id, Bytes(size), AllocatorStream{0});
        next_id = AllocationId{static_cast<std::int32_t>(next_id) + 1};
      }
    }
    RC_ASSERT(allocated == allocator.allocated_bytes().count());
    RC_ASSERT(pool.reserved() == allocator.reserved_bytes().count());
  }
}

TEST(SegmentPool, IsNotUsedUnderUnsupportedSettings) {
  EXPECT_TRUE(pools_suffice({}));
  EXPECT_TRUE(pools_suffice({.large_segment_size = Bytes(64 * kMiB)}));
  EXPECT_FALSE(pools_suffice({.max_split_size = Bytes(64 * kMiB)}));
  EXPECT_TRUE(pools_suffice({.expandable_segments = true}));
  EXPECT_FALSE(pools_suffice({.per_process_memory_fraction = 0.5}));
  AllocatorSettings in_steps;
  in_steps.roundup_power2_divisions[3] = 4;
  EXPECT_FALSE(pools_suffice(in_steps));
}

}  // namespace
}  // namespace fsdp::simulator
