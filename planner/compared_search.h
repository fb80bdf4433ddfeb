#pragma once

// What comparisons, of machines and of runtimes, do with each request that they compare.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/plan/plan.h"
#include "planner/plan_request.h"
#include "planner/search.h"

namespace fsdp::planner {

/// The searches of several requests, on as many threads as there are cores, and their results in the order of the
/// requests: the best plan of each, with no explanation and no Pareto front. Of the options the progress and the stop.
/// Whose progress it is `on_search` says before it, with the number of the request. REQUIRES: no request is null.
std::vector<Result<SearchResult>> search_briefly(const std::vector<const ResolvedRequest*>& requests,
                                                 const SearchOptions& options,
                                                 const std::function<void(std::size_t)>& on_search);

/// The search of the best request once more, with all that is asked of it, which its space says from then on.
Result<SearchResult> search_in_full(ResolvedRequest& request, bool explain, std::int64_t pareto_points,
                                    SearchOptions options);

/// The samples of one step of all GPUs.
std::int64_t samples_of(const Plan& plan);

}  // namespace fsdp::planner
