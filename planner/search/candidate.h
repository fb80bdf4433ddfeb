#pragma once

// A point of the space as a plan for people.

#include <optional>
#include <string>

#include "core/cluster/cluster.h"
#include "planner/search/predicted_cost.h"
#include "planner/search/search.h"
#include "planner/space/families.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// A point of the space with its short prediction.
Candidate candidate_of(PredictedCost& cost, const Families& families, const PlanPoint& plan_point);

/// The reason why "nothing fits" is not certain: the smallest plan lacks very little, and the space only has plans
/// whose blocks all have the same units. `nullopt` if it lacks more, or if mixed units are impossible.
std::optional<std::string> note_on_mixed_units(const Space& space, const Families& families, const Candidate& best,
                                               const Cluster& cluster);

}  // namespace fsdp::planner
