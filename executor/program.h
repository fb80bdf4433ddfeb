#pragma once

// The part of main that the programs for CPU and for GPUs share.

#include <functional>
#include <memory>

#include "executor/backend.h"
#include "executor/options/options.h"

namespace fsdp::executor {

/// Returns the backend for these options. Null if there is none; the reason is then on standard error.
using BackendChoice = std::function<std::unique_ptr<Backend>(const RunOptions& options)>;

/// Reads the arguments and runs one rank; returns the exit code.
int run_program(int argc, char** argv, const BackendChoice& choose);

}  // namespace fsdp::executor
