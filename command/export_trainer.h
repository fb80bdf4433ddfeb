#pragma once

// export --to accelerate, trainer, torchtitan or deepspeed: a plan as the configuration of a training program.

#include <string>

#include "command/cli_commands.h"
#include "command/cli_plan_file.h"
#include "planner/trainers/trainers.h"

namespace fsdp::command {

/// The configuration. With --nearest, the configuration of the nearest plan, which is written to that option's
/// file. Errors: the parts of the plan that the trainer cannot express, and the cost of the nearest plan that it can;
/// with --nearest, the parts without a near alternative. A note lists settings that the file cannot hold.
tl::expected<std::string, Failure> trainer_text(const planner::TrainerRelease& trainer, PlanPrediction& prediction,
                                                const CommandLine& line, const Output& output);

}  // namespace fsdp::command
