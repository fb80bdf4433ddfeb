#pragma once

// Plans for property tests: every field takes part, every enumerator occurs.

#include <rapidcheck.h>

#include "core/plan/plan.h"

namespace fsdp {

/// Any plan that a plan file can hold: finite numbers, sizes that are not negative.
rc::Gen<Plan> any_plan();

}  // namespace fsdp
