#pragma once

// The collectives of a plan.

#include <vector>

#include "core/report/report.h"
#include "simulator/prepared/prediction.h"

namespace fsdp::simulator {

/// Live bytes at the call of each collective of a step, in issue order, including groups of one.
struct LiveAtCollectives {
  std::vector<BytesByCategory> first_step;
  std::vector<BytesByCategory> steady_step;
};

/// All collectives of one steady step on one rank, with their exposed time from the timeline and the memory around
/// them.
TrafficReport count_traffic(const PreparedPlan& prepared, const MeshCosts& mesh, const TimelineResult& time,
                            const LiveAtCollectives& live);

}  // namespace fsdp::simulator
