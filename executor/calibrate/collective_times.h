#pragma once

// Times of collectives by themselves, and their cost for concurrent computation; copies between a host and its GPU.

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "core/base/units.h"
#include "core/cluster/machine_tables.h"
#include "executor/network/collectives.h"

namespace fsdp::executor {

struct CollectiveSettings {
  Bytes largest{0};  ///< The bytes of the whole buffer.
  c10::ScalarType gathered = c10::kFloat;
  c10::ScalarType reduced = c10::kFloat;
  c10::Device device = c10::Device(c10::kCPU);
};

/// All-gathers, reduce-scatters and all-reduces from 1 KiB to the largest. All ranks call it with the same arguments.
std::vector<WorkTimes> time_collectives(Group& group, const CollectiveSettings& settings);

/// How much longer computing takes while an all-gather runs, as a share of the all-gather's time, 0 to 1.
double compute_share(Group& group, const CollectiveSettings& settings);

/// The rates of large copies out of pinned memory and into it. REQUIRES: a GPU.
std::pair<BytesPerSecond, BytesPerSecond> time_copies(c10::Device device);

/// The host's time to start a small kernel. REQUIRES: a GPU.
Seconds time_launch(c10::Device device);

}  // namespace fsdp::executor
