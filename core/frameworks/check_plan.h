#pragma once

// Whether a model can be trained by a plan.

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"

namespace fsdp {

/// All errors of a plan for this model: unknown modules, nested modules in one unit, no root, ties across
/// units, parameters that are read outside of their unit's forward, mixed dtypes in a unit, an integer reshard that
/// does not divide, bad sizes, a fused SGD, an output_dtype that no unit but the root could return, a parameter_dtype
/// that frozen parameters are not multiplied by.
Errors check(const Plan& plan, const Model& model);
/// The same for an index of the plan's own model: does not compare the fingerprint.
Errors check(const Plan& plan, const ModelIndex& index);

}  // namespace fsdp
