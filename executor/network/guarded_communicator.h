#pragma once

// A communicator that one thread calls collectives on, and that another may end meanwhile, which frees it.

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

  /// `abort` frees the handle, and makes kernels and calls return that wait for other ranks.
  GuardedCommunicator(Handle handle, std::function<void(Handle)> abort) : handle_(handle), abort_(std::move(abort)) {}
  GuardedCommunicator(const GuardedCommunicator&) = delete;
  GuardedCommunicator& operator=(const GuardedCommunicator&) = delete;

  /// Calls `use` with the handle, which stays until it returns. False: it has ended, and nothing was called.
  template <class Use>
  bool with(Use&& use) {
    const std::lock_guard lock(mutex_);
    if (has_ended_) return false;
    use(handle_);
    return true;
  }
  /// The same, unless another thread uses it just now: then nothing is called either.
  template <class Use>
  void with_if_free(Use&& use) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock && !has_ended_) use(handle_);
  }

  /// Ends it. A call under way is waited for this long, and no longer: one that the driver holds, because its queue is
  /// full of kernels that wait for a dead rank, returns only when they are aborted.
  void abort(std::chrono::milliseconds patience);
  /// Gives the handle to who ends it in another way. Null: it has ended.
  Handle release();

 private:
  std::timed_mutex mutex_;
  std::atomic<bool> has_ended_ = false;
  Handle handle_;
  std::function<void(Handle)> abort_;
};

}  // namespace fsdp::executor
