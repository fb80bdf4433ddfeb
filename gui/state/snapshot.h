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
#include "planner/search.h"
#include "simulator/curves/step_curves.h"

namespace fsdp::gui {

/// How final an answer is.
enum class Stage : std::uint8_t {
  Guess,      ///< For some plan, to have a picture; whether another one fits is for the search to say.
  Preview,    ///< For the plan that was shown before, on what the user has chosen since; the search is still to come.
  Answered,   ///< The plan, without remedies and front.
  Explained,  ///< All of it.
};

/// Tensors alive at one moment; null: not looked up.
using LiveTensors = std::shared_ptr<const std::vector<simulator::LiveTensorDetail>>;

struct Snapshot {
  std::uint64_t id = 0;  ///< Number of the request that it answers; rises.
  Stage stage = Stage::Answered;
  std::shared_ptr<const Model> model;     ///< As the plan trains it.
  Cluster cluster;                        ///< The machines of the prediction.
  StepReport report;                      ///< Prediction of the current plan.
  simulator::StepCurves curves;           ///< Curves of the same plan.
  LiveTensors at_peak;                    ///< From `curves`.
  std::vector<planner::Candidate> plans;  ///< Pareto front and neighbors; empty until a search ran.
  planner::Explanation explanation;       ///< The binding term, and suggestions.
  std::optional<planner::Proof> proof;    ///< Proof of a plan that was searched.
  /// The objective of its search.
  planner::SearchObjective objective = planner::SearchObjective::Time;
  std::string refinement;          ///< planner::SearchResult::refinement.
  std::vector<std::string> notes;  ///< Further notes of the search.
  Errors errors;                   ///< When not empty, all else is of the last good answer.
};

using SnapshotPtr = std::shared_ptr<const Snapshot>;

/// Whether a search is still to say which plan it is.
inline bool is_before_search(const Snapshot& snapshot) {
  return snapshot.stage == Stage::Guess || snapshot.stage == Stage::Preview;
}

/// The plan that a snapshot shows, with its machines: what `fsdp-plan -o FILE` writes.
inline PlanFile plan_file_of(const Snapshot& snapshot) {
  return {snapshot.report.plan, snapshot.cluster};
}

}  // namespace fsdp::gui
