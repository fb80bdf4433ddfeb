#pragma once

// What --precision means for a framework, and accelerate's `mixed_precision: bf16`.

#include "core/plan/plan.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

/// Sets all dtypes of a plan for the framework.
void set_precision(Plan& plan, Precision precision, Framework framework);

/// Sets the precision that accelerate gives a framework for `mixed_precision: bf16`: float32 weights of what is
/// trained, and the rest by the framework.
void mix_as_accelerate(Plan& plan, Framework framework);

/// Whether the plan has exactly that precision, but for the dtype of its weights. `plan`: of its own framework.
bool is_mixed_as_accelerate(const Plan& plan);

}  // namespace fsdp::planner
