#include "planner/search/candidate.h"

#include <algorithm>
#include <cstdint>

#include "core/plan/framework_traits.h"
#include "planner/space/search_traits.h"

namespace fsdp::planner {

using simulator::Detail;

Candidate candidate_of(PredictedCost& cost, const Families& families, const PlanPoint& plan_point) {
  const simulator::Outcome& outcome = cost.outcome(plan_point, Detail::Device);
  const Bytes budget = budget_of(cost.predictor_of(plan_point).cluster());
  Candidate candidate;
  candidate.plan = cost.plan_of(plan_point);
  candidate.label = label_of(families, plan_point);
  candidate.step = outcome.step;
  candidate.device_peak = outcome.peaks.device;
  candidate.missing = Bytes(std::max<std::int64_t>(0, PredictedCost::needed_bytes(outcome) - budget.count()));
  return candidate;
}

// In a trial with some blocks whole and others cut, a plan needed 1.05 % less than the least of the space.
std::optional<std::string> note_on_mixed_units(const Space& space, const Families& families, const Candidate& best,
                                               const Cluster& cluster) {
  constexpr double kOpenShare = 0.02;
  const bool has_others = !space.wrap && traits_of(space.base).wraps_units && search_traits(space.base).cuts_blocks &&
                          families.num_blocks() > 1;
  const bool is_near = ratio(best.device_peak, budget_of(cluster)) < 1 + kOpenShare;
  if (!has_others || best.missing == Bytes(0) || !is_near) return std::nullopt;
  return "Not proven: the search wraps all blocks alike; with some whole and others cut a plan may need 1 % less.";
}

}  // namespace fsdp::planner
