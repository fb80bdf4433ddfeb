#include "planner/compared_search.h"

#include "planner/predictors.h"

namespace fsdp::planner {

Result<SearchResult> search_briefly(const ResolvedRequest& request, const SearchOptions& options) {
  Space space = request.space;
  space.explain = false;
  space.pareto_points = 0;
  return search(request.spec, request.workload, request.cluster, space,
                {.rank = {}, .on_progress = options.on_progress, .should_stop = options.should_stop, .on_best = {}});
}

Result<SearchResult> search_in_full(ResolvedRequest& request, bool explain, std::int64_t pareto_points,
                                    SearchOptions options) {
  request.space.explain = explain;
  request.space.pareto_points = pareto_points;
  options.larger_gpus = request.larger_gpus;
  return search(request.spec, request.workload, request.cluster, request.space, options);
}

std::int64_t samples_of(const Plan& plan) {
  const Dimension* batch = find_dimension(plan.dimensions, kBatchDimension);
  const std::int64_t micro_batch = batch == nullptr ? 1 : static_cast<std::int64_t>(batch->value);
  return micro_batch * plan.accumulation * plan.mesh.world_size();
}

}  // namespace fsdp::planner
