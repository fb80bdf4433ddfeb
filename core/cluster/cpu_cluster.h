#pragma once

// A machine's CPU in the place of GPUs, to predict plans that fsdp-exec trains over Gloo.

#include <cstdint>

#include "core/base/units.h"
#include "core/cluster/cluster.h"

namespace fsdp {

/// `ranks` processes on one machine, each with an equal part of `memory`. Its compute capability is 0, which no GPU
/// has: no workspaces, no CUDA context, no NCCL. Rates are assumed; only memory and traffic are meaningful.
Cluster cpu_cluster(int ranks, Bytes memory);

/// Cores of this machine; 1 if unknown.
int num_cores();

/// Threads of each of `ranks` processes that share the cores of this machine; at least one.
int threads_of_rank(std::int64_t ranks);

}  // namespace fsdp
