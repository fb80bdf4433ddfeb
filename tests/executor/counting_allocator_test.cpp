#include "executor/memory/counting_allocator.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "executor/memory/tensors.h"

namespace fsdp::executor {
namespace {

at::Tensor bytes(std::int64_t count) {
  return at::empty({count}, c10::kByte);
}

std::int64_t live(MemoryCategory category) {
  return live_bytes()[static_cast<std::size_t>(category)].count();
}

class CountingAllocatorTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_counting_allocator(); }
  void SetUp() override { begin_peak(); }
};

TEST_F(CountingAllocatorTest, EveryByteHasItsCategoryUntilItIsFreed) {
  const std::int64_t inputs = live(MemoryCategory::Inputs);
  const std::int64_t temporaries = live(MemoryCategory::Temp);
  {
    const CategoryScope scope(MemoryCategory::Inputs);
    const at::Tensor tensor = bytes(1000);
    EXPECT_EQ(live(MemoryCategory::Inputs) - inputs, 1000);
    recount(tensor, MemoryCategory::Temp);
    EXPECT_EQ(live(MemoryCategory::Inputs), inputs);
    EXPECT_EQ(live(MemoryCategory::Temp) - temporaries, 1000);
  }
  EXPECT_EQ(live(MemoryCategory::Temp), temporaries);
}

TEST_F(CountingAllocatorTest, ScopesNest) {
  const CategoryScope outer(MemoryCategory::Inputs);
  const std::int64_t before = live(MemoryCategory::Inputs);
  { const CategoryScope inner(MemoryCategory::Activation); }
  const at::Tensor tensor = bytes(10);
  EXPECT_EQ(live(MemoryCategory::Inputs) - before, 10);
}

TEST_F(CountingAllocatorTest, ThePeakIsTheHighestSumAndKnowsWhenItWas) {
  const std::int64_t before = live_peak().bytes.count();
  set_moment(3);
  at::Tensor first = bytes(100);
  set_moment(4);
  at::Tensor second = bytes(50);
  set_moment(5);
  first.reset();
  const at::Tensor third = bytes(60);
  EXPECT_EQ(live_peak().bytes.count() - before, 150);
  EXPECT_EQ(live_peak().moment, 4);
  begin_peak();  // 50 + 60 live
  EXPECT_EQ(live_peak().bytes.count() - before, 110);
  EXPECT_EQ(live_peak().moment, 5);
}

// The handed-over bytes of a parameter's storage are freed with the last tensor that refers to them; the storage
// allocates new memory.
TEST_F(CountingAllocatorTest, HandedOverBytesAreFreedWithTheirBorrower) {
  const CategoryScope scope(MemoryCategory::UnshardedParam);
  const std::int64_t before = live(MemoryCategory::UnshardedParam);
  const at::Tensor storage = bytes(1000);
  storage.fill_(7);
  at::Tensor borrower = borrowed(storage);
  at::Tensor saved = borrower.variable_data();
  EXPECT_EQ(live(MemoryCategory::UnshardedParam) - before, 1000);
  hand_over_storage(storage, borrower);
  borrower.reset();
  EXPECT_FALSE(is_resident(storage));
  EXPECT_EQ(live(MemoryCategory::UnshardedParam) - before, 1000);
  fill_storage(storage, 1000);
  storage.fill_(8);
  EXPECT_EQ(live(MemoryCategory::UnshardedParam) - before, 2000);
  EXPECT_EQ(saved.sum().item<std::int64_t>(), 7000);
  saved.reset();
  EXPECT_EQ(live(MemoryCategory::UnshardedParam) - before, 1000);
}

TEST_F(CountingAllocatorTest, ThreadPeakExcludesOtherThreads) {
  const ThreadPeak peak;
  std::thread([] { const at::Tensor tensor = bytes(1 << 20); }).join();
  EXPECT_EQ(peak.highest().count(), 0);
  {
    const ThreadPeak inner;
    const at::Tensor tensor = bytes(70);
    EXPECT_EQ(inner.highest().count(), 70);
    EXPECT_EQ(peak.now().count(), 70);
  }
  EXPECT_EQ(peak.highest().count(), 70);
  EXPECT_EQ(peak.now().count(), 0);
  { const at::Tensor higher = bytes(90); }
  { const ThreadPeak inner; }
  EXPECT_EQ(peak.highest().count(), 90);
}

TEST_F(CountingAllocatorTest, AListenerSeesEveryChangeInOrder) {
  std::vector<MemoryEvent> events;
  trace_memory([&](const MemoryEvent& event) { events.push_back(event); });
  { const at::Tensor tensor = bytes(42); }
  trace_memory({});
  const at::Tensor unseen = bytes(1);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].bytes, 42);
  EXPECT_EQ(events[1].bytes, -42);
  EXPECT_EQ(events[0].address, events[1].address);
}

TEST_F(CountingAllocatorTest, LimitFailsLikeAFullDeviceAndKeepsTheSum) {
  Bytes now(0);
  for (const Bytes each : live_bytes()) now += each;
  limit_memory(now + Bytes(100));
  const at::Tensor fits = bytes(100);
  const BytesByCategory before = live_bytes();
  EXPECT_ANY_THROW(bytes(1));
  EXPECT_EQ(live_bytes(), before);
  limit_memory(Bytes(0));
  EXPECT_NO_THROW(bytes(1000));
}

// Another allocator may return the same address again after it has been freed.
TEST_F(CountingAllocatorTest, AnotherAllocatorsBytesAreCountedByTheirAddress) {
  const std::int64_t before = live(MemoryCategory::Temp);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a name.
  const auto* const address = reinterpret_cast<const void*>(std::uintptr_t{4096});
  for (const std::int64_t size : {300, 200}) {
    count_allocation(address, size);
    EXPECT_EQ(live(MemoryCategory::Temp) - before, size);
    count_release(address);
    EXPECT_EQ(live(MemoryCategory::Temp), before);
  }
}

}  // namespace
}  // namespace fsdp::executor
