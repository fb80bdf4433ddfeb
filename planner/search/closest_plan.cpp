// Finding the plan that needs least is harder than finding whether one fits. Thousands of other plans have live bytes
// below its peak, because the allocator wastes a fifth or more if memory is short, so a proof would predict them all.
// We first predict the smallest plans of the families with the least live bytes, and then search the space as far as
// that is cheap. We name the smallest plan found, and the answer states how little another one could need.
//
// If the memory of a node excluded families (planner/search/host_limit.h), we search those first, by rising need: the
// fastest plan that the devices can hold shows how much memory a node lacks.

#include "planner/search/closest_plan.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "planner/search/branch_and_bound.h"
#include "planner/search/host_limit.h"
#include "planner/search/ties.h"

namespace fsdp::planner {

namespace {

/// Among equally small plans, if none is known to be the smallest.
EvaluatedPoint simplest_of(const SmallestCost& memory, PredictedCost& cost, const Families& families) {
  EvaluatedPoint simplest = *memory.smallest();
  for (const EvaluatedPoint& point : memory.as_small()) {
    const int complexity = complexity_of(families, cost.plan_point_of(point.point));
    if (complexity < complexity_of(families, cost.plan_point_of(simplest.point))) simplest = point;
  }
  return simplest;
}

/// In predictions. A walk of live bytes costs a small part of one.
std::int64_t effort_of(const SmallestCost& memory) {
  constexpr std::int64_t kWalksForAPrediction = 4;
  return memory.num_predicted() + memory.num_walked() / kWalksForAPrediction;
}

FoundPoint least_of(FoundPoint in, BranchAndBound& smallest, SmallestCost& memory, const Space& space,
                    const SearchOptions& options) {
  // Many plans have live bytes below the peak of the plan that needs least, because the allocator wastes memory. So a
  // proof may evaluate all of them; we start with the best of those that are likely to need little.
  constexpr std::int64_t kMost = 300;
  const std::int64_t most = space.max_predictions == 0 ? 0 : std::min(space.max_predictions, kMost);
  memory.probe_by_live_bytes(
      [&] { return is_stopped(options) || (has_spent(options) && memory.smallest().has_value()); });
  const std::int64_t begin = effort_of(memory);
  smallest.on_progress(teller(options, SearchStage::Smallest, *in.families));
  smallest.stop_when(
      [&] { return is_stopped(options) || has_spent(options) || (most > 0 && effort_of(memory) - begin >= most); });
  smallest.settle_when({});
  in.point = smallest.next(std::numeric_limits<std::int64_t>::max());
  if (in.point || is_stopped(options)) return in;
  in.point = simplest_of(memory, *in.cost, *in.families);
  in.at_least = Bytes(static_cast<std::int64_t>(smallest.at_least()));
  return in;
}

}  // namespace

FoundPoint ClosestPlan::find(const Space& space, FamilySearch& family_search, const PredictorOf& predictor_of,
                             const SearchOptions& options) {
  const HostLimit& limit = family_search.limit;
  for (const HostLimit::OverBudget& over_budget : limit.over_budget) {
    cost_.emplace(space.base, over_budget.families, predictor_of, space.room, known_to(options));
    BranchAndBound fastest(*cost_, Objective::Time);
    fastest.stop_when(options.should_stop);
    fastest.settle_when(options.has_spent);
    const std::int64_t budget =
        budget_of(predictor_of(over_budget.families.families.front().micro_batch).cluster()).count();
    if (const auto point = fastest.next(budget, space.max_predictions)) return {&*cost_, &over_budget.families, point};
    if (is_stopped(options)) return {};
  }
  if (limit.over_budget.empty()) {
    if (!family_search.smallest) family_search.smallest.emplace(family_search.memory, Objective::Memory);
    return least_of({&family_search.cost, &limit.within, {}}, *family_search.smallest, family_search.memory, space,
                    options);
  }
  cost_.emplace(space.base, family_search.families, predictor_of, space.room, known_to(options));
  SmallestCost memory(*cost_);
  BranchAndBound smallest(memory, Objective::Memory);
  return least_of({&*cost_, &family_search.families, {}}, smallest, memory, space, options);
}

}  // namespace fsdp::planner
