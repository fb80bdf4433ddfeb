#include "simulator/allocator/caching_allocator.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace fsdp::simulator {
namespace {

using namespace fsdp::literals;

constexpr AllocatorStream kDefault{0};
constexpr AllocatorStream kSide{1};
constexpr AllocatorSettings kExpandable{.expandable_segments = true};

AllocationId id(int number) {
  return static_cast<AllocationId>(number);
}

/// Requests one after the other, with ids from 0 up. A negative number frees: -1 the first request, -2 the second.
CachingAllocator after(const std::vector<std::int64_t>& requests, const AllocatorSettings& settings = {},
                       const AllocatorDevice& device = {}) {
  CachingAllocator allocator(device, settings);
  int next = 0;
  for (const std::int64_t request : requests) {
    if (request < 0) {
      allocator.free(id(static_cast<int>(-request - 1)));
    } else {
      allocator.malloc(id(next++), Bytes(request), kDefault);
    }
  }
  return allocator;
}

constexpr std::int64_t kMiB = 1 << 20;

struct SizeCase {
  std::vector<std::int64_t> requests;
  Bytes native_allocated, native_reserved, expandable_allocated, expandable_reserved;
};

class KnownSizes : public testing::TestWithParam<SizeCase> {};

TEST_P(KnownSizes, WithoutExpandableSegments) {
  const CachingAllocator allocator = after(GetParam().requests);
  EXPECT_EQ(allocator.allocated_bytes(), GetParam().native_allocated);
  EXPECT_EQ(allocator.reserved_bytes(), GetParam().native_reserved);
}

TEST_P(KnownSizes, WithExpandableSegments) {
  const CachingAllocator allocator = after(GetParam().requests, kExpandable);
  EXPECT_EQ(allocator.allocated_bytes(), GetParam().expandable_allocated);
  EXPECT_EQ(allocator.reserved_bytes(), GetParam().expandable_reserved);
}

std::vector<std::int64_t> many(int count, std::int64_t bytes) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(count), bytes);
}

INSTANTIATE_TEST_SUITE_P(
    CachingAllocator, KnownSizes,
    testing::Values(
        // A byte takes 512, out of a segment of 2 MiB.
        SizeCase{{1}, 512_B, 2_MiB, 512_B, 2_MiB},
        // 1 MiB is the last small size; above it segments of 20 MiB begin.
        SizeCase{{kMiB}, 1_MiB, 2_MiB, 1_MiB, 2_MiB},
        SizeCase{{kMiB + 1}, 1_MiB + 512_B, 20_MiB, 1_MiB + 512_B, 20_MiB},
        SizeCase{{10 * kMiB - 512}, 10_MiB - 512_B, 20_MiB, 10_MiB - 512_B, 20_MiB},
        // From 10 MiB on a request has its own segment, of whole 2 MiB; a page of an expandable one is 20 MiB.
        SizeCase{{10 * kMiB}, 10_MiB, 10_MiB, 10_MiB, 20_MiB},
        // 13.5 MiB: the rest of 0.5 MiB is too small to be split off. 12.25 MiB: a rest of 1.75 MiB is not.
        SizeCase{{27 * kMiB / 2}, 14_MiB, 14_MiB, Bytes(27 * kMiB / 2), 20_MiB},
        SizeCase{{49 * kMiB / 4}, Bytes(49 * kMiB / 4), 14_MiB, Bytes(49 * kMiB / 4), 20_MiB},
        // A block of 64 MiB is taken again, whole.
        SizeCase{{64 * kMiB, -1, 127 * kMiB / 2}, 64_MiB, 64_MiB, Bytes(127 * kMiB / 2), 80_MiB},
        // 2 x 8.125 MiB share 20 MiB; 32 MiB beside them. Expandable: 48.25 MiB in pages of 20.
        SizeCase{{8519680, 8519680, 32 * kMiB}, 50593792_B, 52_MiB, 50593792_B, 60_MiB},
        // Native: 4 x 30 MiB, two come back, but 55 MiB fits in neither. Expandable: their 60 MiB have become one.
        SizeCase{{30 * kMiB, 30 * kMiB, 30 * kMiB, 30 * kMiB, -2, -3, 55 * kMiB}, 116_MiB, 176_MiB, 115_MiB, 120_MiB},
        // 2049 x 512 bytes.
        SizeCase{many(2049, 4), 1049088_B, 2_MiB, 1049088_B, 2_MiB}));

