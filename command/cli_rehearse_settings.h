#pragma once

// The settings of a rehearsal from a command line.

#include <string>

#include "command/cli_options.h"
#include "runs/given_plan.h"
#include "runs/rehearse_settings.h"

namespace fsdp::command {

/// `line` with the numbers of GPUs and nodes from the launcher's arguments and files, unless an option gives them.
CommandLine with_counts_of(const runs::Launch& launch, CommandLine line);

/// The settings of a command after "--". If a plan is applied, machines and communicators are those of the plan;
/// the caller writes the plan's file (`write_applied` of runs/rehearse_plan.h). Errors: all faults of options,
/// machines, command and installation.
Result<runs::RehearsalSettings> read_rehearsal(const CommandLine& line, const std::string& library,
                                               const runs::RehearsalPlaces& places,
                                               const runs::Given* applied = nullptr);

/// The settings of a plan: the rehearsal uses its machines and charges its communicators as the prediction does.
/// The command is complete but for the job file, which `job_text` fills. Errors: all faults of options and
/// installation; no Python with torch.
Result<runs::RehearsalSettings> read_plan_rehearsal(const CommandLine& line, const runs::Given& given,
                                                    const runs::RehearsalPlaces& places);

}  // namespace fsdp::command
