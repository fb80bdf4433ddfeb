#pragma once

// Changes of a plan that is kept: each gives a whole new plan. Whether it is valid is for check() to say.

#include <cstdint>
#include <string>
#include <string_view>

#include "command/cli_options.h"
#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"

namespace fsdp::gui {

/// What an option about the plan asks for, applied to one. Errors: those of the option's text.
Result<Plan> with_choice(const Plan& plan, planner::Option option, const std::string& text, const Model& model,
                         const Cluster& cluster);

/// The mesh of a plan on another number of GPUs: more or fewer replicas where the shard group still divides them,
/// else one shard group over all.
Mesh mesh_on(const Mesh& mesh, std::int64_t world_size);

/// The unit that has this module as one of its own; -1: none has.
int unit_of(const Plan& plan, std::string_view module);

/// Makes a module a unit of its own, or gives it back to the unit around it. REQUIRES: not the root.
Plan with_unit(Plan plan, const Model& model, const std::string& module, bool is_unit);

/// `reshard_after_forward` of the unit of a module.
Plan with_reshard(Plan plan, const std::string& module, ReshardAfterForward reshard);

/// Checkpoints one block.
Plan with_checkpoint(Plan plan, const std::string& module, CheckpointMode mode);

/// Checkpointing of a block under a plan.
CheckpointMode checkpoint_of(const Plan& plan, std::string_view module);

}  // namespace fsdp::gui
