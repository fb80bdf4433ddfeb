#include "planner/space/rewrap.h"

#include <algorithm>

#include "planner/space/families.h"
#include "planner/space/wrap_policy.h"

namespace fsdp::planner {

bool has_ends(const Plan& plan, const Model& model, const Wrappables& wrappables) {
  return std::any_of(wrappables.ends.begin(), wrappables.ends.end(),
                     [&](int end) { return unit_of(plan, model.modules[end].name) >= 0; });
}

ReshardAfterForward reshard_below_root(const Plan& plan) {
  for (const Unit& unit : plan.units) {
    if (!is_root(unit)) return unit.reshard_after_forward;
  }
  return {ReshardAfterForward::Kind::Always, 0};
}

Result<Plan> with_wrap(Plan plan, const Wrap& wrap, bool ends, const Model& model, const Wrappables& wrappables) {
  if (plan.mesh.ep > 1) return plan;  // transformers decides its units.
  Wrapping wrapping;
  if (names_units(wrap)) {
    FSDP_TRY(wrapping, wrapping_by_name(model, wrap));
  } else {
    FSDP_TRY(wrapping, wrapping_of(model, wrappables, wrap, ends, false));
  }
  const ReshardAfterForward reshard = reshard_below_root(plan);
  plan.units = units_of(wrapping, {.reshard = reshard.kind, .reshard_world_size = reshard.world_size}, 0);
  return plan;
}

}  // namespace fsdp::planner
