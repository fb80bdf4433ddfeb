#pragma once

// NCCL's own predictor of a collective's time. NCCL uses it to choose an algorithm and a protocol, and so do we: it is
// exact as a selector. It is too fast as a clock; simulator/nccl/collective_cost.h corrects it.

#include <array>

#include "core/base/units.h"
#include "core/report/report.h"
#include "simulator/nccl/nccl_topology.h"

namespace fsdp::simulator {

inline constexpr int kNumCollectiveKinds = static_cast<int>(CollectiveKind::AllReduce) + 1;
static_assert(kNumCollectiveKinds == kNumNcclFunctions, "NcclRules are asked by the kind of a collective");

/// NCCL changed its formulas for NVLS and NVLSTree after this minor version; see nccl_tuning.cpp.
inline constexpr int kLastMinorOfOldNvls = 27;

/// One cell of the table that NCCL prints under `NCCL_DEBUG_SUBSYS=TUNING`.
struct NcclEntry {
  Seconds latency{};
  BytesPerSecond bandwidth{};  ///< Algorithm bandwidth. 0 if NCCL does not allow this cell.

  bool operator==(const NcclEntry&) const = default;
};

/// The whole table of one communicator.
struct NcclTuning {
  NcclTopology topology;
  /// [static_cast<std::size_t>(kind)][static_cast<std::size_t>(algorithm)][static_cast<std::size_t>(protocol)]
  std::array<std::array<std::array<NcclEntry, kNumNcclProtocols>, kNumNcclAlgorithms>, kNumCollectiveKinds> entries{};

  const NcclEntry& entry(CollectiveKind kind, NcclAlgorithm algorithm, NcclProtocol protocol) const {
    return entries[static_cast<std::size_t>(kind)][static_cast<std::size_t>(algorithm)]
                  [static_cast<std::size_t>(protocol)];
  }
};

/// NCCL's choice for one call, and its own estimate of the time.
struct NcclChoice {
  NcclAlgorithm algorithm = NcclAlgorithm::Ring;
  NcclProtocol protocol = NcclProtocol::Simple;
  Seconds latency{};   ///< The part of `time` that does not depend on the size.
  Seconds transfer{};  ///< The part of `time` that grows with the size.

  Seconds time() const { return latency + transfer; }
  bool operator==(const NcclChoice&) const = default;
};

/// How many thread blocks a call takes from the SMs while it runs.
struct NcclLaunch {
  int channels = 0;  ///< One thread block each.
  int threads = 0;   ///< Threads of one block.

  bool operator==(const NcclLaunch&) const = default;
};

/// Latencies that NCCL assumes for its rings, in microseconds: before the first step, and of one hop over the network.
struct RingLatency {
  double base_us = 0;
  double network_hop_us = 0;
};
RingLatency ring_latency(NcclProtocol protocol);

/// Fills the table. REQUIRES: at least two ranks.
NcclTuning nccl_tuning(const NcclTopology& topology);

/// The allowed cell with the least predicted time. `total` is the whole (gathered or unreduced) buffer, as in
/// nccl-tests: for all-gather and reduce-scatter the shard times the ranks. REQUIRES: `total` is positive.
NcclChoice nccl_choice(const NcclTuning& tuning, CollectiveKind kind, Bytes total);

/// The grid of the kernel that NCCL launches for `choice`: small calls use fewer channels and threads.
NcclLaunch nccl_launch(const NcclTuning& tuning, const NcclChoice& choice, Bytes total);

}  // namespace fsdp::simulator
