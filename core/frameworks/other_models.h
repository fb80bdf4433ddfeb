#pragma once

// Models beside the trained one (core/plan/other_model.h): their plans, and their place in a step.

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"

namespace fsdp {

/// The plan by which another model is held. The mesh, the policy and the code of the trained model's plan; nothing is
/// checkpointed or accumulated. Without units: a plan of one rank, which has all of it. `model`: the other one.
Plan plan_of_other(const OtherModel& other, const Model& model, const Plan& trained);

/// The other model as it is held: all parameters in one dtype, as if all were trained, and no dropout.
Model held_model(const OtherModel& other, Model model);

/// Adds the forwards of other models to each micro-batch of a step: after its inputs, or before its backward.
void place_other_models(Schedule& schedule, const Plan& plan);

/// Why the models of a plan cannot be beside the trained one, or are not predicted there, whatever its units and mesh
/// are.
Errors other_models_misfits(const Plan& plan, const Model& model);

/// The same, with the errors of the plans by which they are held. Empty if they can.
Errors check_other_models(const Plan& plan, const Model& model);

}  // namespace fsdp
