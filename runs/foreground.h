#pragma once

// Runs a user's program on their terminal, as if they had typed it.

#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "runs/child_process.h"

namespace fsdp::runs {

struct ForegroundCommand {
  std::vector<std::string> words;  ///< The program, as a path or a name on PATH, and its arguments.
  /// Variables set on top of this process's environment.
  std::vector<std::pair<std::string, std::string>> environment;
  bool output_to_error = false;  ///< Sends its standard output to our standard error, because ours has an answer for a
                                 ///< program.
};

/// Runs it to its end with our input, output and Ctrl-C. Until then this process survives signals that the terminal
/// sends to both; the program ends with this process. Error: it cannot be started, with the system's reason.
Result<ExitStatus> run_in_foreground(const ForegroundCommand& command);

}  // namespace fsdp::runs
