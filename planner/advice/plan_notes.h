#pragma once

// Sentences about a plan that its figures alone do not show.

#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/report/report.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

/// Sentences about a plan of several micro-batches whose ranks keep the gradients of the whole model until the last
/// one, or would keep them by the default of trainers and not fit then; and about changes of the newest PyTorch
/// (planner/advice/upgrade_note.h). `report`: the prediction of the plan.
std::vector<std::string> plan_notes(const Plan& plan, const StepReport& report, simulator::Predictor& predictor);

}  // namespace fsdp::planner
