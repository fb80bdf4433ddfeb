#pragma once

// Additional units that FSDP1 needs, because one flat parameter holds parameters of one kind.

#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/space/wrapping.h"

namespace fsdp::planner {

/// True if one flat parameter cannot hold all of a model, because parts of it are frozen or have another dtype. `base`:
/// the plan that sets parameter_dtype.
bool has_kinds(const Model& model, const Plan& base);

/// Adds to the units of a wrapping, including the root, units inside them for trained parameters among frozen ones, and
/// for parameters of another dtype than most of the unit: each the outermost module of one kind. peft's
/// fsdp_auto_wrap_policy does the same with adapters, and accelerate, Trainer, axolotl and LLaMA-Factory use it. Each
/// new unit precedes the unit that it is cut out of. Parameters in no module that can be a unit stay where they are.
/// REQUIRES: units of one module; others are not cut.
void wrap_apart(const Model& model, const Plan& base, Wrapping& wrapping);

}  // namespace fsdp::planner
