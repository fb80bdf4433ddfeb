#pragma once

// Durations of ops on a GPU: the larger of arithmetic and memory traffic, with stated efficiencies.

#include <array>
#include <optional>

#include "core/base/dtype.h"
#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "core/plan/runtime.h"
#include "simulator/nccl/collective_cost.h"
#include "simulator/ops/tape.h"

namespace fsdp::simulator {

/// Fused attention's share of the rate of products on a card without its own (FlashAttention-2 on H100).
inline constexpr double kAttentionShare = 0.65;

/// For a measured machine: the errors of plans that were not part of the calibration (docs/calibration.md).
inline constexpr UncertaintyBand kMachineBand{.low = 0.9, .high = 1.1};

/// Rates of arithmetic in one dtype on a card.
struct ArithmeticRates {
  FlopsPerSecond gemm{1e12};              ///< Rate of matrix products.
  FlopsPerSecond convolution{1e12};       ///< Rate of convolutions.
  FlopsPerSecond attention{1e12};         ///< Rate of fused attention.
  FlopsPerSecond peak{1e12};              ///< The card's peak, for MFU.
  FlopsPerSecond convolution_peak{1e12};  ///< The same for convolutions, which may run in TF32.

  bool operator==(const ArithmeticRates&) const = default;
};

/// The roofline's assumptions. Measured values of a calibration replace these.
struct ComputeCosts {
  Dtype activation = Dtype::BFloat16;
  std::array<ArithmeticRates, kNumFloatingPoint> by_dtype{};  ///< In the order of Dtype.
  FlopsPerSecond float8{1e12};                                ///< Rate of products of 8-bit floats,
  FlopsPerSecond float8_peak{1e12};                           ///< and the card's peak.
  BytesPerSecond memory{1e11};                                ///< Rate of memory-bound kernels.
  Seconds kernel_floor{2e-6};                                 ///< Start and end of each kernel on the device (assumed).
  BytesPerSecond host_link{0};                                ///< Bandwidth of one GPU to its host.
  Seconds launch{6e-6};  ///< CPU time to issue one kernel from eager PyTorch (assumed).

  MeasuredMachine machine = {};  ///< A measured machine, whose times precede all of the above. Empty if not measured.
  std::int64_t ranks = 1;        ///< The number of its ranks.
  bool on_host = false;          ///< True for a measured CPU: one thread computes, copies and starts collectives.

  /// In a dtype; defaults to that of the activations.
  const ArithmeticRates& rates(std::optional<Dtype> dtype = {}) const {
    return by_dtype[static_cast<std::size_t>(dtype.value_or(activation))];
  }

  /// nullptr if there are none.
  const MachineTables* tables() const { return machine.of_ranks(ranks); }

  MeasuredCard measured = {};  ///< Measured products, which show the loss of a shape. If empty, all shapes are alike.

  bool operator==(const ComputeCosts&) const = default;
};

/// From the cluster's GPU, the activations' dtype, and the float32 ops that run as TF32. A card without hardware for
/// the dtype (bf16 before Ampere) runs at its fp32 rate.
ComputeCosts compute_costs(const Gpu& gpu, Dtype activation, const Implementations& use);

/// The same on the slowest node of a cluster, for which the others wait: the costs of a step on several nodes.
ComputeCosts compute_costs(const Cluster& cluster, Dtype activation, const Implementations& use);

/// Time of the parts of an op on the device.
Seconds device_time(const OpWork::Part& part, const ComputeCosts& costs);

/// The band around the busy time of the compute stream in which nine of ten published steps lie: that of cards and
/// dtypes with fitted shares, and a wider one for all others. roofline.cpp explains the origin of both.
UncertaintyBand compute_band(const Gpu& gpu, Dtype activation);

}  // namespace fsdp::simulator
