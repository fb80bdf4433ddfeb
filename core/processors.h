#pragma once

// The processors of a machine in the place of its GPUs: what a plan is predicted on that fsdp-exec trains over Gloo.

#include "core/cluster.h"
#include "core/units.h"

namespace fsdp {

/// `ranks` processes on one machine, each with an equal part of `memory`. Its compute capability is 0, which no GPU
/// has: there are no workspaces, no CUDA context and no NCCL. Rates are assumed; only memory and traffic are of use.
Cluster processors(int ranks, Bytes memory);

}  // namespace fsdp
