#pragma once

// The command's help, made from the table of options.

#include <string>

#include "command/cli_options.h"
#include "core/base/result.h"

namespace fsdp::command {

/// An example and the next commands, for a call without arguments.
std::string short_help();

/// The most used options of a command, on one screen. Lines of at most 80 columns.
std::string help(Command command);

/// The help with every option that the command takes.
std::string long_help(Command command);

/// A script for "bash", "zsh" or "fish". Error: another shell.
Result<std::string> completions(const std::string& shell);

}  // namespace fsdp::command
