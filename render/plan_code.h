#pragma once

// A plan as Python: a function that wraps a model as the plan does, with PyTorch's FSDP2, FSDP1 or DDP, to paste
// into a script.

#include <string>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"

namespace fsdp::render {

/// A Python module with `apply_plan(model)`. `source`: the name of the plan's file. Errors: parts of the plan that
/// a script cannot express, each with its reason.
Result<std::string> plan_code(const Plan& plan, const Model& model, const std::string& source);

/// The same errors alone; empty if a script can express the whole plan.
Errors unsaid_of_code(const Plan& plan, const Model& model);

}  // namespace fsdp::render
