#pragma once

// Time of the collectives of a group's two communicators on their shared wire.

#include <algorithm>

#include "core/base/units.h"

namespace fsdp::simulator {

class SharedWire {
 public:
  /// `has_two`: reduce-scatters have a communicator of their own. If false, the only one has the whole wire.
  explicit SharedWire(bool has_two) : has_two_(has_two) {}

  /// Runs a collective on a communicator, and sets `communicator` to its end. It starts when it is ready and the one
  /// before it is done. Its time beyond the latency follows that of the latest one on the wire.
  void occupy(Seconds& communicator, Seconds ready, Seconds duration, Seconds latency) {
    communicator = std::max(communicator, ready) + duration;
    if (!has_two_) return;
    communicator = std::max(communicator, end_ + duration - std::min(duration, latency));
    end_ = communicator;
  }

 private:
  bool has_two_;
  Seconds end_{0};
};

}  // namespace fsdp::simulator
