#pragma once

// Which data parallelism: the best plan of each framework on the same machines, side by side.

#include <functional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/plan/framework_traits.h"
#include "planner/request/plan_request.h"
#include "planner/search/search.h"

namespace fsdp::planner {

/// A framework with a summary of its best plan.
struct ComparedRuntime {
  Framework framework = kDefaultFramework;
  std::string why_not;  ///< The reason why it cannot serve the request. Empty if it can.
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;  ///< True if it runs without room to spare.
  std::string label;      ///< Candidate::label: "FULL_SHARD, per 2 blocks".
  Seconds step{0};
  Bytes device_peak;
  Bytes needed;                  ///< The device peak and the safety margin.
  Bytes budget;                  ///< The limit of that.
  Bytes sent;                    ///< Sent by each GPU in a step, over all collectives.
  std::int64_t collectives = 0;  ///< Collectives of a step.
  Bytes host;                    ///< Memory of a node. 0 if the plan keeps nothing of the model there.
  std::int64_t samples = 0;      ///< Samples of a step, over all GPUs.
};

struct RuntimeComparison {
  std::vector<ComparedRuntime>
      runtimes;             ///< The best one first; then tight ones, those that do not fit, and impossible ones.
  ResolvedRequest request;  ///< The request for the first one.
  SearchResult result;      ///< The result for it.
};

struct CompareRuntimesOptions {
  bool explain = true;             ///< Space::explain for the best one.
  std::int64_t pareto_points = 8;  ///< Space::pareto_points for the best one.
  SearchOptions search;            ///< Options for the best one; the others use its progress.
  /// Called before the progress of a search, and before the last one, by one thread at a time.
  std::function<void(Framework)> on_runtime;
};

/// Searches each of `runtimes`, and the best one in full. The best one has a plan that fits and nearly the most samples
/// a second (kTieShare), and needs least memory among those. Choices that make no sense for a framework exclude it,
/// with the reason. Errors: those of resolve and search that every framework has; stopped. REQUIRES: `runtimes` has at
/// least one.
Result<RuntimeComparison> compare_runtimes(const PlanRequest& request, const std::vector<Framework>& runtimes,
                                           const std::string& library, const CompareRuntimesOptions& options);

}  // namespace fsdp::planner
