#pragma once

// Times of weights that FSDP2 gathers in 8 bits.

#include "core/base/units.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"
#include "simulator/nccl/collective_cost.h"
#include "simulator/time/roofline.h"

namespace fsdp::simulator {

/// The time of the casts of a unit's shards, and of the reductions of their maxima over the ranks of `cost`, beside the
/// copy that every unit makes. 0 without such weights.
Seconds float8_cast_time(const Layout& layout, const ShardedUnit& unit, const Plan& plan, const CollectiveCost& cost,
                         const ComputeCosts& costs);

/// The time of the scales that are computed after the optimizer's step. 0 if they are not.
Seconds float8_scales_time(const Layout& layout, const Plan& plan, const CollectiveCost& shard,
                           const ComputeCosts& costs);

}  // namespace fsdp::simulator
