#pragma once

// A plan as Python: a function that wraps a model as the plan says, with PyTorch's FSDP2, FSDP1 or DDP, to be pasted
// into a script.

#include <string>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"

namespace fsdp::planner {

/// A module of Python with `apply_plan(model)`. `source`: the name of the plan's file. Errors: what a script cannot be
/// told, each with its reason.
Result<std::string> plan_code(const Plan& plan, const Model& model, const std::string& source);

/// The same errors alone; empty: a script can be told all of the plan.
Errors unsaid_of_code(const Plan& plan, const Model& model);

}  // namespace fsdp::planner
