#pragma once

// Which data parallelism: the best plan of each framework on the same machines, beside each other.

#include <functional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/plan/framework_traits.h"
#include "planner/request/plan_request.h"
#include "planner/search/search.h"

namespace fsdp::planner {

/// A framework with its best plan, in short.
struct ComparedRuntime {
  Framework framework = kDefaultFramework;
  std::string why_not;  ///< Why what was asked cannot be had of it; empty: it can.
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;  ///< It runs, without room to spare.
  std::string label;      ///< Candidate::label: "FULL_SHARD, per 2 blocks".
  Seconds step{0};
  Bytes device_peak;
  Bytes needed;                  ///< The device peak and the safety margin.
  Bytes budget;                  ///< What they may take.
  Bytes sent;                    ///< By each GPU in a step, over all collectives.
  std::int64_t collectives = 0;  ///< Collectives of a step.
  Bytes host;                    ///< Memory of a node; 0: the plan keeps nothing of the model there.
  std::int64_t samples = 0;      ///< Samples of a step, over all GPUs.
};

struct RuntimeComparison {
  std::vector<ComparedRuntime>
      runtimes;             ///< The best one first; then what is tight, what does not fit, then what cannot be.
  ResolvedRequest request;  ///< For the first one.
  SearchResult result;      ///< Result of that.
};

struct CompareRuntimesOptions {
  bool explain = true;             ///< Space::explain, of the best one.
  std::int64_t pareto_points = 8;  ///< Space::pareto_points, of the best one.
  SearchOptions search;            ///< Search of the best one; of the others the progress.
  /// Called before the progress of a search is told, and before the last one; by one thread at a time.
  std::function<void(Framework)> on_runtime;
};

/// Searches for each of `runtimes`, and in full for the best one: of those with a plan that fits and with as many
/// samples a second as the most, but for kTieShare, the one that needs least memory. Choices that make no sense for a
/// framework leave it out, with the reason. Errors: those of resolve and search that every framework has; stopped.
/// REQUIRES: `runtimes` has at least one.
Result<RuntimeComparison> compare_runtimes(const PlanRequest& request, const std::vector<Framework>& runtimes,
                                           const std::string& library, const CompareRuntimesOptions& options);

}  // namespace fsdp::planner
