#pragma once

// A shell script, asked which programs it would start.

#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace fsdp::runs {

/// Whether a file is a shell script by its name or its first line.
bool is_shell_script(const std::string& path);

/// Whether a line gives a script to a shell: "bash run.sh 8".
bool is_script_line(std::span<const std::string> words);

/// The commands that a script gives to Python and to launchers, in its order: [commands, words], the launcher first.
/// The script gets `arguments` and this process's variables, and starts nothing. Errors: there is no bash; the script
/// ends with an error of bash before it starts anything; it waits for something.
Result<std::vector<std::vector<std::string>>> commands_of_script(const std::string& path,
                                                                 std::span<const std::string> arguments);

}  // namespace fsdp::runs
