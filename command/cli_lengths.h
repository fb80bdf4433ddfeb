#pragma once

// --lengths FILE: the plan of an answer in a run whose batches differ in length.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "command/cli_commands.h"
#include "command/cli_options.h"
#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/report/report.h"
#include "core/spec/model_spec.h"
#include "planner/request/length_answer.h"

namespace fsdp::command {

/// The command line with the longest length as --seq: the length to plan for. A given --seq is the limit to which
/// longer samples are cut. Unless --padding-mask is given, a model that can make a mask of padding makes it. Unchanged
/// without --lengths. Errors: those of the file; options of --lengths without it; options that exclude it.
Result<CommandLine> planned_at_longest(const CommandLine& line, const std::string& library);

/// Whether the model of a plan makes a mask of padding with --lengths if nobody decides that: rows of several samples
/// in transformers' model code.
bool pads_by_default(const ModelSpec& spec, std::string_view flavor, std::optional<std::int64_t> batch);

/// Runs the report's plan with the lengths of the file, cut to the plan's own. `nullopt` without --lengths. Errors:
/// those of planned_at_longest and answer_lengths.
Result<std::optional<planner::LengthAnswer>> answer_lengths(const CommandLine& line, const Output& output,
                                                            const ModelSpec& spec, const Cluster& cluster,
                                                            const StepReport& report);

/// The verdict of the report and of the run with its lengths, if there is one.
ExitCode code_of(const CommandLine& line, const StepReport& report,
                 const std::optional<planner::LengthAnswer>& lengths);

}  // namespace fsdp::command
