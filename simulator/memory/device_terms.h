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

/// Memory to keep free on top of a prediction: a share of what the allocator reserves, because which block a request
/// gets depends on small allocations of the user's code and on the order of device addresses, and a share of each
/// outside term that is not measured.
struct MarginRule {
  /// With plain segments. Under the published Qwen3-TTS code (real FSDP2 on a stand-in device) 13.4 GiB were reserved
  /// where 12.6 are predicted.
  double of_reserved = 0.06;
  double of_reserved_expandable = 0.03;  ///< With expandable segments: 11.2 GiB where 10.9 are predicted.
  /// CUDA contexts reported for one card differ by about this much between versions of driver and PyTorch.
  double of_unmeasured = 0.25;
};
Bytes margin(Bytes reserved, const std::vector<DeviceTerm>& terms, const Plan& plan, const MarginRule& rule = {});

/// cuBLAS's workspace per (thread, stream): 32 MiB on compute capability 9.0, 8.125 MiB elsewhere
/// (aten/src/ATen/cuda/CublasHandlePool.cpp, torch 2.11).
Bytes cublas_workspace(int compute_capability);

}  // namespace fsdp::simulator
