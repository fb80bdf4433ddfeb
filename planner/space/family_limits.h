#pragma once

// The parts of the search space that a model refuses for all numbers of a family.

#include <optional>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/space/choice.h"

namespace fsdp::planner {

/// The reason why we cannot predict a step of several passes for a family (`passes_misfit`). `nullopt` if we can, or if
/// the model has no such step. `base`: the plan that sets the fields that a family leaves open.
std::optional<Error> misfit_of_passes(const Plan& base, const Family& family, const Model& model);

}  // namespace fsdp::planner
