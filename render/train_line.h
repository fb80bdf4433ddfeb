#pragma once

// The command to train by a plan.

#include <optional>
#include <string>

#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/trainers/trainers.h"

namespace fsdp::render {

/// "fsdp-plan export plan.json --to accelerate (also trainer, fsdp2)": every target that expresses exactly this
/// plan, first a trainer's own configuration, that of `wanted` if possible. If there is none, the reason why Python
/// cannot. With shared experts, how transformers loads the model. `plan_file`: the file of the plan; if empty, the text
/// starts with the option that writes it.
std::string train_line(const Plan& plan, const Model& model, const std::string& plan_file,
                       const std::optional<planner::TrainerRelease>& wanted = {});

}  // namespace fsdp::render
