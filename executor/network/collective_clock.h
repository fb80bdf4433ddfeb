#pragma once

// When the collectives of a step were called, and how long the computing thread stood still for each.

#include <chrono>
#include <memory>
#include <vector>

#include "core/base/units.h"
#include "executor/network/collectives.h"

namespace fsdp::executor {

/// Times since the step began.
struct CollectiveTimes {
  Seconds called{0};
  Seconds waited_from{0};  ///< When somebody began to wait for it, and
  Seconds waited_to{0};    ///< when it was there. Both 0: nobody waited.

  bool operator==(const CollectiveTimes&) const = default;
};

/// Times of the collectives of all groups of a rank, in the order of their calls. One thread uses it.
class CollectiveClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Forgets what was, and counts from `began`.
  void begin_step(Clock::time_point began);
  const std::vector<CollectiveTimes>& times() const { return times_; }

  /// `group`, whose calls and waits are noted. Outlived by this clock.
  std::unique_ptr<Group> timed(std::unique_ptr<Group> group);

 private:
  class TimedGroup;
  class TimedPending;

  Seconds now() const { return Clock::now() - began_; }
  std::unique_ptr<Pending> note(std::unique_ptr<Pending> pending, Seconds called);

  Clock::time_point began_ = Clock::now();
  int step_ = 0;  // A collective that began in an earlier step has no place in this one's list.
  std::vector<CollectiveTimes> times_;
};

}  // namespace fsdp::executor
