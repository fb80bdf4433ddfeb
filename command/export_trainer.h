#pragma once

// export --to accelerate, trainer, torchtitan or deepspeed: a plan in the words of a program that trains.

#include <string>

#include "command/cli_commands.h"
#include "command/cli_plan_file.h"
#include "planner/trainers/trainers.h"

namespace fsdp::planner {

/// The configuration. With --nearest that of the nearest plan, which is written to the file of that option. Errors:
/// what the trainer cannot say of the plan, and what the nearest plan that it can would take; with --nearest, what has
/// nothing near. A note lists settings that the file cannot hold.
tl::expected<std::string, Failure> trainer_text(const TrainerRelease& trainer, PlanPrediction& prediction,
                                                const CommandLine& line, const Output& output);

}  // namespace fsdp::planner
