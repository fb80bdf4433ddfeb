#include "executor/calibrate/marks.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace fsdp::executor {

std::size_t Marks::mark() {
  if (device_.is_cpu()) {
    times_.resize(std::max(times_.size(), used_ + 1));
    times_[used_] = std::chrono::steady_clock::now();
    return used_++;
  }
  if (used_ == events_.size()) events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  const c10::impl::VirtualGuardImpl guard(device_.type());
  events_[used_].record(guard.getStream(device_));
  return used_++;
}

void Marks::wait() {
  if (!device_.is_cpu() && used_ > 0) events_[used_ - 1].synchronize();
}

Seconds Marks::between(std::size_t begin, std::size_t end) const {
  if (device_.is_cpu()) return times_[end] - times_[begin];
  return Seconds(1e-3 * events_[begin].elapsedTime(events_[end]));
}

}  // namespace fsdp::executor
