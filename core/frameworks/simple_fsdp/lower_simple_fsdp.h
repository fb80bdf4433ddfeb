#pragma once

// SimpleFSDP. The only place that knows its order of events.

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"

namespace fsdp {

StepSchedules lower_simple_fsdp(const ModelIndex& index, const Plan& plan, const Layout& layout);

}  // namespace fsdp
