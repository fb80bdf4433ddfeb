#pragma once

// Several frameworks on a command line: --runtime all, --runtime fsdp2,ddp.

#include <vector>

#include "command/cli_options.h"
#include "core/plan/runtime.h"

namespace fsdp::command {

/// Whether a command line asks which of several frameworks is best.
bool compares_runtimes(const CommandLine& line);

/// The frameworks of such a line, each once. Adds unknown names to `errors`.
std::vector<Framework> runtimes_of(const CommandLine& line, Errors& errors);

}  // namespace fsdp::command
