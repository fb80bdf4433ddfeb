#pragma once

// Suggestions: changes to a plan, its workload or its machine, each predicted and priced in bytes and seconds.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/report/report.h"
#include "core/spec/model_spec.h"
#include "planner/search/search.h"
#include "planner/space/space.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

struct RemedyRequest {
  const ModelSpec& spec;
  const Workload& workload;
  const Cluster& cluster;
  simulator::Predictor& predictor;  ///< The predictor of the plan's own workload and cluster.
  const Candidate& best;
  Verdict verdict = Verdict::Unknown;  ///< The verdict of `best`: Fits if it has room to spare.
  /// Called before each prediction, from several threads. Once it returns true, nothing more is tried. Empty if nobody
  /// stops it.
  std::function<bool()> should_stop = {};
  LargerGpus larger_gpus = {};   ///< Empty if none are known.
  const Space* space = nullptr;  ///< The space of the search that found `best`. nullptr for a given plan.
  /// The result of a search with expandable segments, if it ran: memory excludes a faster plan.
  std::optional<Remedy> with_segments = {};
  /// If it did not run: the result of may_gain_by_segments in explained_search.cpp.
  bool may_gain_by_segments = false;
  /// Settings of the allocator that the search added to its space. Every change requests them, too.
  std::string added_settings = {};
  /// Predictors of `workload` and `cluster`, including `predictor`, for searches of changed plans. If null, they make
  /// their own.
  std::shared_ptr<Predictors> predictors = {};
  /// Work (simulator::Predictor::work) of all trials and searches together; the rest is omitted. 0 for no limit.
  std::int64_t most_work = kMostWorkOfRemedies;
  /// If set, only changed plans for which it returns true are offered, such as those that a trainer can express; they
  /// are not searched. Defaults to all.
  std::function<bool(const Plan& plan, const Model& model)> is_offered = {};
};

/// Those that fit come first: the fastest first, then those with least memory. Omits a change that saves neither bytes
/// nor time, and a smaller length of a plan that fits, which would be another job. If the plan does not fit, the list
/// has the memory, GPUs, batch and lengths that suffice for this plan, and then changes that do not suffice, by
/// savings.
Result<std::vector<Remedy>> remedies_for(const RemedyRequest& request);

}  // namespace fsdp::planner
