#pragma once

// Other units for a plan that is given: everything else of it stays.

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/space/space.h"
#include "planner/space/wrapping.h"

namespace fsdp::planner {

/// Whether one of the large modules outside of the stacks (`Wrappables::ends`) is a unit.
bool has_ends(const Plan& plan, const Model& model, const Wrappables& wrappables);

/// How the units below the root are resharded, as the first of them is; always, where there are none.
ReshardAfterForward reshard_below_root(const Plan& plan);

/// The plan with units as `wrap` asks for, with or without the ends where it does not name all units, and resharded as
/// those that it had. Errors: those of wrapping_of and of wrapping_by_name.
Result<Plan> with_wrap(Plan plan, const Wrap& wrap, bool ends, const Model& model, const Wrappables& wrappables);

}  // namespace fsdp::planner
