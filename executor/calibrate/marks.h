#pragma once

// Points in time of what a rank computes: of the computing thread on a CPU, of the current stream on a GPU.

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <vector>

#include "core/base/units.h"

namespace fsdp::executor {

class Marks {
 public:
  explicit Marks(c10::Device device) : device_(device) {}

  /// Forgets those before.
  void clear() { used_ = 0; }
  /// Marks the present, on whatever thread; one at a time. Returns its number.
  std::size_t mark();
  /// Waits until the device has come to the last mark.
  void wait();
  /// REQUIRES: the device has come to both.
  Seconds between(std::size_t begin, std::size_t end) const;

 private:
  c10::Device device_;
  std::size_t used_ = 0;
  std::vector<std::chrono::steady_clock::time_point> times_;  ///< On a CPU; else
  std::deque<c10::Event> events_;                             ///< used again after each clear().
};

}  // namespace fsdp::executor
