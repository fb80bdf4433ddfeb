#pragma once

// From files and launch lines to the runs that they describe.

#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "planner/check/checked_run.h"

namespace fsdp::planner {

/// Reads configurations of accelerate (YAML), TRL or the Trainer (YAML), DeepSpeed (JSON), and models (anything that is
/// no .yaml, .yml or .json file with settings). Files of different kinds are one run; if two are of one kind, each is
/// checked by itself. Errors: those of the files; a file of another kind.
Result<std::vector<CheckedRun>> read_runs(std::span<const std::string> files, const std::string& library);

/// Reads `accelerate launch ... SCRIPT ...`, `trl sft ...`, `deepspeed SCRIPT ...`, `torchrun ... SCRIPT ...` or
/// `python SCRIPT ...`, with the files that it names. Errors: those of the files; a line that starts no script.
Result<CheckedRun> read_run_line(std::span<const std::string> words, const std::string& library);

}  // namespace fsdp::planner
