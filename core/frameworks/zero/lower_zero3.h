#pragma once

// DeepSpeed's ZeRO-3. The only place that knows its order of events.

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// The first step differs: DeepSpeed does not know the order of modules yet.
StepSchedules lower_zero3(const ModelIndex& index, const Plan& plan, const Layout& layout);

}  // namespace fsdp
