#pragma once

// The settings of a rehearsal from a command line.

#include <string>

#include "command/cli_options.h"
#include "runs/given_plan.h"
#include "runs/rehearse_settings.h"

namespace fsdp::planner {

/// `line` with the numbers of GPUs and nodes that the launcher's arguments and files say, where no option does.
CommandLine with_counts_of(const Launch& launch, CommandLine line);

/// The settings of a command after "--". With a plan to apply, machines and communicators are those of the plan; the
/// file of the plan, `write_applied` of runs/rehearse_plan.h, is for the caller to write. Errors: everything that is
/// wrong with options, machines, command and the installation.
Result<RehearsalSettings> read_rehearsal(const CommandLine& line, const std::string& library,
                                         const RehearsalPlaces& places, const Given* applied = nullptr);

/// The settings of a plan: its machines are those of the rehearsal, and its communicators are charged as the prediction
/// charges them. The command is complete but for the job file, which `job_text` fills. Errors: everything that is wrong
/// with options and installation; no Python with torch.
Result<RehearsalSettings> read_plan_rehearsal(const CommandLine& line, const Given& given,
                                              const RehearsalPlaces& places);

}  // namespace fsdp::planner
