#pragma once

// What comparisons, of machines and of runtimes, do with each request that they compare.

#include <cstdint>

#include "core/plan/plan.h"
#include "planner/plan_request.h"
#include "planner/search.h"

namespace fsdp::planner {

/// The search of one of several requests: its best plan, with no explanation and no Pareto front. Of the options the
/// progress and the stop.
Result<SearchResult> search_briefly(const ResolvedRequest& request, const SearchOptions& options);

/// The search of the best request once more, with all that is asked of it, which its space says from then on.
Result<SearchResult> search_in_full(ResolvedRequest& request, bool explain, std::int64_t pareto_points,
                                    SearchOptions options);

/// The samples of one step of all GPUs.
std::int64_t samples_of(const Plan& plan);

}  // namespace fsdp::planner
