#pragma once

// A program that somebody runs through us: on their terminal, as if they had typed it.

#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "runs/child_process.h"

namespace fsdp::planner {

struct ForegroundCommand {
  std::vector<std::string> words;  ///< The program, as a path or a name on PATH, and its arguments.
  /// Variables set on top of this process's environment.
  std::vector<std::pair<std::string, std::string>> environment;
  bool output_to_error = false;  ///< Its standard output goes to ours for errors: ours has an answer for a program.
};

/// Runs it to its end. Input, output and Ctrl-C are its own: until it has ended this process does not die of what the
/// terminal sends to both, and it ends with this process. Error: it cannot be started, with the system's reason.
Result<ExitStatus> run_in_foreground(const ForegroundCommand& command);

}  // namespace fsdp::planner
