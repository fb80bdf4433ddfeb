#pragma once

// What of the search space a model refuses, whatever the numbers of a family.

#include <optional>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/space/choice.h"

namespace fsdp::planner {

/// Why a step of several passes is not predicted in the way of a family (`passes_misfit`); nothing where it is, or
/// where the model has no such step. `base`: the plan whose other fields a family leaves as they are.
std::optional<Error> misfit_of_passes(const Plan& base, const Family& family, const Model& model);

}  // namespace fsdp::planner
