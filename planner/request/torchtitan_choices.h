#pragma once

// The flavor and the CUDA graphs of torchtitan 0.3, by what a user says of them.

#include <optional>

#include "core/base/result.h"
#include "core/plan/plan.h"
#include "core/plan/runtime.h"
#include "planner/space/plan_choices.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// Sets the model code of a plan, with the habits of its training loop.
void set_flavor(Plan& plan, const Runtime& of_flavor);

/// Captures CUDA graphs if they are chosen. Then the space lacks what check() refuses beside them.
void fix_graphs(const PlanChoices& choices, Space& space);

/// Why the framework or the release has no CUDA graphs that are predicted. `nullopt` if the plan has none, or has
/// these, or if its release is unknown.
std::optional<Error> graphs_misfit(const Plan& plan, bool is_of_unknown_release);

}  // namespace fsdp::planner
