#include "planner/request/compared_search.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "planner/advice/explained_search.h"

namespace fsdp::planner {

namespace {

/// The share of the work of one of several searches. It has a minimum, so that many searches do not end each other.
std::int64_t share_of(std::int64_t work, std::size_t num_searches) {
  constexpr std::int64_t kMostShares = 8;
  return work / std::clamp<std::int64_t>(static_cast<std::int64_t>(num_searches), 1, kMostShares);
}

}  // namespace

std::vector<std::optional<Result<SearchResult>>> search_briefly(const std::vector<const ResolvedRequest*>& requests,
                                                                const SearchOptions& options,
                                                                const std::function<void(std::size_t)>& on_search) {
  std::mutex telling;
  const auto search_one = [&](std::size_t number) {
    const auto tell = [&, number](const SearchProgress& progress) {
      const std::lock_guard<std::mutex> lock(telling);
      if (on_search) on_search(number);
      options.on_progress(progress);
    };
    Space space = requests[number]->space;
    space.explain = false;
    space.pareto_points = 0;
    if (options.counts_work_alone) space.max_predictions = 0;
    SearchOptions own{.should_stop = options.should_stop};
    own.most_work = share_of(options.most_work, requests.size());
    if (options.on_progress) own.on_progress = tell;
    return search(requests[number]->spec, requests[number]->workload, requests[number]->cluster, space, own);
  };
  std::vector<std::optional<Result<SearchResult>>> found(requests.size());
  std::atomic<std::size_t> next{0};
  const auto search_some = [&] {
    for (std::size_t number = next++; number < requests.size(); number = next++) {
      if (requests[number] != nullptr) found[number].emplace(search_one(number));
    }
  };
  std::vector<std::future<void>> threads;
  const std::size_t num_cores = std::max(1U, std::thread::hardware_concurrency());
  for (std::size_t i = 0; i < std::min(num_cores, requests.size()); ++i) {
    threads.push_back(std::async(std::launch::async, search_some));
  }
  for (const std::future<void>& thread : threads) thread.wait();
  return found;
}

Result<SearchResult> search_in_full(ResolvedRequest& request, bool explain, std::int64_t pareto_points,
                                    SearchOptions options) {
  request.space.explain = explain;
  request.space.pareto_points = pareto_points;
  if (options.counts_work_alone) request.space.max_predictions = 0;
  options.larger_gpus = request.larger_gpus;
  return search(request.spec, request.workload, request.cluster, request.space, options);
}

}  // namespace fsdp::planner
