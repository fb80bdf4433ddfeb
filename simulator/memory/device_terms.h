#pragma once

// Device memory beside the allocator's reserved memory, and the safety margin.

#include <vector>

#include "core/cluster/cluster.h"
#include "core/plan/plan.h"
#include "core/report/report.h"

namespace fsdp::simulator {

/// Other programs, CUDA context and NCCL's buffers, each with its source. PyTorch's cuBLAS workspaces are not here:
/// they come from the allocator.
std::vector<DeviceTerm> outside_terms(const Cluster& cluster, const Plan& plan);

/// Fractions of the reserved memory that the safety margin adds. Which block a request gets depends on small
/// allocations of the user's code and on the order of device addresses, and model code differs by release.
struct MarginShares {
  double plain = 0;       ///< With plain segments.
  double expandable = 0;  ///< With expandable ones, whose blocks are not cut.
};
/// From published runs on real GPUs and our predictions of them: 19 of 20 runs of a kind took no more. For FSDP1 and
/// ZeRO this is in addition to memory that streams may hold.
MarginShares margin_shares(Framework framework);

/// The safety margin of a prediction: the fraction above, the excess that a release of PyTorch was observed to reserve,
/// and a quarter of each outside term that is neither measured nor given.
Bytes margin(Bytes reserved, const std::vector<DeviceTerm>& terms, const Plan& plan);

/// cuBLAS's workspace per (thread, stream): 32 MiB on compute capability 9.0, 8.125 MiB elsewhere
/// (aten/src/ATen/cuda/CublasHandlePool.cpp, torch 2.11).
Bytes cublas_workspace(int compute_capability);

}  // namespace fsdp::simulator
