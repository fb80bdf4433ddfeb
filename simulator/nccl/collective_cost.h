#pragma once

// The time of a collective: a measurement of such a node, otherwise NCCL's own choice of algorithm, with a clock fitted
// to published measurements. Queries are cheap: a cost is built once for a process group, and then each size is a table
// look-up.

#include <array>
#include <string>

#include "core/base/units.h"
#include "simulator/nccl/group_shape.h"
#include "simulator/nccl/nccl_tuning.h"

namespace fsdp::simulator {

/// The correction that applies; also the key under which errors were measured.
enum class LinkClass {
  NvlinkNode,    ///< One node, NVLink between its GPUs.
  PcieNode,      ///< One node, PCIe between its GPUs, with or without peer-to-peer.
  SeveralNodes,  ///< The slowest link is the network.
};

const char* to_string(LinkClass link_class);

/// The true time is expected between `low` and `high` times the predicted one.
struct UncertaintyBand {
  double low = 1;
  double high = 1;

  bool operator==(const UncertaintyBand&) const = default;
};

/// Time against size for one kind, at 4 sizes per octave from 256 B to 1 TiB, and linear between and beyond. Never
/// decreases.
struct TimeTable {
  static constexpr int kStepsPerOctave = 4;
  static constexpr int kFirstOctave = 8;
  static constexpr int kLastOctave = 40;
  static constexpr int kNumKnots = (kLastOctave - kFirstOctave) * kStepsPerOctave + 1;

  std::array<double, kNumKnots> seconds{};

  bool operator==(const TimeTable&) const = default;
};

struct CollectiveCost {
  GroupShape shape;
  LinkClass link_class = LinkClass::NvlinkNode;
  UncertaintyBand small_band;                         ///< Below 64 MiB, where latency and ramp weigh most.
  UncertaintyBand band;                               ///< From 64 MiB on: FSDP's large units.
  std::string provenance;                             ///< One sentence: the source of the times, and their quality.
  std::array<TimeTable, kNumCollectiveKinds> tables;  ///< [kind]; all 0 for one rank.
  /// [kind] The fraction of its time in a step that it takes alone: it works for that long, and otherwise waits for its
  /// turn.
  std::array<double, kNumCollectiveKinds> busy = {1, 1, 1};

  bool operator==(const CollectiveCost&) const = default;
};

/// Builds the cost of the collectives of one group. REQUIRES: the shape's counts are at least 1.
CollectiveCost collective_cost(const GroupShape& shape);

/// The time of one collective without overlap. `total` is the whole (gathered or unreduced) buffer, as in nccl-tests:
/// for all-gather and reduce-scatter the shard times the ranks. 0 if there is nothing to send, or nobody to send it to.
Seconds collective_time(const CollectiveCost& cost, CollectiveKind kind, Bytes total);

/// The band around `collective_time` for this size.
UncertaintyBand uncertainty(const CollectiveCost& cost, Bytes total);

/// The clock itself, which `collective_cost` tabulates. REQUIRES: at least two ranks, positive total.
Seconds corrected_time(const NcclTuning& tuning, LinkClass link_class, const GroupShape& shape, CollectiveKind kind,
                       Bytes total);

/// Bytes that one rank sends under a ring, the most of all ranks: (n-1)/n of the buffer, twice that for all-reduce, and
/// all of it for a broadcast.
/// Trees, NVLS, and the flags of LL and LL128 send other amounts; see collective_cost.cpp.
Bytes ring_bytes_sent(CollectiveKind kind, Bytes total, int ranks);

}  // namespace fsdp::simulator