TEST(CachingAllocator, AFreedBlockServesItsOwnStreamOnly) {
  for (const AllocatorSettings& settings : {AllocatorSettings{}, kExpandable}) {
    CachingAllocator allocator({}, settings);
    allocator.malloc(id(0), 8_MiB, kDefault);
    allocator.free(id(0));
    allocator.malloc(id(0), 8_MiB, AllocatorStream{7});
    EXPECT_EQ(allocator.allocated_bytes(), 8_MiB);
    EXPECT_EQ(allocator.reserved_bytes(), 40_MiB);
  }
}

TEST(CachingAllocator, NothingIsAllocatedForZeroBytes) {
  CachingAllocator allocator;
  EXPECT_EQ(allocator.malloc(id(3), 0_B, kDefault), AllocationOutcome::Empty);
  allocator.free(id(3));
  EXPECT_EQ(allocator.statistics(), CachingAllocator().statistics());
}

TEST(CachingAllocator, BestFitTakesTheLowestAddressOfEqualBlocks) {
  // Segments of 40, 30, 50 and 30 MiB at 0, 40, 70 and 120 MiB.
  CachingAllocator allocator = after({40 * kMiB, 30 * kMiB, 50 * kMiB, 30 * kMiB, -4, -3, -2, -1});
  allocator.malloc(id(0), 30_MiB, kDefault);
  EXPECT_EQ(allocator.address(id(0)), 40 * kMiB);
  allocator.malloc(id(1), 30_MiB, kDefault);
  EXPECT_EQ(allocator.address(id(1)), 120 * kMiB);
  allocator.malloc(id(2), 30_MiB, kDefault);
  EXPECT_EQ(allocator.address(id(2)), 0);
}

TEST(CachingAllocator, FreedPartsOfABlockMerge) {
  const CachingAllocator allocator = after({5 * kMiB, 5 * kMiB, 5 * kMiB, -1, -3, -2});
  const std::vector<SegmentSnapshot> expected = {
      {.address = 0,
       .stream = kDefault,
       .is_large = true,
       .is_expandable = false,
       .blocks = {{.address = 0, .size = 20_MiB, .requested = 5_MiB, .state = SnapshotState::Free}}}};
  EXPECT_EQ(allocator.snapshot(), expected);
  // The first split leaves 15 MiB, two more take 5 each; the frees add 5 and 5, and the last one ends the split.
  EXPECT_EQ(allocator.statistics().inactive_split_bytes.all,
            (AllocatorStat{.current = 0, .peak = 15 * kMiB, .allocated = 25 * kMiB, .freed = 25 * kMiB}));
}

TEST(CachingAllocator, RoundsToStepsBetweenPowersOfTwoIfConfigured) {
  AllocatorSettings settings;
  settings.roundup_power2_divisions.fill(4);
  // 4 steps between 2 and 4 MiB are 0.5 MiB each. 1200 bytes are less than 4 x 512 and keep the usual rounding.
  EXPECT_EQ(after({2 * kMiB + 1}, settings).allocated_bytes(), 2_MiB + 512_KiB);
  EXPECT_EQ(after({2 * kMiB}, settings).allocated_bytes(), 2_MiB);
  EXPECT_EQ(after({1200}, settings).allocated_bytes(), 1536_B);
}

