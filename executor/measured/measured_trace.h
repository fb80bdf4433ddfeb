#pragma once

// One measured step as a trace, in the lanes of the predicted one.

#include <string>

#include "core/formats/trace_json.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"
#include "executor/training/trainer.h"

namespace fsdp::executor {

/// The work of one rank on `device` in one step. `rank` is that in the world.
Trace measured_trace(const ModelIndex& index, const Plan& plan, const Layout& layout, const Schedule& schedule,
                     const StepMeasurement& step, const std::string& device, std::int64_t rank);

}  // namespace fsdp::executor
