#pragma once

// What the newest release of PyTorch that is predicted would change of a plan.

#include <string>

#include "core/plan/plan.h"
#include "core/report/report.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

/// A sentence about traffic or memory that another release would change, found by predicting the plan under it:
/// "PyTorch 2.15 sends 1.99 times the bytes of reduce-scatters (...)", with the option that keeps what is, where one
/// does. Empty: the plan is of that release, its framework has no other prediction there, or nothing changes that is
/// worth a line. `report`: the prediction of the plan.
std::string upgrade_note(const Plan& plan, const StepReport& report, simulator::Predictor& predictor);

}  // namespace fsdp::planner
