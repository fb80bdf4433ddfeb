#pragma once

// The searches of a comparison, of machines or of runtimes.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/plan/plan.h"
#include "planner/request/plan_request.h"
#include "planner/search/search.h"

namespace fsdp::planner {

/// Searches several requests on as many threads as there are cores. Returns, in the order of the requests, the best
/// plan of each without explanation and Pareto front; nullopt for a null request. Uses the progress, the stop and the
/// limits of work of the options. `on_search` announces the number of the request whose progress follows.
std::vector<std::optional<Result<SearchResult>>> search_briefly(const std::vector<const ResolvedRequest*>& requests,
                                                                const SearchOptions& options,
                                                                const std::function<void(std::size_t)>& on_search);

/// The requests of the compared items; nullptr for an item without one. Compared: has a `std::optional<ResolvedRequest>
/// request`.
template <class Compared>
std::vector<const ResolvedRequest*> requests_of(const std::vector<Compared>& trials) {
  std::vector<const ResolvedRequest*> requests;
  requests.reserve(trials.size());
  for (const Compared& trial : trials) requests.push_back(trial.request ? &*trial.request : nullptr);
  return requests;
}

/// Searches the best request once more, with all explanations, and changes its space accordingly.
Result<SearchResult> search_in_full(ResolvedRequest& request, bool explain, std::int64_t pareto_points,
                                    SearchOptions options);

}  // namespace fsdp::planner
