#pragma once

// execute --proof: what this node's GPUs say to a plan, held against the prediction, against PyTorch's own FSDP2 on the
// same GPUs, and against what the stub GPU claims of them.

#include "command/cli_commands.h"

namespace fsdp::planner {

/// Writes a request, has python/fsdp_proof run it, and says how it ended. The folder of --run-dir then has proof.json
/// and proof.html. 0: proven, 1: not, or made on the stub GPU. Errors: those of the input; a program that is missing.
CommandResult proof_command(const CommandLine& line, const Output& output);

}  // namespace fsdp::planner
