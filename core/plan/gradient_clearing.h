#pragma once

#include "core/model/model.h"
#include "core/plan/schedule.h"

namespace fsdp {

/// Moves the ZeroGrad of a step to where the script of a captured model clears gradients, or takes it out where it
/// keeps them. Leaves the schedule of any other model as it is.
void place_clearing(Schedule& schedule, const Model& model);

}  // namespace fsdp
