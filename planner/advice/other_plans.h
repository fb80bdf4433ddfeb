#pragma once

// The plans beside the named one: the Pareto front, and those that nearly fit.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/report/report.h"
#include "planner/search/branch_and_bound.h"
#include "planner/search/predicted_cost.h"
#include "planner/search/search.h"
#include "planner/space/families.h"

namespace fsdp::planner {

/// The nearest of `points`, which are predicted plans that do not fit; nearest first (planner/advice/explain.h).
std::vector<Candidate> rejected_of(PredictedCost& cost, const Families& families,
                                   const std::vector<EvaluatedPoint>& points, const Candidate& best, Verdict verdict);

/// The Pareto front: at most the given number of plans, by rising device peak, the best plan last.
std::vector<Candidate> front_of(PredictedCost& cost, const Families& families, const EvaluatedPoint& best,
                                std::int64_t max_points, const SearchOptions& options);

}  // namespace fsdp::planner
