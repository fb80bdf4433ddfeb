#pragma once

// From a plan and its layout to the schedules of its framework.

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// The schedule of one steady step of the plan's framework.
Schedule lower(const ModelIndex& index, const Plan& plan, const Layout& layout);

/// Both steps of the plan's framework.
StepSchedules lower_steps(const ModelIndex& index, const Plan& plan, const Layout& layout);

}  // namespace fsdp
