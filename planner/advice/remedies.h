#pragma once

// What would help: changes to a plan, its workload or its machine, each predicted again and priced in bytes and
// seconds.

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
  simulator::Predictor& predictor;  ///< Predictor of the plan's own workload and cluster.
  const Candidate& best;
  Verdict verdict = Verdict::Unknown;  ///< Verdict of `best`: Fits where it has room to spare.
  /// Asked before each prediction, from several threads; once it says true nothing more is tried. Empty: nobody stops
  /// it.
  std::function<bool()> should_stop = {};
  LargerGpus larger_gpus = {};   ///< Empty: none are known.
  const Space* space = nullptr;  ///< Space of the search that found `best`; none: a plan that was given.
  /// What a search with expandable segments gives, where it ran: memory keeps the plan from being a faster one.
  std::optional<Remedy> with_segments = {};
  /// Where it did not run: whether expandable_segments.h's may_gain_by_segments says that it may find something.
  bool may_gain_by_segments = false;
  /// Settings of the allocator that the search added to its space: every change asks for them, too.
  std::string added_settings = {};
  /// Predictors of `workload` and `cluster`, `predictor` among them: what searches of changed plans run on. Null: their
  /// own.
  std::shared_ptr<Predictors> predictors = {};
  /// Work (simulator::Predictor::work) of all that is tried and searched together: what is left of it then is left
  /// out; 0: no limit.
  std::int64_t most_work = kMostWorkOfRemedies;
  /// Which changed plans are offered, where not all are: those that a trainer can say. They are not searched. Empty:
  /// all.
  std::function<bool(const Plan& plan, const Model& model)> is_offered = {};
};

/// Those that fit first: the fastest first, then those with least memory. A change that saves neither bytes nor time is
/// left out, and so is a smaller length of a plan that fits, which would be another job. When the plan does not fit,
/// the list says for memory, GPUs, batch and lengths how much would do, with this plan; what does not do, by what it
/// saves.
Result<std::vector<Remedy>> remedies_for(const RemedyRequest& request);

}  // namespace fsdp::planner
