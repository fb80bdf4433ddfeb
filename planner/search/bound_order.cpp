// A bound of step time from the order of the events of a step (planner/search/step_order.h). It is the time, without
// the CPU, of the fastest plan of a box: the plan that keeps most units unsharded, checkpoints fewest blocks and saves
// most of them. planner/search/predicted_cost.cpp has the law that no plan of the box is faster.
//
// The order of one plan holds for the whole family if all events in which the plans differ stay in place. If a unit
// lies inside a block, recomputing the block gathers it ahead of others, and there is no such bound. There is none
// either if the CPU itself computes.

#include <algorithm>

#include "core/frameworks/lower.h"
#include "core/plan/schedule.h"
#include "planner/search/lower_bounds.h"
#include "planner/space/search_traits.h"

namespace fsdp::planner {

using simulator::CallCost;

bool LowerBounds::has_order(const Family& family, const Layout& layout, const Cluster& cluster) const {
  if (!search_traits(base_).has_bound_of_order || has_passes(*index_->model)) return false;
  if (cluster.gpu.compute_capability == 0) return false;
  if (families_.wrappings[static_cast<std::size_t>(family.wrapping)].parts != BlockParts::Whole) return false;
  const auto is_inside_a_block = [&](int module) {
    return std::any_of(index_->model->calls.begin(), index_->model->calls.end(), [&](const Call& call) {
      return call.repeated && call.module != module && index_->contains(call.module, module);
    });
  };
  return std::none_of(layout.units.begin(), layout.units.end(), [&](const ShardedUnit& unit) {
    return std::any_of(unit.modules.begin(), unit.modules.end(), is_inside_a_block);
  });
}

const StepOrder& LowerBounds::order_of(const Family& family) {
  const bool keeps_gradients = family.accumulation > 1 && !family.sync_every_micro_batch;
  const auto key = std::tuple(family.mesh.dp_shard(), family.mesh.ep, family.wrapping, family.arguments,
                              family.forward_prefetch, family.backward_prefetch, keeps_gradients);
  if (const auto found = orders_.find(key); found != orders_.end()) return found->second;
  const Layout& layout = layout_of(family);
  Plan plan = plan_of(family);
  plan.checkpointing.entries.clear();
  plan.accumulation = keeps_gradients ? 2 : 1;
  plan.sync_every_micro_batch = false;
  plan.forward_prefetch = family.forward_prefetch;
  plan.backward_prefetch = family.backward_prefetch;
  const Schedule schedule = lower(*index_, plan, layout);
  return orders_.emplace(key, StepOrder(schedule, layout.units.size())).first->second;
}

std::optional<Seconds> LowerBounds::time_in_order(const Family& family, const PlanPoint& plan_point) {
  const UnitSums& units = unit_sums(family);
  if (!units.has_order) return std::nullopt;
  const bool some_checkpointed = plan_point.checkpointed > 0;
  const CallSums& calls = call_sums(family, some_checkpointed, {plan_point.way, plan_point.way});
  const StackCounts& counts = families_.checkpointed(family, plan_point.checkpointed);
  StepOrder::Durations durations{
      .units = &units.times,
      .gathers_again = &units.gathers_again,
      .micro_batches = family.accumulation,
      .reduces_each = family.accumulation == 1 || family.sync_every_micro_batch,
      .has_replicas = family.mesh.dp_replicate() > 1,
      .reduces_apart = families_.arguments[static_cast<std::size_t>(family.arguments)].separate_reduce_scatter_group};
  for (const std::size_t least : units.resharded) durations.stays.push_back(plan_point.kept >= static_cast<int>(least));
  for (std::size_t c = 0; c < calls.none.size(); ++c) {
    const auto [stack, block] = block_of_call_[c];
    const bool is_checkpointed = stack >= 0 && block < counts[static_cast<std::size_t>(stack)];
    const CallCost& cost = is_checkpointed ? calls.mode[c] : calls.none[c];
    const bool is_beside = some_checkpointed && cost.times_beside != nullptr;
    durations.calls.push_back(is_beside ? cost.times_beside : cost.times);
  }
  return units.optimizer + order_of(family).least(durations);
}

}  // namespace fsdp::planner
