#pragma once

// What would help: changes to a plan, its workload or its machine, each predicted again and priced in bytes and
// seconds.

#include <functional>
#include <vector>

#include "core/cluster.h"
#include "core/model_spec.h"
#include "core/report.h"
#include "core/result.h"
#include "planner/search.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

struct RemedyRequest {
  const ModelSpec& spec;
  const Workload& workload;
  const Cluster& cluster;
  simulator::Predictor& predictor;  ///< Of the plan's own workload and cluster.
  const Candidate& best;
  Verdict verdict = Verdict::Unknown;  ///< Of `best`.
  /// Asked before each prediction; once it says true nothing more is tried. Empty: nobody stops it.
  std::function<bool()> should_stop = {};
  /// The machines with so much memory on each GPU, as the option would make them: where no GPU is named, another may
  /// stand in. Empty: the same GPU with more memory.
  std::function<Result<Cluster>(Bytes)> with_memory = {};
};

/// Those that fit first, then by what they save. A change that saves neither bytes nor time is left out. When the plan
/// does not fit, the list says for memory, GPUs, batch and lengths how much would do, with this plan.
Result<std::vector<Remedy>> remedies_for(const RemedyRequest& request);

}  // namespace fsdp::planner
