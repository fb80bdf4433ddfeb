#pragma once

// Packed rows by what a user says of them.

#include <optional>

#include "core/base/result.h"
#include "core/plan/packing.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

/// The packing that the choices ask for; nullopt if they ask for none. Reads a file of lengths. Adds to `errors`:
/// options of packing without a row, sizes that contradict the row, and lengths that cannot be read.
std::optional<Packing> packing_of(const PlanChoices& choices, Errors& errors);

}  // namespace fsdp::planner
