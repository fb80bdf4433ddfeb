#pragma once

// execute --proof: compares this node's measurements of a plan with the prediction, with PyTorch's own FSDP2 on the
// same GPUs, and with the stub GPU's claims about them.

#include "command/cli_commands.h"

namespace fsdp::command {

/// Writes a request, runs it with python/fsdp_proof, and reports how it ended. The folder of --run-dir then has
/// proof.json and proof.html. Returns 0 if the plan is proven, 1 if not, or if it ran on the stub GPU. Errors: those of
/// the input; a missing program.
/// program.
CommandResult proof_command(const CommandLine& line, const Output& output);

}  // namespace fsdp::command
