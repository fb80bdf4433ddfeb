#pragma once

// A point of the space as a plan for people.

#include <optional>
#include <string>

#include "core/cluster/cluster.h"
#include "planner/search/predicted_cost.h"
#include "planner/search/search.h"
#include "planner/space/choice.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// A point of the space with its short prediction.
Candidate candidate_of(PredictedCost& cost, const Families& families, const Choice& choice);

/// Why it is not known that nothing fits, where the smallest plan that was found lacks next to nothing: units of all
/// blocks are alike in a space. Nothing: it lacks more, or there are no such plans.
std::optional<std::string> note_on_mixed_units(const Space& space, const Families& families, const Candidate& best,
                                               const Cluster& cluster);

}  // namespace fsdp::planner
