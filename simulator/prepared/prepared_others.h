#pragma once

// The other models of a plan on their way through the simulator: what walks, timelines and reports of the trained one
// need of them. simulator/phases/other_models.h makes it.

#include <string>
#include <vector>

#include "simulator/memory/host_memory.h"
#include "simulator/memory/memory_walk.h"
#include "simulator/time/plan_times.h"
#include "simulator/time/timeline.h"

namespace fsdp::simulator {

struct PreparedPlan;

/// One model beside the trained one. Refers to its maker.
struct PreparedOther {
  std::string name;
  const PreparedPlan* held = nullptr;     ///< The numbers of its parameters, and
  const PreparedPlan* forward = nullptr;  ///< of the tensors of its forward: the same plan with other tapes.
  const MeshCosts* mesh = nullptr;
  TimelineResult time;  ///< The times of its steady forward.
  HeldOnHost host;      ///< Its host memory.
};

/// [Plan::also]
struct PreparedOthers {
  std::vector<PreparedOther> models;
  std::vector<OtherWalk> walks;
  std::vector<OtherTime> times;
  int num_ids = 0;  ///< Their tensors have the numbers below; those of the trained model follow.
};

}  // namespace fsdp::simulator
