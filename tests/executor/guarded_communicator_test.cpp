#include "executor/network/guarded_communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace fsdp::executor {
namespace {

using std::chrono::milliseconds;

// NOLINTNEXTLINE(performance-no-int-to-ptr): a name.
const auto kHandle = reinterpret_cast<GuardedCommunicator::Handle>(std::uintptr_t{64});

TEST(GuardedCommunicator, IsAbortedOnceAndThenNotUsed) {
  int aborts = 0;
  GuardedCommunicator communicator(kHandle, [&](GuardedCommunicator::Handle handle) {
    EXPECT_EQ(handle, kHandle);
    ++aborts;
  });
  EXPECT_TRUE(communicator.with([](GuardedCommunicator::Handle handle) { EXPECT_EQ(handle, kHandle); }));
  communicator.abort(milliseconds(1));
  communicator.abort(milliseconds(1));
  EXPECT_EQ(aborts, 1);
  EXPECT_FALSE(communicator.with([](auto) { FAIL(); }));
  communicator.with_if_free([](auto) { FAIL(); });
  EXPECT_EQ(communicator.release(), nullptr);
}

TEST(GuardedCommunicator, AbortWaitsForACallUnderWay) {
  std::atomic<bool> is_in_use = false;
  std::promise<void> entered;
  std::promise<void> leave;
  GuardedCommunicator communicator(kHandle, [&](auto) { EXPECT_FALSE(is_in_use) << "freed while a call used it"; });
  std::thread caller([&] {
    communicator.with([&](auto) {
      is_in_use = true;
      entered.set_value();
      leave.get_future().wait();
      is_in_use = false;
    });
  });
  entered.get_future().wait();
  communicator.with_if_free([](auto) { FAIL() << "another thread has it"; });
  std::thread watch([&] { communicator.abort(std::chrono::hours(1)); });
  std::this_thread::sleep_for(milliseconds(20));  // Makes it wait; the test also passes if it has not reached that
                                                  // point.
  leave.set_value();
  caller.join();
  watch.join();
}

TEST(GuardedCommunicator, AbortEndsACallThatHangs) {
  std::promise<void> entered;
  std::promise<void> aborted;
  GuardedCommunicator communicator(kHandle, [&](auto) { aborted.set_value(); });
  std::thread caller([&] {
    communicator.with([&](auto) {
      entered.set_value();
      aborted.get_future().wait();
    });
  });
  entered.get_future().wait();
  communicator.abort(milliseconds(10));
  caller.join();
}

TEST(GuardedCommunicator, ReleasedCommunicatorIsNotAborted) {
  GuardedCommunicator communicator(kHandle, [](auto) { FAIL(); });
  EXPECT_EQ(communicator.release(), kHandle);
  communicator.abort(milliseconds(1));
}

}  // namespace
}  // namespace fsdp::executor