TEST(CachingAllocator, EmptiesItsCacheBeforeItIsOutOfMemory) {
  // 60 + 30 of 100 MiB; the 60 are cached and would not serve 70.
  CachingAllocator allocator = after({60 * kMiB, 30 * kMiB, -1}, {}, {.total = 100_MiB});
  EXPECT_EQ(allocator.malloc(id(0), 70_MiB, kDefault), AllocationOutcome::Allocated);
  EXPECT_EQ(allocator.reserved_bytes(), 100_MiB);
  EXPECT_EQ(allocator.statistics().num_alloc_retries, 1);
  EXPECT_EQ(allocator.statistics().num_ooms, 0);
  EXPECT_EQ(allocator.driver_calls().num_malloc_failed, 1);
}

TEST(CachingAllocator, ReportsWhyItIsOutOfMemory) {
  CachingAllocator allocator = after({60 * kMiB}, {}, {.total = 100_MiB, .used_by_others = 30_MiB});
  EXPECT_EQ(allocator.malloc(id(1), Bytes(15 * kMiB), kDefault), AllocationOutcome::OutOfMemory);
  EXPECT_EQ(allocator.last_out_of_memory(), (OutOfMemory{.requested = 15_MiB,
                                                         .tried = 16_MiB,
                                                         .device_free = 10_MiB,
                                                         .allowed = 100_MiB,
                                                         .allocated = 60_MiB,
                                                         .reserved = 60_MiB}));
  EXPECT_EQ(allocator.statistics().num_ooms, 1);
  EXPECT_EQ(allocator.statistics().num_alloc_retries, 1);
  allocator.record_stream(id(1), kSide);
  allocator.free(id(1));
  EXPECT_EQ(allocator.allocated_bytes(), 60_MiB);
}

TEST(CachingAllocator, TheMemoryFractionLimitsWhatIsReserved) {
  CachingAllocator allocator({.total = 100_MiB}, {.per_process_memory_fraction = 0.5});
  EXPECT_EQ(allocator.malloc(id(0), 50_MiB, kDefault), AllocationOutcome::Allocated);
  EXPECT_EQ(allocator.malloc(id(1), 20_MiB, kDefault), AllocationOutcome::OutOfMemory);
  EXPECT_EQ(allocator.driver_calls().num_malloc_failed, 0) << "The device was not even asked.";
  allocator.set_memory_fraction(1);
  EXPECT_EQ(allocator.malloc(id(1), 20_MiB, kDefault), AllocationOutcome::Allocated);
}

TEST(CachingAllocator, OtherProcessesReduceTheDevice) {
  for (const AllocatorSettings& settings : {AllocatorSettings{}, kExpandable}) {
    CachingAllocator allocator({.total = 100_MiB}, settings);
    allocator.set_used_by_others(40_MiB);
    EXPECT_EQ(allocator.malloc(id(0), 70_MiB, kDefault), AllocationOutcome::OutOfMemory);
    EXPECT_EQ(allocator.malloc(id(0), 60_MiB, kDefault), AllocationOutcome::Allocated);
  }
}

TEST(RecordStream, FreedBlockStaysActiveUntilTheOtherStreamPasses) {
  CachingAllocator allocator({.progress = StreamProgress::OnDemand}, {});
  allocator.malloc(id(0), 30_MiB, kDefault);
  allocator.record_stream(id(0), kSide);
  allocator.free(id(0));
  EXPECT_EQ(allocator.allocated_bytes(), 0_B);
  EXPECT_EQ(allocator.active_bytes(), 30_MiB);

  allocator.malloc(id(1), 30_MiB, kDefault);
  EXPECT_EQ(allocator.reserved_bytes(), 60_MiB) << "The first block is not to be had yet.";

  allocator.synchronize(kSide);
  EXPECT_EQ(allocator.active_bytes(), 60_MiB) << "The next request finds out.";
  allocator.malloc(id(2), 30_MiB, kDefault);
  EXPECT_EQ(allocator.address(id(2)), 0);
  EXPECT_EQ(allocator.reserved_bytes(), 60_MiB);
}

