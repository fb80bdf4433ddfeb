// Run this with the stub GPU preloaded, which plays the fault that the environment names.

#include "executor/network/nccl_watch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "executor/network/collectives.h"

namespace fsdp::executor {
namespace {

using std::chrono::milliseconds;

struct Called {
  explicit Called(NcclWatch& watch) {
    const cudaEvent_t begin = watch.begin(nullptr);
    float value = 0;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, communicator, nullptr), ncclSuccess);
    watch.called("all-reduce of 4 bytes", 7, nullptr, begin);
  }
  ncclComm_t communicator = [] {
    ncclComm_t made = nullptr;
    EXPECT_EQ(ncclCommInitRank(&made, 2, ncclUniqueId{}, 0), ncclSuccess);
    return made;
  }();
};

std::string failure_of(const NcclWatch& watch) {
  try {
    watch.check();
    return "";
  } catch (const CollectiveFailure& failure) {
    return failure.what();
  }
}

std::string wait_for_failure(const NcclWatch& watch) {
  while (failure_of(watch).empty()) std::this_thread::sleep_for(milliseconds(5));
  return failure_of(watch);
}

// STUB_GPU_FAULT=illegal:1: reports CUDA's error at once, and blames no other rank.
TEST(NcclWatch, DeviceErrorIsNotAMissingRank) {
  NcclWatch watch(std::chrono::hours(1), {});
  cudaLaunchKernel(nullptr, dim3(1), dim3(1), nullptr, 0, nullptr);
  const Called called(watch);
  EXPECT_EQ(wait_for_failure(watch),
            "CUDA: an illegal memory access was encountered (noticed before all-reduce of 4 bytes had ended)");
}

// STUB_GPU_FAULT=hang:1
TEST(NcclWatch, CollectiveThatHangsIsAMissingRank) {
  NcclWatch watch(milliseconds(300), {});
  const Called called(watch);
  EXPECT_EQ(wait_for_failure(watch),
            "all-reduce of 4 bytes has not ended after 0.3 s: another rank has not come to it");
}

// STUB_GPU_EVENTS=hold: the device has not reached it, because earlier work is still running.
TEST(NcclWatch, TimeoutBeginsWhenTheStreamReachesTheCollective) {
  NcclWatch watch(milliseconds(1), {});
  const Called called(watch);
  std::this_thread::sleep_for(milliseconds(500));  // Several polls; the old rule would end it at the first.
  EXPECT_EQ(failure_of(watch), "");
}

// STUB_GPU_FAULT=event:1: a collective that cannot be watched is not called.
TEST(NcclWatch, NoCollectiveStartsWithoutItsFirstEvent) {
  NcclWatch watch(std::chrono::hours(1), {});
  try {
    watch.begin(nullptr);
    FAIL() << "an event that is none was given";
  } catch (const CollectiveFailure& failure) {
    EXPECT_STREQ(failure.what(), "CUDA: no event for a collective: out of memory");
  }
}

// STUB_GPU_FAULT=event:2: the event after it fails.
TEST(NcclWatch, MissingSecondEventReportsAnUnwatchedCollective) {
  NcclWatch watch(std::chrono::hours(1), {});
  const cudaEvent_t begin = watch.begin(nullptr);
  EXPECT_THROW(watch.called("all-reduce of 4 bytes", 7, nullptr, begin), CollectiveFailure);
  const cudaEvent_t next = watch.begin(nullptr);  // The next one is watched again.
  EXPECT_NO_THROW(watch.called("all-reduce of 8 bytes", 8, nullptr, next));
}

TEST(NcclWatch, FailureOfAnotherRankAbortsCommunicators) {
  int aborts = 0;
  NcclWatch watch(std::chrono::hours(1), [] { return std::string("rank 1 has failed"); });
  const auto communicator =
      std::make_shared<GuardedCommunicator>(Called(watch).communicator, [&](GuardedCommunicator::Handle) { ++aborts; });
  watch.add(communicator);
  EXPECT_EQ(wait_for_failure(watch), "rank 1 has failed");
  while (communicator->with([](auto) {})) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_LE(aborts, 1);
}

}  // namespace
}  // namespace fsdp::executor
