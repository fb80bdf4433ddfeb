#pragma once

// Captures the script of a command that takes one in place of a model.

#include "command/cli_commands.h"

namespace fsdp::command {

/// Errors: options of a capture if the model is a file or a name.
Errors check_no_script(const CommandLine& line);

/// Captures the script of `line` into a file of its own, then runs the command with that model. The capture's own
/// answer is its verdict; if the capture does not hold, it is the whole answer.
CommandResult after_capture(const CommandLine& line, const Output& output,
                            CommandResult (*next)(const CommandLine& line, const Output& output));

}  // namespace fsdp::command
