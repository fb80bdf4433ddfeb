#pragma once

// The changes that the newest PyTorch release that we predict would make to a plan.

#include <string>

#include "core/plan/plan.h"
#include "core/report/report.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

/// A sentence about traffic or memory that another release would change, found by predicting the plan for it: "PyTorch
/// 2.15 sends 1.99 times the bytes of reduce-scatters (...)", with the option that restores the current state, if there
/// is one. Empty if the plan is for that release, if its framework has no other prediction there, or if no change is
/// worth a line. `report`: the prediction of the plan.
std::string upgrade_note(const Plan& plan, const StepReport& report, simulator::Predictor& predictor);

}  // namespace fsdp::planner
