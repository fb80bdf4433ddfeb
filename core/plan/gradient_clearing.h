#pragma once

#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"

namespace fsdp {

/// Moves the ZeroGrad of a step to where the script of a captured model clears gradients, or takes it out where it or
/// the plan keeps them. Leaves any other schedule as it is.
void place_clearing(Schedule& schedule, const Model& model, const Plan& plan);

/// Whether the gradients of the step before still exist when a step begins.
bool begins_with_gradients(const Model& model, const Plan& plan);

}  // namespace fsdp
