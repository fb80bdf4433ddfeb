#pragma once

// Where the time of a step goes, and what its compute stream waits for. time_account.cpp says how waits are told apart.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.h"
#include "core/report/stream_event.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

/// What the compute stream does, or waits for, in a part of the step.
enum class TimeUse : std::uint8_t {
  Forward,
  Recompute,  ///< For checkpointed blocks, in the backward.
  Backward,
  Copies,  ///< Into and out of the buffers of collectives, and gradients that are kept or added.
  Clip,
  Optimizer,
  Collectives,  ///< Waits for them: exposed communication.
  Launches,     ///< Waits between its kernels: for the CPU to launch the next one, or for a copy from the host.
};
inline constexpr int kNumTimeUses = static_cast<int>(TimeUse::Launches) + 1;
/// "recomputation".
std::string_view name_of(TimeUse use);

/// Equal waits of a step.
struct Wait {
  Stream stream = Stream::AllGather;     ///< What is waited for.
  StepPhase phase = StepPhase::Unknown;  ///< In which it is issued.
  std::string units;                     ///< "model.layers.*"; "" is the root.
  std::int64_t count = 0;
  Seconds exposed{0};  ///< Sum of all of them, as the times below.
  Seconds taken{0};    ///< By what is waited for.
  Seconds queued{0};   ///< The part of `exposed` before it began.
  /// [streams] Who was at work then: what it queues after.
  std::array<Seconds, kNumStreams> queued_behind{};
};

struct TimeAccount {
  Seconds step{0};
  std::array<Seconds, kNumTimeUses> uses{};  ///< They add up to the step.
  /// Time of the step in which the GPU is done before the CPU has launched more, that inside of forward and backward
  /// included.
  Seconds launches{0};
  std::vector<Wait> waits;  ///< The longest first; of equal ones, that which comes first in the step.
};

TimeAccount account_of(const simulator::StepTimeline& timeline);

/// The same waits in another timeline: the same stream, phase and units. 0: there are none.
Seconds exposed_of(const TimeAccount& account, const Wait& wait);

}  // namespace fsdp::planner
