#pragma once

// What comparisons, of machines and of runtimes, do with each request that they compare.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/plan/plan.h"
#include "planner/request/plan_request.h"
#include "planner/search/search.h"

namespace fsdp::planner {

/// The searches of several requests, on as many threads as there are cores, and their results in the order of the
/// requests: the best plan of each, with no explanation and no Pareto front; nothing for a request that is null. Uses
/// the progress, the stop and the limits of work of the options. Whose progress it is `on_search` says before it, with
/// the number of the request.
std::vector<std::optional<Result<SearchResult>>> search_briefly(const std::vector<const ResolvedRequest*>& requests,
                                                                const SearchOptions& options,
                                                                const std::function<void(std::size_t)>& on_search);

/// The requests of what is compared; null where there is none. Compared: has a `std::optional<ResolvedRequest>
/// request`.
template <class Compared>
std::vector<const ResolvedRequest*> requests_of(const std::vector<Compared>& trials) {
  std::vector<const ResolvedRequest*> requests;
  requests.reserve(trials.size());
  for (const Compared& trial : trials) requests.push_back(trial.request ? &*trial.request : nullptr);
  return requests;
}

/// The search of the best request once more, with all that is asked of it, which its space says from then on.
Result<SearchResult> search_in_full(ResolvedRequest& request, bool explain, std::int64_t pareto_points,
                                    SearchOptions options);

}  // namespace fsdp::planner
