#pragma once

// How long ops take on a GPU: the larger of arithmetic and memory traffic, with stated efficiencies.

#include "core/cluster.h"
#include "core/dtype.h"
#include "core/units.h"
#include "simulator/tape.h"

namespace fsdp::simulator {

/// What the roofline assumes. The seam for calibration: measured values replace these.
struct ComputeCosts {
  FlopsPerSecond gemm{1e12};       ///< What matrix products reach.
  FlopsPerSecond attention{1e12};  ///< What fused attention reaches.
  BytesPerSecond memory{1e11};     ///< What memory-bound kernels reach.
  Seconds kernel_floor{2e-6};      ///< Start and end of each kernel on the device (assumed).
  Seconds launch{6e-6};            ///< CPU time to issue one kernel from eager PyTorch (assumed).
  FlopsPerSecond peak{1e12};       ///< The card's peak in this dtype, for MFU.

  bool operator==(const ComputeCosts&) const = default;
};

/// From the cluster's GPU and the activations' dtype. A card without hardware for the dtype (bf16 before Ampere) runs
/// at its fp32 rate.
ComputeCosts compute_costs(const Gpu& gpu, Dtype activation);

/// Time of the parts of an op on the device.
Seconds device_time(const OpWork::Part& part, const ComputeCosts& costs);

}  // namespace fsdp::simulator
