#include "planner/space/family_limits.h"

namespace fsdp::planner {

std::optional<Error> misfit_of_passes(const Plan& base, const Family& family, const Model& model) {
  if (!has_passes(model)) return std::nullopt;
  Plan plan = base;
  plan.mesh = family.mesh;
  plan.accumulation = family.accumulation;
  plan.forward_prefetch = family.forward_prefetch;
  plan.backward_prefetch = family.backward_prefetch;
  set_offload(plan, family.cpu_offload);
  return passes_misfit(plan, model);
}

}  // namespace fsdp::planner