TEST(RecordStream, EndsWhenTheStreamPassesItsEvents) {
  CachingAllocator allocator({.progress = StreamProgress::OnDemand}, {});
  for (const int number : {0, 1}) {
    allocator.malloc(id(number), 30_MiB, kDefault);
    allocator.record_stream(id(number), kSide);
  }
  allocator.free(id(0));
  allocator.free(id(1));
  allocator.advance(kSide, 1);
  allocator.malloc(id(2), 30_MiB, kDefault);
  EXPECT_EQ(allocator.address(id(2)), 0) << "In the first block; the stream is not past the second.";
  EXPECT_EQ(allocator.active_bytes(), 60_MiB);
  allocator.advance(kSide, 0);
  allocator.advance(kSide, 100);
  allocator.malloc(id(3), 30_MiB, kDefault);
  EXPECT_EQ(allocator.reserved_bytes(), 60_MiB);
}

TEST(RecordStream, CostsNothingWhenTheStreamsKeepUp) {
  CachingAllocator allocator;
  allocator.malloc(id(0), 30_MiB, kDefault);
  allocator.record_stream(id(0), kSide);
  allocator.free(id(0));
  allocator.malloc(id(0), 30_MiB, kDefault);
  EXPECT_EQ(allocator.reserved_bytes(), 30_MiB);
}

TEST(RecordStream, OnItsOwnStreamHasNoEffect) {
  CachingAllocator allocator({.progress = StreamProgress::OnDemand}, {});
  allocator.malloc(id(0), 30_MiB, kSide);
  allocator.record_stream(id(0), kSide);
  allocator.free(id(0));
  EXPECT_EQ(allocator.active_bytes(), 0_B);
}

TEST(EmptyCache, WaitsForStreamsAndKeepsSegmentsThatAreInUse) {
  CachingAllocator allocator({.progress = StreamProgress::OnDemand}, {});
  allocator.malloc(id(0), 30_MiB, kDefault);
  allocator.malloc(id(1), 5_MiB, kDefault);
  allocator.malloc(id(2), 5_MiB, kDefault);
  allocator.record_stream(id(0), kSide);
  allocator.free(id(0));
  allocator.free(id(1));
  allocator.empty_cache();
  EXPECT_EQ(allocator.active_bytes(), 5_MiB);
  EXPECT_EQ(allocator.reserved_bytes(), 20_MiB);
}

TEST(ExpandableSegments, GiveBackWholePagesFromTheMiddle) {
  // Blocks at 0, 15, 85 MiB; the pages of 20 MiB that lie wholly in the second, 20 to 80, go back.
  CachingAllocator allocator = after({15 * kMiB, 70 * kMiB, 15 * kMiB, -2}, kExpandable);
  EXPECT_EQ(allocator.reserved_bytes(), 100_MiB);
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved_bytes(), 40_MiB);
  allocator.malloc(id(1), 70_MiB, kDefault);
  EXPECT_EQ(allocator.address(id(1)), 15 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 100_MiB);
}

TEST(Settings, ChangeWhileRunning) {
  // With expandable segments on, the cached 64 MiB are still found, and cut at 512 bytes.
  CachingAllocator allocator = after({64 * kMiB, -1});
  allocator.set_settings(kExpandable);
  allocator.malloc(id(0), 63_MiB + 512_KiB, kDefault);
  EXPECT_EQ(allocator.allocated_bytes(), 63_MiB + 512_KiB);
  EXPECT_EQ(allocator.reserved_bytes(), 64_MiB);
}

