#pragma once

// One rank's whole run: reads the plan, joins the others, trains, and writes the requested files.

#include "executor/backend.h"
#include "executor/options/options.h"

namespace fsdp::executor {

inline constexpr int kExitDone = 0;
inline constexpr int kExitInput = 2;
inline constexpr int kExitRun = 3;

/// Returns the exit code; every failure has been printed to standard error, with the rank and the instruction.
int run_rank(RunOptions options, Backend& backend);

}  // namespace fsdp::executor
