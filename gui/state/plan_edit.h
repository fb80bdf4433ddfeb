#pragma once

// Changes of a kept plan: each returns a whole new plan. check() decides whether it is valid.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/space/plan_choices.h"

namespace fsdp::gui {

/// A plan with the requested choices about plans. Errors: choices that this model and these machines cannot have, and
/// those that only a search has.
Result<Plan> with_choices(Plan plan, const planner::PlanChoices& change, const Model& model, const Cluster& cluster);

/// The mesh of a plan on another number of GPUs: more or fewer replicas if the shard group still divides it, or else
/// one shard group over all.
Mesh mesh_on(const Mesh& mesh, std::int64_t world_size);

/// Makes a module a unit of its own, or returns it to the unit around it. REQUIRES: not the root.
Plan with_unit(Plan plan, const Model& model, const std::string& module, bool is_unit);

/// Sets `reshard_after_forward` of the unit of a module.
Plan with_reshard(Plan plan, const std::string& module, ReshardAfterForward reshard);

/// Checkpoints one block.
Plan with_checkpoint(Plan plan, const std::string& module, CheckpointMode mode);

/// Checkpointing of a block under a plan.
CheckpointMode checkpoint_of(const Plan& plan, std::string_view module);

}  // namespace fsdp::gui
