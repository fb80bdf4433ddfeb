#pragma once

// Which collectives a plan runs.

#include "core/report.h"
#include "simulator/prediction.h"

namespace fsdp::simulator {

/// All collectives of one steady step on one rank, with their exposed time from the timeline.
TrafficReport count_traffic(const PreparedPlan& prepared, const MeshCosts& mesh, const TimelineResult& time);

}  // namespace fsdp::simulator
