#pragma once

// PyTorch FSDP2. The only place that knows its order of events.

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"

namespace fsdp {

Schedule lower_fsdp2(const ModelIndex& index, const Plan& plan, const Layout& layout);

/// The first step differs for a model with passes.
StepSchedules lower_fsdp2_steps(const ModelIndex& index, const Plan& plan, const Layout& layout);

}  // namespace fsdp
