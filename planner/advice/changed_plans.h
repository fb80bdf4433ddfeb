#pragma once

// Plans with one thing changed that the search leaves as FSDP2 has it: for whoever prices what else could be done.

#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

struct ChangedPlan {
  std::string what;    ///< "gather 2 units ahead in the forward".
  PlanChoices change;  ///< What to type for it.
  Plan plan;
};

/// More units gathered ahead, in the forward and in the backward, by as many as `more` says: that costs their buffers.
/// For a plan of another framework, or that shards nothing: none.
std::vector<ChangedPlan> prefetching_more(const Plan& plan, std::int64_t more);

/// One more reduce-scatter under way, or a communicator of their own. Where the plan's PyTorch has no such settings, in
/// the first one that has. None as above.
std::vector<ChangedPlan> reducing_apart(const Plan& plan);

}  // namespace fsdp::planner
