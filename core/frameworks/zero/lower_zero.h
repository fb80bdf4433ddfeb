#pragma once

// DeepSpeed's ZeRO-1 and 2. The only place that knows its order of events.

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"

namespace fsdp {

StepSchedules lower_zero(const ModelIndex& index, const Plan& plan, const Layout& layout);

}  // namespace fsdp
