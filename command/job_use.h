#pragma once

// The best plan that a trainer's own files can ask for, as changes of these files.

#include <optional>

#include "command/cli_commands.h"
#include "command/cli_options.h"
#include "core/base/result.h"
#include "planner/jobs/job_use.h"

namespace fsdp::command {

/// True if an answer about this line ends with changes: it came from a configuration, for one machine and one runtime,
/// and names no trainer of its own.
bool gives_back(const CommandLine& line);

/// What to change. `nullopt` for other lines, and with --quiet. Errors: options that no key of the files has; those of
/// the search.
std::optional<Result<planner::JobUse>> use_of_job(const CommandLine& line, const Output& output);

/// plan with --diff or --write. Errors: a line without a configuration; other outputs; those of use_of_job.
CommandResult give_back(const CommandLine& line, const Output& output);

}  // namespace fsdp::command