TEST(Settings, BlockAboveTheLimitIsSplitOnceSegmentsExpand) {
  CachingAllocator allocator = after({64 * kMiB, -1}, {.max_split_size = 32_MiB});
  allocator.set_settings({.max_split_size = 32_MiB, .expandable_segments = true});
  allocator.malloc(id(0), 50_MiB, kDefault);
  EXPECT_EQ(allocator.block_bytes(id(0)), 50_MiB);
}

TEST(MaxSplitSize, AllowsABlockThatIsLessThanTheRoundingLarger) {
  // 24 + 20 MiB is too much for a request of 24, 42 is not.
  const AllocatorSettings settings{.max_split_size = 24_MiB};
  CachingAllocator allocator = after({44 * kMiB, -1}, settings);
  allocator.malloc(id(0), 24_MiB, kDefault);
  EXPECT_EQ(allocator.reserved_bytes(), 68_MiB);
  allocator = after({42 * kMiB, -1}, settings);
  allocator.malloc(id(0), 24_MiB, kDefault);
  EXPECT_EQ(allocator.reserved_bytes(), 42_MiB);
  EXPECT_EQ(allocator.block_bytes(id(0)), 42_MiB);
}

TEST(MaxSplitSize, GivesBackTheLargestBlocksFirstAndNoMoreThanNeeded) {
  // 44, 50 and 56 MiB are cached: 56 and 50 are more than the 60 that are wanted, and 44 stay.
  CachingAllocator allocator =
      after({44 * kMiB, 50 * kMiB, 56 * kMiB, -1, -2, -3}, {.max_split_size = 40_MiB}, {.total = 154_MiB});
  EXPECT_EQ(allocator.malloc(id(0), 60_MiB, kDefault), AllocationOutcome::Allocated);
  EXPECT_EQ(allocator.reserved_bytes(), 104_MiB);
  EXPECT_EQ(allocator.statistics().num_alloc_retries, 0);
  EXPECT_EQ(allocator.statistics().oversize_segments.current, 2);
}

TEST(MaxSplitSize, ReleasesSmallerBlocksOnlyAsALastResort) {
  // 44 MiB alone are too little for 60, so the whole cache goes.
  CachingAllocator allocator = after({44 * kMiB, 30 * kMiB, -1, -2}, {.max_split_size = 40_MiB}, {.total = 80_MiB});
  EXPECT_EQ(allocator.malloc(id(0), 60_MiB, kDefault), AllocationOutcome::Allocated);
  EXPECT_EQ(allocator.statistics().num_alloc_retries, 1);
}

TEST(CachingAllocator, TheDeviceGivesAddressesInUnitsOfTwoMebibytes) {
  CachingAllocator allocator = after({5 * kMiB, 9 * kMiB}, {.large_segment_size = 13_MiB});
  EXPECT_EQ(allocator.address(id(1)), 14 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 26_MiB);
  EXPECT_EQ(allocator.device_used_bytes(), 28_MiB);
}

struct Step {
  int choice;
  std::int64_t bytes;
  int stream;
};

rc::Gen<std::vector<Step>> any_steps() {
  return rc::gen::container<std::vector<Step>>(
      rc::gen::map(rc::gen::tuple(rc::gen::inRange(0, 100), rc::gen::inRange<std::int64_t>(1, 1 << 20),
                                  rc::gen::inRange(0, 3), rc::gen::inRange(0, 7)),
                   [](const std::tuple<int, std::int64_t, int, int>& t) {
                     return Step{std::get<0>(t), std::get<1>(t) << std::get<3>(t), std::get<2>(t)};
                   }));
}

/// Any history over 20 ids, checked against the bytes that are asked for. Returns what is live at the end.
std::map<int, std::int64_t> run(CachingAllocator& allocator, const std::vector<Step>& steps) {
  std::map<int, std::int64_t> live;
  for (const Step& step : steps) {
    const int slot = step.choice % 20;
    if (step.choice >= 97) {
      allocator.empty_cache();
    } else if (live.contains(slot)) {
      if (step.choice >= 80) allocator.record_stream(id(slot), AllocatorStream{step.stream});
      allocator.free(id(slot));
      live.erase(slot);
    } else {
      const bool is_served =
          allocator.malloc(id(slot), Bytes(step.bytes), AllocatorStream{step.stream}) == AllocationOutcome::Allocated;
      if (is_served) live[slot] = step.bytes;
    }
  }
  return live;
}

