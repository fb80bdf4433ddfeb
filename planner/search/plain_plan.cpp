#include "planner/search/plain_plan.h"

#include <algorithm>
#include <numeric>

#include "planner/search/widening_search.h"
#include "planner/space/batches.h"
#include "planner/space/families.h"

namespace fsdp::planner {

Result<Plan> plain_plan(const Space& space, const ModelIndex& index, const Cluster& cluster, std::int64_t micro_batch) {
  FSDP_TRY(const Families families, families_for(space, index, cluster));
  PlanPoint plainest;
  std::int64_t most = -1;
  for (std::size_t f = 0; f < families.families.size(); ++f) {
    const Family& family = families.families[f];
    const Family& first = families.families[static_cast<std::size_t>(plainest.family)];
    const bool is_like_first = most < 0 || (family.mesh == first.mesh && family.wrapping == first.wrapping &&
                                            family.cpu_offload == first.cpu_offload);
    if (family.micro_batch != micro_batch || !is_like_first) continue;
    const StackCounts& counts = families.checkpointed(family, family.checkpointed.back());
    const std::int64_t blocks = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    if (blocks <= most) continue;
    most = blocks;
    plainest = {.family = static_cast<int>(f),
                .kept = family.kept.front(),
                .checkpointed = static_cast<std::int32_t>(family.checkpointed.back())};
  }
  Plan plan = plan_of(space.base, families, plainest);
  plan.dimensions = index.model->dimensions;
  return plan;
}

Result<std::int64_t> plain_micro_batch(const Space& space, const Cluster& cluster) {
  FSDP_TRY(const std::vector<Batch> batches, batches_of(space, cluster));
  return batches.front().micro_batch;
}

}  // namespace fsdp::planner
