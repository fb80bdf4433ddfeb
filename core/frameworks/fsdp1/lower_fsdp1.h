#pragma once

// PyTorch FSDP1. The only place that knows its order of events.

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"

namespace fsdp {

Schedule lower_fsdp1(const ModelIndex& index, const Plan& plan, const Layout& layout, bool is_first_step = false);

/// The first step differs with forward_prefetch: FSDP1 does not know the order of units yet.
StepSchedules lower_fsdp1_steps(const ModelIndex& index, const Plan& plan, const Layout& layout);

}  // namespace fsdp
