#pragma once

// Points in time of a rank's computation: on the computing thread of a CPU, or on the current stream of a GPU.

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

  /// Forgets earlier marks.
  void clear() { used_ = 0; }
  /// Marks the present, on any thread; one at a time. Returns the number of the mark.
  std::size_t mark();
  /// Waits until the device has reached the last mark.
  void wait();
  /// REQUIRES: the device has reached both.
  Seconds between(std::size_t begin, std::size_t end) const;

 private:
  c10::Device device_;
  std::size_t used_ = 0;
  std::vector<std::chrono::steady_clock::time_point> times_;  ///< On a CPU; on a GPU the
  std::deque<c10::Event> events_;                             ///< events, reused after each clear().
};

}  // namespace fsdp::executor
