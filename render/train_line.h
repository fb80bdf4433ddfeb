#pragma once

// The command to train by a plan.

#include <optional>
#include <string>

#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/trainers/trainers.h"

namespace fsdp::planner {

/// "fsdp-plan export plan.json --to accelerate (also trainer, fsdp2)": every target that says exactly this plan, a
/// trainer's own configuration first: that of `wanted`, where it says it. Where none does, why Python does not.
/// `plan_file`: where the plan is kept; empty: nowhere yet, and the option that keeps it is said first.
std::string train_line(const Plan& plan, const Model& model, const std::string& plan_file,
                       const std::optional<TrainerRelease>& wanted = {});

}  // namespace fsdp::planner
