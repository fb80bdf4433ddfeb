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

/// Whether a reduction has the parameter's gradient: one after the backward, or one of what the loss has made.
inline bool is_in_reduction(const ShardedParameter& p, bool of_loss) {
  return of_loss ? p.from_loss : p.receives_gradient && p.from_backward;
}

/// Bytes for _chunk_cat, which copies gradients into the input of a reduce-scatter.
std::int64_t copy_in_metadata(const ShardedUnit& unit, bool of_loss = false);

}  // namespace fsdp::simulator