AllocatorSettings any_settings() {
  AllocatorSettings settings;
  settings.expandable_segments = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) settings.max_split_size = 24_MiB;
  if (*rc::gen::arbitrary<bool>()) settings.garbage_collection_threshold = 0.5;
  if (*rc::gen::arbitrary<bool>()) settings.per_process_memory_fraction = 0.7;
  return settings;
}

AllocatorDevice any_device() {
  return {.total = *rc::gen::arbitrary<bool>() ? 1_GiB : 80_GiB,
          .progress = *rc::gen::arbitrary<bool>() ? StreamProgress::Instant : StreamProgress::OnDemand};
}

RC_GTEST_PROP(CachingAllocator, BlocksTileTheirSegmentsAndAddUpToTheStatistics, ()) {
  CachingAllocator allocator(any_device(), any_settings());
  const std::map<int, std::int64_t> live = run(allocator, *any_steps());
  Bytes reserved{0}, allocated{0}, active{0};
  std::int64_t end = 0;
  for (const SegmentSnapshot& segment : allocator.snapshot()) {
    RC_ASSERT(segment.address >= end);
    end = segment.address;
    bool was_free = false;
    for (const BlockSnapshot& block : segment.blocks) {
      RC_ASSERT(block.address == end);
      end += block.size.count();
      reserved += block.size;
      if (block.state == SnapshotState::Allocated) allocated += block.size;
      if (block.state != SnapshotState::Free) active += block.size;
      const bool is_free = block.state == SnapshotState::Free;
      RC_ASSERT(!(was_free && is_free));
      was_free = is_free;
    }
  }
  RC_ASSERT(reserved == allocator.reserved_bytes());
  RC_ASSERT(allocated == allocator.allocated_bytes());
  RC_ASSERT(active == allocator.active_bytes());
  for (const auto& [slot, bytes] : live) RC_ASSERT(allocator.block_bytes(id(slot)).count() >= bytes);
}

RC_GTEST_PROP(CachingAllocator, EmptyingTheCacheReturnsEverything, ()) {
  CachingAllocator allocator(any_device(), any_settings());
  for (const auto& [slot, bytes] : run(allocator, *any_steps())) allocator.free(id(slot));
  allocator.empty_cache();
  RC_ASSERT(allocator.reserved_bytes() == 0_B);
  RC_ASSERT(allocator.device_used_bytes() == 0_B);
  RC_ASSERT(allocator.snapshot().empty());
}

RC_GTEST_PROP(CachingAllocator, ACopyAndAResetOneBehaveLikeTheFirst, ()) {
  const AllocatorDevice device = any_device();
  const AllocatorSettings settings = any_settings();
  const std::vector<Step> steps = *any_steps();
  CachingAllocator first(device, settings);
  run(first, steps);

  CachingAllocator used(any_device(), any_settings());
  run(used, *any_steps());
  used.reset(device, settings);
  run(used, steps);
  RC_ASSERT(used.snapshot() == first.snapshot());
  RC_ASSERT(used.statistics() == first.statistics());
  RC_ASSERT(used.driver_calls() == first.driver_calls());

  CachingAllocator copy = first;
  for (CachingAllocator* allocator : {&first, &copy}) {
    allocator->malloc(id(30), 12_MiB, kSide);
    allocator->empty_cache();
  }
  RC_ASSERT(copy.snapshot() == first.snapshot());
  RC_ASSERT(copy.statistics() == first.statistics());
}

}  // namespace
}  // namespace fsdp::simulator
