#pragma once

// The plans beside the one that is named: the Pareto front, and those that came near.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/report/report.h"
#include "planner/branch_and_bound.h"
#include "planner/choice.h"
#include "planner/predicted_cost.h"
#include "planner/search.h"

namespace fsdp::planner {

/// A point of the space with its short prediction.
Candidate candidate_of(PredictedCost& cost, const Families& families, const Choice& choice);

/// The nearest of `points`, which were predicted and do not fit, nearest first (planner/explain.h).
std::vector<Candidate> rejected_of(PredictedCost& cost, const Families& families,
                                   const std::vector<EvaluatedPoint>& points, const Candidate& best, Verdict verdict);

/// The Pareto front: at most so many plans, by rising device peak, the best plan last.
std::vector<Candidate> front_of(PredictedCost& cost, const Families& families, const EvaluatedPoint& best,
                                std::int64_t max_points, const SearchOptions& options);

/// Why it is not known that nothing fits, where the smallest plan that was found lacks next to nothing: units of all
/// blocks are alike in a space. Nothing: it lacks more, or there are no such plans.
std::optional<std::string> note_on_mixed_units(const Space& space, const Families& families, const Candidate& best,
                                               const Cluster& cluster);

}  // namespace fsdp::planner
