#pragma once

// Gives a plan other units and leaves the rest unchanged.

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/space/space.h"
#include "planner/space/wrapping.h"

namespace fsdp::planner {

/// True if one of the large modules outside the stacks (`Wrappables::ends`) is a unit.
bool has_ends(const Plan& plan, const Model& model, const Wrappables& wrappables);

/// The reshard setting of the first unit below the root. Defaults to Always if there are none.
ReshardAfterForward reshard_below_root(const Plan& plan);

/// The plan with units according to `wrap`, and the reshard setting that it had. `ends` has an effect only if `wrap`
/// does not name all units. Errors: those of wrapping_of and of wrapping_by_name.
Result<Plan> with_wrap(Plan plan, const Wrap& wrap, bool ends, const Model& model, const Wrappables& wrappables);

}  // namespace fsdp::planner
