#pragma once

// Time of the collectives of a group's two communicators on their shared wire.

#include <algorithm>

#include "core/base/units.h"

namespace fsdp::simulator {

class SharedWire {
 public:
  /// `has_two`: reduce-scatters have a communicator of their own. Else the one there is has the wire for itself.
  explicit SharedWire(bool has_two) : has_two_(has_two) {}

  /// Has a collective run on a communicator, whose end becomes its own: when it is ready and the one before it is done.
  /// Its time beyond the latency follows that of the last one on the wire.
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
