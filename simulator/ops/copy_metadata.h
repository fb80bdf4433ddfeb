#pragma once

// The small tensors of addresses and sizes that FSDP2's fused copies send to the device.

#include <cstdint>
#include <span>

#include "core/plan/sharding.h"
#include "simulator/ops/reduction_scratch.h"

namespace fsdp::simulator {

/// Bytes for split_with_sizes_copy, which copies an all-gather's output into the parameters of a unit. `chunks` are the
/// bytes of each parameter per rank.
std::int64_t copy_out_metadata(std::span<const std::int64_t> chunks, std::int64_t num_ranks,
                               const LaunchLimits& limits);

/// Bytes for _chunk_cat, which copies gradients into the input of a reduce-scatter.
std::int64_t copy_in_metadata(const ShardedUnit& unit);

}  // namespace fsdp::simulator
