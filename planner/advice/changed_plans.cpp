#include "planner/advice/changed_plans.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/plan/framework_traits.h"
#include "core/plan/torch_version.h"

namespace fsdp::planner {

namespace {

bool has_shards_of_setters(const Plan& plan) {
  return traits_of(plan).has_unit_setters && plan.mesh.dp_shard() > 1;
}

std::string ahead(std::int64_t units, std::string_view where) {
  return fmt::format("gather {} {} ahead in the {}", units, units == 1 ? "unit" : "units", where);
}

}  // namespace

std::vector<ChangedPlan> prefetching_more(const Plan& plan, std::int64_t more) {
  if (!has_shards_of_setters(plan)) return {};
  // In FSDP2's own order, 0, the first unit ahead is gathered anyway.
  const std::int64_t forward = std::max<std::int64_t>(plan.forward_prefetch, 1) + more;
  const std::int64_t backward = plan.backward_prefetch + more;
  std::vector<ChangedPlan> changed = {
      {ahead(forward, "forward"), {.forward_prefetch = forward}, plan},
      {ahead(backward, "backward"), {.backward_prefetch = backward}, plan},
  };
  changed[0].plan.forward_prefetch = forward;
  changed[1].plan.backward_prefetch = backward;
  return changed;
}

std::vector<ChangedPlan> reducing_apart(const Plan& plan) {
  if (!has_shards_of_setters(plan)) return {};
  Plan able = plan;
  PlanChoices change;
  if (!torch_version_of(plan.runtime).has_reduce_scatter_settings) {
    const auto versions = torch_versions();
    const auto first = std::find_if(versions.begin(), versions.end(),
                                    [](const TorchVersion& each) { return each.has_reduce_scatter_settings; });
    set_torch_version(able.runtime, *first);
    change.torch = std::string(first->name);
  }
  std::vector<ChangedPlan> changed;
  const std::int64_t buffers = plan.reduce_scatter_buffers + 1;
  changed.push_back(
      {fmt::format("keep {} reduce-scatters under way", buffers == 2 ? "two" : std::to_string(buffers)), change, able});
  changed.back().plan.reduce_scatter_buffers = *(changed.back().change.reduce_scatter_buffers = buffers);
  if (plan.separate_reduce_scatter_group) return changed;
  changed.push_back({"give reduce-scatters a communicator of their own", std::move(change), std::move(able)});
  changed.back().plan.separate_reduce_scatter_group = *(changed.back().change.separate_reduce_scatter = true);
  return changed;
}

}  // namespace fsdp::planner
