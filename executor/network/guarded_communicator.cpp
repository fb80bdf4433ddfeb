#include "executor/network/guarded_communicator.h"

namespace fsdp::executor {

void GuardedCommunicator::abort(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_, std::defer_lock);
  // Without the lock, a call in progress may use freed memory; without this call, it would never return.
  static_cast<void>(lock.try_lock_for(patience));
  if (!has_ended_.exchange(true)) abort_(handle_);
}

GuardedCommunicator::Handle GuardedCommunicator::release() {
  return has_ended_.exchange(true) ? nullptr : handle_;
}

}  // namespace fsdp::executor
