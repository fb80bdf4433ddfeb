#pragma once

// The CPU of a machine in the place of GPUs: what a plan is predicted on that fsdp-exec trains over Gloo.

#include <cstdint>

#include "core/base/units.h"
#include "core/cluster/cluster.h"

namespace fsdp {

/// `ranks` processes on one machine, each with an equal part of `memory`. Its compute capability is 0, which no GPU
/// has: there are no workspaces, no CUDA context and no NCCL. Rates are assumed; only memory and traffic are of use.
Cluster cpu_cluster(int ranks, Bytes memory);

/// Cores of this machine; 1 where it does not tell.
int num_cores();

/// Threads of each of `ranks` processes that share the cores of this machine: one at least.
int threads_of_rank(std::int64_t ranks);

}  // namespace fsdp
