#pragma once

// Replays a recorded list of requests in the allocator model, under chosen settings and on a chosen device.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replay/replay_recording.h"

namespace fsdp::replay {

struct ReplayRequest {
  std::string settings_text;  ///< PYTORCH_ALLOC_CONF
  simulator::AllocatorSettings settings;
  simulator::AllocatorDevice device;
};

/// A request that was refused.
struct ReplayRefusal {
  std::size_t step = 0;
  simulator::OutOfMemory failure;
};

struct ReplayResult {
  Bytes requested_peak;                ///< Bytes that the program requested.
  Bytes allocated_peak;                ///< In whole blocks.
  Bytes active_peak;                   ///< And of blocks that a stream still used.
  Bytes reserved_peak;                 ///< Reserved by the allocator.
  std::size_t reserved_peak_step = 0;  ///< The first step with that peak.
  Bytes unused_at_peak;                ///< Part of the reserved peak that is in no block in use.
  Bytes unused_peak;                   ///< The largest reserved but unused memory at any moment.
  std::int64_t num_refused = 0;
  std::optional<ReplayRefusal> first_refusal;
  /// [kReplayColumns or less] The highest value of each equal part of the steps.
  std::vector<Bytes> allocated, reserved;
  simulator::AllocatorStatistics statistics;
  simulator::DriverCalls driver_calls;
};

inline constexpr std::size_t kReplayColumns = 480;

/// The settings and the device of the recording itself.
ReplayRequest as_recorded(const Recording& recording);

ReplayResult replay(const Recording& recording, const ReplayRequest& request);

/// The highest value of each of `num_columns` equal parts; all values if there are fewer.
std::vector<Bytes> highest_of_parts(const std::vector<Bytes>& values, std::size_t num_columns);

}  // namespace fsdp::replay
