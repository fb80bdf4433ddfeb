#pragma once

// The times of a step's collectives: their calls, and the computing thread's waits for them.

#include <chrono>
#include <memory>
#include <vector>

#include "core/base/units.h"
#include "executor/network/collectives.h"

namespace fsdp::executor {

/// Times since the step began.
struct CollectiveTimes {
  Seconds called{0};
  Seconds waited_from{0};  ///< The start of the wait for it, and
  Seconds waited_to{0};    ///< the time of its result. Both 0 if nobody waited.

  bool operator==(const CollectiveTimes&) const = default;
};

/// Times of the collectives of all groups of a rank, in the order of their calls. One thread uses it.
class CollectiveClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Clears all times, and counts from `began`.
  void begin_step(Clock::time_point began);
  const std::vector<CollectiveTimes>& times() const { return times_; }

  /// Wraps `group` to record its calls and waits. REQUIRES: this clock outlives it.
  std::unique_ptr<Group> timed(std::unique_ptr<Group> group);

 private:
  class TimedGroup;
  class TimedPending;

  Seconds now() const { return Clock::now() - began_; }
  std::unique_ptr<Pending> note(std::unique_ptr<Pending> pending, Seconds called);

  Clock::time_point began_ = Clock::now();
  int step_ = 0;  // A collective of an earlier step is not in this one's list.
  std::vector<CollectiveTimes> times_;
};

}  // namespace fsdp::executor
