#pragma once

// The plan to name when no plan fits.

#include <optional>

#include "core/base/units.h"
#include "planner/search/lower_bounds.h"
#include "planner/search/predicted_cost.h"
#include "planner/search/search.h"
#include "planner/search/widening_search.h"
#include "planner/space/families.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// A point, with its cost model and its families.
struct FoundPoint {
  PredictedCost* cost = nullptr;
  const Families* families = nullptr;
  std::optional<EvaluatedPoint> point;
  /// If another plan may need less than this one: a lower bound of its need.
  std::optional<Bytes> at_least = {};

  /// REQUIRES: a point.
  PlanPoint plan_point() const { return cost->plan_point_of(point->point); }
};

class ClosestPlan {
 public:
  /// The fastest plan that lacks only host memory, and least of it. If there is none, the plan that needs the least
  /// device memory. No point if it was stopped. REQUIRES: the arguments and this object outlive the result.
  FoundPoint find(const Space& space, FamilySearch& family_search, const PredictorOf& predictor_of,
                  const SearchOptions& options);

 private:
  std::optional<PredictedCost> cost_;
};

}  // namespace fsdp::planner
