#pragma once

// Device memory beside what the allocator reserves, and how much is kept free to be on the safe side.

#include <vector>

#include "core/cluster/cluster.h"
#include "core/plan/plan.h"
#include "core/report/report.h"

namespace fsdp::simulator {

/// CUDA context and NCCL's buffers, each with its source. PyTorch's cuBLAS workspaces are not here: they come from the
/// allocator.
std::vector<DeviceTerm> outside_terms(const Cluster& cluster, const Plan& plan);

/// Shares of what the allocator reserves that are kept free, because which block a request gets depends on small
/// allocations of the user's code and on the order of device addresses, and because model code differs by release.
struct MarginShares {
  double plain = 0;       ///< With plain segments.
  double expandable = 0;  ///< With expandable ones, where blocks are not cut.
};
/// By what was published of real GPUs next to what is predicted for it: 19 of 20 runs of a kind took no more. For FSDP1
/// and ZeRO this is beside what streams may hold.
MarginShares margin_shares(Framework framework);

/// Memory to keep free on top of a prediction: the share above, what a release of PyTorch was seen to reserve beyond
/// it, and a quarter of each outside term that is not measured.
Bytes margin(Bytes reserved, const std::vector<DeviceTerm>& terms, const Plan& plan);

/// cuBLAS's workspace per (thread, stream): 32 MiB on compute capability 9.0, 8.125 MiB elsewhere
/// (aten/src/ATen/cuda/CublasHandlePool.cpp, torch 2.11).
Bytes cublas_workspace(int compute_capability);

}  // namespace fsdp::simulator
