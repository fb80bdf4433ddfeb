#pragma once

// A plan to show during the search for the best one.

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// The plainest plan of a space: the first value of each free choice (all GPUs share each unit, a unit for each block),
/// and as much checkpointing as possible. It is valid, and nothing else is known about it. `index`: of the model with
/// the micro-batch. Errors: fixed choices that no plan can satisfy.
Result<Plan> plain_plan(const Space& space, const ModelIndex& index, const Cluster& cluster, std::int64_t micro_batch);

/// The micro-batch of that plan. 0 for the workload's own. Errors: those of batches_of.
Result<std::int64_t> plain_micro_batch(const Space& space, const Cluster& cluster);

}  // namespace fsdp::planner
