#pragma once

// The plans beside the one that is named: the Pareto front, and those that came near.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/report/report.h"
#include "planner/search/branch_and_bound.h"
#include "planner/search/predicted_cost.h"
#include "planner/search/search.h"
#include "planner/space/choice.h"

namespace fsdp::planner {

/// The nearest of `points`, which were predicted and do not fit, nearest first (planner/advice/explain.h).
std::vector<Candidate> rejected_of(PredictedCost& cost, const Families& families,
                                   const std::vector<EvaluatedPoint>& points, const Candidate& best, Verdict verdict);

/// The Pareto front: at most so many plans, by rising device peak, the best plan last.
std::vector<Candidate> front_of(PredictedCost& cost, const Families& families, const EvaluatedPoint& best,
                                std::int64_t max_points, const SearchOptions& options);

}  // namespace fsdp::planner
