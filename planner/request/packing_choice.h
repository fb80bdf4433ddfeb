#pragma once

// Packed rows by what a user says of them.

#include <optional>

#include "core/base/result.h"
#include "core/spec/model_spec.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

/// Whether a micro-batch is one packed row, whatever `batch` says.
bool is_packed_to_one_row(const PlanChoices& choices);

/// Sets the packing and the sizes of the row that the choices ask for, if they do. Reads a file of lengths. Adds to
/// `errors`: options of packing without a row, sizes that contradict the row, and lengths that cannot be read.
void pack(const PlanChoices& choices, Workload& workload, Errors& errors);

}  // namespace fsdp::planner
