#pragma once

// Device memory beside what the allocator reserves, and how much is kept free to be on the safe side.

#include <vector>

#include "core/cluster.h"
#include "core/plan.h"
#include "core/report.h"

namespace fsdp::simulator {

/// CUDA context and NCCL's buffers, each with its source. PyTorch's cuBLAS workspaces are not here: they come from the
/// allocator.
std::vector<DeviceTerm> outside_terms(const Cluster& cluster, const Plan& plan);

/// Memory to keep free on top of a prediction: a share of what the allocator reserves, because the order of device
/// addresses is unknown, and a share of each outside term that is assumed and not measured.
struct MarginRule {
  double of_reserved = 0.02;  ///< Measured on a stand-in device: falling instead of rising addresses moved reserved
                              ///< bytes by at most 0.65 % under FSDP2.
  double of_assumed = 0.25;  ///< CUDA contexts reported for one card differ by about this much between versions.
};
Bytes margin(Bytes reserved, const std::vector<DeviceTerm>& terms, const MarginRule& rule = {});

/// cuBLAS's workspace per (thread, stream): 32 MiB on compute capability 9.0, 8.125 MiB elsewhere
/// (aten/src/ATen/cuda/CublasHandlePool.cpp, torch 2.11).
Bytes cublas_workspace(int compute_capability);

}  // namespace fsdp::simulator
