#pragma once

// A communicator on which one thread calls collectives, and which another may end meanwhile, which frees it.

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <utility>

struct ncclComm;

namespace fsdp::executor {

class GuardedCommunicator {
 public:
  using Handle = ncclComm*;

  /// `abort` frees the handle, and makes kernels and calls that wait for other ranks return.
  GuardedCommunicator(Handle handle, std::function<void(Handle)> abort) : handle_(handle), abort_(std::move(abort)) {}
  GuardedCommunicator(const GuardedCommunicator&) = delete;
  GuardedCommunicator& operator=(const GuardedCommunicator&) = delete;

  /// Calls `use` with the handle, which remains valid until it returns. False, without a call, if it has ended.
  template <class Use>
  bool with(Use&& use) {
    const std::lock_guard lock(mutex_);
    if (has_ended_) return false;
    use(handle_);
    return true;
  }
  /// The same, but also without a call if another thread is using it.
  template <class Use>
  void with_if_free(Use&& use) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock && !has_ended_) use(handle_);
  }

  /// Ends it. Waits this long for a call in progress, and no longer: a call that the driver blocks, because its queue
  /// is full of kernels that wait for a dead rank, returns only when they are aborted.
  void abort(std::chrono::milliseconds patience);
  /// Passes the handle to a caller that ends it in another way. Null if it has ended.
  Handle release();

 private:
  std::timed_mutex mutex_;
  std::atomic<bool> has_ended_ = false;
  Handle handle_;
  std::function<void(Handle)> abort_;
};

}  // namespace fsdp::executor
