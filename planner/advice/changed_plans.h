#pragma once

// Variants of a plan with one change that the search does not enumerate, because it uses FSDP2's default. For pricing
// suggestions.

#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

struct ChangedPlan {
  std::string what;    ///< "gather 2 units ahead in the forward".
  PlanChoices change;  ///< The choices that request it.
  Plan plan;
};

/// Gathers up to `more` additional units ahead, in the forward and in the backward; the cost is their buffers. Empty
/// for a plan of another framework, or one that shards nothing.
std::vector<ChangedPlan> prefetching_more(const Plan& plan, std::int64_t more);

/// One more reduce-scatter in flight, or a communicator of their own. If the plan's PyTorch has no such settings, the
/// plan is for the first release that has. Empty as above.
std::vector<ChangedPlan> reducing_apart(const Plan& plan);

}  // namespace fsdp::planner
