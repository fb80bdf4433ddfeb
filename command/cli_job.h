#pragma once

// The configuration of another program, or the line that starts it, in place of a model.

#include <optional>
#include <string>
#include <vector>

#include "command/cli_options.h"
#include "core/base/result.h"
#include "planner/jobs/job.h"
#include "planner/jobs/job_source.h"

namespace fsdp::command {

/// A command line whose configuration was read.
struct LineOfJob {
  CommandLine line;                ///< With the configuration's model and choices. Options that were given stay.
  std::vector<std::string> notes;  ///< Sentences: the choices as options, and what was ignored or overridden.
};

/// The configuration that a line came from.
struct JobOfLine {
  planner::JobSource source;
  CommandLine given;  ///< The line before the configuration's choices were added.
  std::optional<planner::SleepingEngine> engine = {};
};

/// The line with a job's model and choices.
Result<LineOfJob> line_of_job(const CommandLine& given, const planner::Job& job);

/// Replaces a configuration, or a command that starts training and can be read, by what it says. Leaves other lines
/// unchanged. Errors: those of planner::read_job; choices that cannot be read, at their places in the file.
Result<LineOfJob> with_job(const CommandLine& line);

}  // namespace fsdp::command
