#pragma once

// The engine's answer to one set of inputs. Immutable, and shared between the worker and all widgets.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan_file.h"
#include "core/report/report.h"
#include "planner/search/search.h"
#include "simulator/curves/step_curves.h"

namespace fsdp::gui {

/// How final an answer is.
enum class Stage : std::uint8_t {
  Guess,      ///< Some plan, to show a picture; the search still decides whether another one fits.
  Preview,    ///< The previous plan under the new choices; the search is still running.
  Answered,   ///< The plan, without remedies and front.
  Explained,  ///< Everything.
};

/// Tensors live at one moment; null if they were not looked up.
using LiveTensors = std::shared_ptr<const std::vector<simulator::LiveTensorDetail>>;

struct Snapshot {
  std::uint64_t id = 0;  ///< Number of the request that it answers; rises.
  Stage stage = Stage::Answered;
  std::shared_ptr<const Model> model;     ///< The model as the plan trains it.
  Cluster cluster;                        ///< The machines of the prediction.
  StepReport report;                      ///< Prediction of the current plan.
  simulator::StepCurves curves;           ///< Curves of the same plan.
  LiveTensors at_peak;                    ///< From `curves`.
  std::vector<planner::Candidate> plans;  ///< Pareto front and neighbors; empty until a search has run.
  planner::Explanation explanation;       ///< The binding term, and suggestions.
  std::optional<planner::Proof> proof;    ///< Proof of a searched plan.
  /// The objective of its search.
  planner::SearchObjective objective = planner::SearchObjective::Time;
  std::string refinement;          ///< planner::SearchResult::refinement.
  std::vector<std::string> notes;  ///< Further notes of the search.
  Errors errors;                   ///< If not empty, every other member is of the last good answer.
};

using SnapshotPtr = std::shared_ptr<const Snapshot>;

/// Whether a search has yet to decide the plan.
inline bool is_before_search(const Snapshot& snapshot) {
  return snapshot.stage == Stage::Guess || snapshot.stage == Stage::Preview;
}

/// The plan of a snapshot with its machines, as `fsdp-plan -o FILE` writes it.
inline PlanFile plan_file_of(const Snapshot& snapshot) {
  return {snapshot.report.plan, snapshot.cluster};
}

}  // namespace fsdp::gui
