#include "planner/search/expandable_segments.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/base/parse_units.h"
#include "core/plan/torch_version.h"
#include "planner/search/predicted_cost.h"
#include "planner/trainers/trainers.h"
#include "text/figures.h"

namespace fsdp::planner {

std::optional<Space> expanded(const Space& space, const Cluster& cluster) {
  const bool is_default = space.base.runtime.allocator_settings.empty();
  if (!space.may_expand_segments || !is_default || cluster.gpu.compute_capability == 0) return std::nullopt;
  Space wider = space;
  wider.may_expand_segments = false;
  wider.base.runtime.allocator_settings = kExpandableSegments;
  return wider;
}

std::string note_on_segments(WideningSearch& widening_search, const Runtime& runtime) {
  if (const std::optional<Seconds> step = widening_search.slower_than()) {
    return fmt::format("Set {}: a step takes at least {} without it.", allocator_environment(runtime),
                       format_time(*step));
  }
  const Proof proof = widening_search.answer().proof();
  const bool is_known = proof.is_proven && !proof.stopped_early && !widening_search.is_open();
  const std::string_view without = widening_search.fits() ? "The search did not come to its end"
                                   : is_known             ? "No plan fits"
                                                          : "No plan was found that fits";
  return fmt::format("{} without expandable segments: set {}, as the plan says.", without,
                     allocator_environment(runtime));
}

bool has_faster_that_is_too_large(FamilySearch& family_search, Seconds step, double part) {
  return std::ranges::any_of(family_search.too_large(), [&](const EvaluatedPoint& point) {
    const PlanPoint plan_point = family_search.cost.plan_point_of(point.point);
    return family_search.cost.outcome_up_to(plan_point, Bytes(0)).step < (1 - part) * step;
  });
}

}  // namespace fsdp::planner
