#pragma once

// A plan to look at while the best one is searched.

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// The plainest plan of a space: of what is free the first value that there is (all GPUs share each unit, a unit for
/// each block), but for checkpointing, of which it has as much as it can. It is valid, and nothing else is known of it.
/// `index`: of the model with the micro-batch. Errors: fixed choices that no plan can meet.
Result<Plan> plain_plan(const Space& space, const ModelIndex& index, const Cluster& cluster, std::int64_t micro_batch);

/// The micro-batch of that plan; 0: the workload's own. Errors: as those of batches_of.
Result<std::int64_t> plain_micro_batch(const Space& space, const Cluster& cluster);

}  // namespace fsdp::planner
