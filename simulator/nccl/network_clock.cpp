// A clock for collectives between nodes.
//
// NCCL's predictor gives each choice a latency L and a transfer X (nccl_tuning.cpp). Published tables show three
// effects over a network that it omits. One number of the network describes them: h, the excess of a hop's time over
// the 14 us that NCCL assumes (2 us over InfiniBand and RoCE, 36 us over EFA).
//
// Rings walk in lockstep. Each of the s = n - 1 steps (twice that for an all-reduce) waits for the slowest hop of the
// ring, which is one over the network, although NCCL counts most of them as hops inside nodes. 80 GPUs on 10 nodes need
// as long for each of their steps as 20 GPUs on 10 nodes, and 512 GPUs pay 511 of them. The more a step sends, the more
// of that the transfer hides; the norm blends the two smoothly:
//
//   S = base + 0.7 s (hop of the protocol + h),   t = (S^1.3 + X'^1.3)^(1 / 1.3).
//
// A ring also passes through the nodes. If it is as fast as the NVLinks that carry it, it loses some of that speed:
//
//   X' = X (1 + (bus / links)^4)^(1/4):   8 rails of H100 reach 0.84 of the NICs' rate, of A100 0.92, 4 of H100 0.98.
//
// Small messages (protocol LL) are pure latency, as NCCL counts it: t = 0.9 (L + h for each hop) + X in that norm.
//
// Trees, NVLSTree, NVLS, CollNet and PAT cut the buffer into chunks, and each of their d hops over the network waits
// for a chunk, except under LL. Chunks grow with the buffer up to a limit, and so does the wait, up to R:
//
//   R = d (8.5 h + 42 us under NVLSTree),   t = 0.9 (L + d h) + X + R X / (X + 0.3 R).
//
// Groups that use one NIC at the same time share it: X is multiplied.
//
// Sources: the constants and h were fitted (grid descent, relative error, each owner with the same weight) to 27 tables
// that nine owners of machines published. tests/golden/nccl/README.md names them, and the remaining error on the tables
// of an owner that took no part: 7 % over InfiniBand and RoCE, 14 % over EFA from 1 MiB on.
//
// Not modeled: other traffic on the network and its topology beyond the first switch, NICs without GPUDirect (two T4
// over EFA reach half of the NIC's rate), different fabrics under one name: two Slingshot machines differ by a factor
// of two.

#include "simulator/nccl/network_clock.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "simulator/nccl/smooth_maximum.h"

namespace fsdp::simulator {

namespace {

constexpr double kStepShare = .7;
constexpr double kLatencyFactor = .9;
constexpr double kChunkHops = 8.5;
constexpr double kNvlsTreeChunk = 42;
constexpr double kChunkGrowth = .3;

// The slowdown of a ring that passes through nodes whose links are hardly faster than it.
double passing_through(const NcclTopology& t, double sharing) {
  if (t.gpu_links <= 0) return 1;
  const double load = t.bus(t.ring) / sharing / t.gpu_links;
  return std::pow(1 + std::pow(load, 4), .25);
}

double ring_time(const NcclTopology& t, const NcclChoice& choice, int rounds, double hop, double transfer) {
  if (choice.protocol == NcclProtocol::LL) {
    const double latency = 1e6 * choice.latency.count() + rounds * (t.nodes - 1) * hop;
    return smooth_maximum(kLatencyFactor * latency, transfer);
  }
  const RingLatency latency = ring_latency(choice.protocol);
  const double steps = rounds * (t.ranks - 1);
  return smooth_maximum(latency.base_us + kStepShare * steps * (latency.network_hop_us + hop), transfer);
}

double tree_time(const NcclTopology& t, const NcclChoice& choice, int rounds, double hop, double transfer) {
  const double hops = rounds * (std::bit_width(static_cast<unsigned>(t.nodes)) - 1);
  const double chunk = kChunkHops * hop + (choice.algorithm == NcclAlgorithm::NvlsTree ? kNvlsTreeChunk : 0);
  const double longest = choice.protocol == NcclProtocol::LL ? 0 : hops * chunk;
  const double wait = longest > 0 ? longest * transfer / (transfer + kChunkGrowth * longest) : 0;
  return kLatencyFactor * (1e6 * choice.latency.count() + hops * hop) + transfer + wait;
}

}  // namespace

Seconds time_over_network(const NcclTuning& tuning, const GroupShape& shape, CollectiveKind kind, Bytes total) {
  assert(shape.nodes > 1 && total > Bytes(0));
  const NcclTopology& t = tuning.topology;
  const NcclChoice choice = nccl_choice(tuning, kind, total);
  const int rounds = kind == CollectiveKind::AllReduce ? 2 : 1;
  const double hop = std::max(0.0, 1e6 * (shape.network_latency - kNcclNetworkLatency).count());
  const double sharing = std::max(1, shape.groups_per_nic);
  const double transfer = 1e6 * choice.transfer.count() * sharing;
  const double time = choice.algorithm == NcclAlgorithm::Ring
                          ? ring_time(t, choice, rounds, hop, transfer * passing_through(t, sharing))
                          : tree_time(t, choice, rounds, hop, transfer);
  return Seconds(1e-6 * time);
}

}  // namespace fsdp::simulator
