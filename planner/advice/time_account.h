#pragma once

// The parts of a step's time, and the waits of its compute stream. time_account.cpp explains how waits are
// distinguished.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.h"
#include "core/report/stream_event.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

/// The work of the compute stream, or the reason of its wait, in a part of the step.
enum class TimeUse : std::uint8_t {
  Forward,
  Recompute,  ///< For checkpointed blocks, in the backward.
  Backward,
  Copies,  ///< Into and out of the buffers of collectives, and storing or adding gradients.
  Clip,
  Optimizer,
  Collectives,  ///< Waits for collectives: exposed communication.
  Launches,     ///< Waits between its kernels: for the CPU to launch the next one, or for a copy from the host.
};
inline constexpr int kNumTimeUses = static_cast<int>(TimeUse::Launches) + 1;
/// "recomputation".
std::string_view name_of(TimeUse use);

/// Equal waits of a step.
struct Wait {
  Stream stream = Stream::AllGather;     ///< The stream that compute waits for.
  StepPhase phase = StepPhase::Unknown;  ///< The phase that issues it.
  std::string units;                     ///< "model.layers.*"; "" is the root.
  std::int64_t count = 0;
  Seconds exposed{0};  ///< The sum over all of them; likewise the times below.
  Seconds taken{0};    ///< The duration of the events that compute waits for.
  Seconds queued{0};   ///< The part of `exposed` before the event began.
  /// [streams] The streams that were at work then.
  std::array<Seconds, kNumStreams> queued_behind{};
};

struct TimeAccount {
  Seconds step{0};
  std::array<Seconds, kNumTimeUses> uses{};  ///< They add up to the step.
  /// Time of the step in which the GPU waits for the CPU to launch more, including that inside forward and backward.
  Seconds launches{0};
  std::vector<Wait> waits;  ///< The longest first; among equals, the first in the step.
};

TimeAccount account_of(const simulator::StepTimeline& timeline);

/// The same waits in another timeline: the same stream, phase and units. 0 if there are none.
Seconds exposed_of(const TimeAccount& account, const Wait& wait);

}  // namespace fsdp::planner
