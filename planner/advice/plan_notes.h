#pragma once

// Sentences about a plan that its figures alone do not show.

#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/report/report.h"
#include "planner/search/search.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

/// Sentences about a plan of several micro-batches whose ranks keep the gradients of the whole model until the last
/// one, or would keep them by the default of trainers and not fit then; and about changes of the newest PyTorch
/// (planner/advice/upgrade_note.h); and that a node's memory cannot hold the weights while they are loaded, if its size
/// is known. `report`: the prediction of the plan.
std::vector<std::string> plan_notes(const Plan& plan, const StepReport& report, simulator::Predictor& predictor);

/// That the gradients of the whole model, which they keep until the last micro-batch, keep faster plans from fitting.
/// Empty if no rejected plan would fit without them. `predictor`: of the same model, with any micro-batch.
std::string note_on_rejected(const std::vector<Candidate>& rejected, simulator::Predictor& predictor);

}  // namespace fsdp::planner
