#pragma once

// What the engine answered to one set of inputs. Immutable, and shared between the worker and all widgets.

#include <cstdint>
#include <memory>
#include <vector>

#include "core/cluster.h"
#include "core/report.h"
#include "core/result.h"
#include "planner/search.h"

namespace fsdp::simulator {

/// Memory and instructions over one step.
struct StepCurves {};

}  // namespace fsdp::simulator

namespace fsdp::gui {

struct Snapshot {
  std::uint64_t id = 0;                   ///< Of the request that it answers; rises.
  Cluster cluster;                        ///< What was predicted on.
  StepReport report;                      ///< Prediction of the current plan.
  simulator::StepCurves curves;           ///< Of the same plan.
  std::vector<planner::Candidate> plans;  ///< Pareto front and neighbours; empty until a search ran.
  planner::Explanation explanation;       ///< What binds, and what would help.
  Errors errors;                          ///< When not empty, all else is of the last good answer.
};

using SnapshotPtr = std::shared_ptr<const Snapshot>;

}  // namespace fsdp::gui
