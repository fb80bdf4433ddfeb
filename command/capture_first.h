#pragma once

// Commands that take a script in place of a model: it is captured first.

#include "command/cli_commands.h"

namespace fsdp::planner {

/// Errors: options of a capture beside a model that is a file or a name.
Errors check_no_script(const CommandLine& line);

/// Captures the script of `line` into a file of its own, and goes on with that as the model. The capture's own answer
/// is its verdict; where it does not hold, it is the whole answer.
CommandResult after_capture(const CommandLine& line, const Output& output,
                            CommandResult (*next)(const CommandLine& line, const Output& output));

}  // namespace fsdp::planner
