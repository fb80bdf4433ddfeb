#pragma once

// One measured step as a trace, in the lanes of the predicted one.

#include <string>

#include "core/model_index.h"
#include "core/plan.h"
#include "core/schedule.h"
#include "core/sharding.h"
#include "core/trace_json.h"
#include "executor/trainer.h"

namespace fsdp::executor {

/// What one rank did on `device` in one step. `rank` is that in the world.
Trace measured_trace(const ModelIndex& index, const Plan& plan, const Layout& layout, const Schedule& schedule,
                     const StepMeasurement& step, const std::string& device, std::int64_t rank);

}  // namespace fsdp::executor
