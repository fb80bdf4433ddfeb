// How NCCL predicts the time of a collective, and so chooses.
//
// For every (collective, algorithm, protocol) NCCL keeps a latency and an algorithm bandwidth, and for a call of S
// bytes it takes the cell with the least
//
//   time = latency + S / bandwidth.
//
// The bandwidth starts as what the channels carry together (bus = channels x speed), is cut to what a protocol and a
// GPU can drain, and is turned into algorithm bandwidth: a ring of n ranks moves n / steps bytes of the buffer for each
// byte on the bus, with n-1 steps for all-gather and reduce-scatter and 2(n-1) for all-reduce. The latency counts the
// hops: those inside nodes at the latency of NVLink or PCIe, those between nodes at the latency of the network.
//
//   ring, 2 nodes x 8 H100, all-gather, LL:   6.6 + 14 x 1 + 1 x 2.7 = 23.3 us;   39 GB/s x 16/15 = 41.6 GB/s
//   tree, 2 nodes x 8 H100, all-reduce, LL:   6.8 + 2 x (7 x 0.6 + 1 x 5) = 25.2 us
//
// The three protocols trade latency for bandwidth: LL sends 4 bytes of data with each 4 bytes of flag, LL128 120 bytes
// with 8, Simple whole chunks with a flag at the end.
//
// Two regimes. Up to 2.27 the NVLS bus is channels x min(intra, inter), half of inter beyond two nodes, times 5/6; from
// 2.28 on it has an efficiency of its own, loses one of its channels' worth, and NVLSTree waits 20.9 us for the network
// where it waited 14.
//
// Sources: NCCL 2.30.7, src/graph/tuning.cc (tables, refinements, correction of trees) and src/enqueue.cc (choice,
// number of threads); NCCL 2.27.5 for the older regime. The cells equal those printed by NCCL 2.27.5 on H100 (2 to 32
// nodes, 1 to 8 GPUs) and by NCCL 2.29.7 on two single-GPU nodes.
//
// Not modeled: NCCL before 2.20 (other bases and LL factors), the symmetric-memory kernels, tuner plugins, and several
// operations in one group call.

#include "simulator/nccl/nccl_tuning.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>

namespace fsdp::simulator {

namespace {

using enum NcclAlgorithm;

template <class T>
constexpr std::size_t index(T value) {
  return static_cast<std::size_t>(value);
}

using PerProtocol = std::array<double, kNumNcclProtocols>;
using PerNodes = std::array<double, 3>;  // One node, two nodes, more.
using ByArch = std::array<PerNodes, 4>;  // Volta and Turing, Ampere and Ada, Hopper, Blackwell.

// Latencies in microseconds, [algorithm][protocol]. NCCL also has one for cells that it never uses; they are 0 here.
constexpr std::array<PerProtocol, kNumNcclAlgorithms> kBaseLatency = {{
    {6.8, 14, 8.4},  // Tree
    {6.6, 14, 8.4},  // Ring
    {0, 0, 0},       // CollNetDirect
    {0, 0, 0},       // CollNetChain
    {0, 0, 0},       // NVLS
    {0, 0, 0},       // NVLSTree
    {8, 8, 8},       // PAT
}};
constexpr std::array<PerProtocol, kNumNcclAlgorithms> kNvlinkLatency = {
    {{.6, 1.25, 4.0}, {.6, 1.9, 3.4}, {0, 0, 3.7}, {0, 0, 2.8}, {0, 0, 25}, {0, 0, 25}, {0, 0, 4}}};
constexpr std::array<PerProtocol, kNumNcclAlgorithms> kPcieLatency = {
    {{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}, {0, 0, 3.7}, {0, 0, 2.8}, {0, 0, 0}, {0, 0, 0}, {0, 0, 4}}};
constexpr std::array<PerProtocol, kNumNcclAlgorithms> kNetworkLatency = {
    {{5.0, 8.5, 14}, {2.7, 4.0, 14}, {0, 0, 31}, {0, 0, 30}, {0, 0, 18}, {0, 0, 20.9}, {0, 0, 14}}};
constexpr double kNvlsTreeNetworkLatencyUpTo2_27 = 14;
constexpr int kFirstMinorWithPat = 23;

// Bandwidths in GB/s. For LL the rate of all channels together, otherwise that of one channel.
constexpr ByArch kMaxLL = {{{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
constexpr ByArch kMaxRingLL128 = {{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {40, 40, 40}}};
constexpr ByArch kMaxTreeLL128 = {{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr ByArch kMaxTree = {{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr ByArch kMaxNvlsTree = {{{0, 0, 0}, {0, 0, 0}, {0, 57.7, 45.5}, {0, 96, 80}}};
constexpr std::array<double, 4> kNvlsEfficiency = {0, 0, .85, .74};

// Trees are slower than the model at medium sizes; NCCL multiplies their bandwidth by this, indexed by log2(bytes /
// 64).
constexpr std::array<std::array<double, 24>, kNumNcclProtocols> kTreeCorrection = {{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9},
}};

std::size_t arch_index(int compute_capability) {
  if (compute_capability >= 100) return 3;
  if (compute_capability >= 90) return 2;
  return compute_capability >= 80 ? 1 : 0;
}

int floor_log2(int value) {
  return std::bit_width(static_cast<unsigned>(value)) - 1;
}

double per_nodes(const ByArch& table, const NcclTopology& t) {
  return table[arch_index(t.compute_capability)][index(std::min(t.nodes, 3) - 1)];
}

// Between nodes the CPU limits LL, so the row is that of the CPU's vendor, not of the GPU.
double max_ll(const NcclTopology& t) {
  if (t.nodes == 1) return per_nodes(kMaxLL, t);
  return kMaxLL[t.cpu == CpuVendor::Amd ? 1 : 0][index(std::min(t.nodes, 3) - 1)];
}

bool has_old_nvls(const NcclTopology& t) {
  return t.rules.minor_version <= kLastMinorOfOldNvls;
}

double ring_bus(const NcclTopology& t, NcclProtocol protocol) {
  const double bus = t.bus(t.ring);
  switch (protocol) {
    case NcclProtocol::LL:
      return std::min(max_ll(t), .5 * bus);
    case NcclProtocol::LL128:
      return std::min(.92 * bus, t.ring.channels * per_nodes(kMaxRingLL128, t));
    case NcclProtocol::Simple:
      return bus;
  }
  return 0;
}

double tree_bus(const NcclTopology& t, NcclProtocol protocol) {
  double bus = std::min(.92 * t.bus(t.tree), t.tree.channels * per_nodes(kMaxTree, t));
  if (protocol == NcclProtocol::LL) bus = std::min(bus / 3.8, max_ll(t));
  if (protocol == NcclProtocol::LL128) {
    bus = std::min(bus * (t.nodes == 1 ? 7.0 / 9 : 120.0 / 128), t.tree.channels * per_nodes(kMaxTreeLL128, t));
  }
  // There NCCL finds a plain tree; elsewhere one whose two halves leave the node at different GPUs.
  const bool plain_tree = t.compute_capability >= 90 || t.ranks == t.nodes;
  return plain_tree ? .85 * bus : bus;
}

double nvls_bus(const NcclTopology& t, CollectiveKind kind, bool tree) {
  const NcclGraph& g = t.nvls;
  if (has_old_nvls(t)) {
    double speed = g.intra_bandwidth;
    if (t.nodes > 1) speed = std::min(speed, t.nodes > 2 ? g.inter_bandwidth / 2 : g.inter_bandwidth);
    return g.channels * speed;
  }
  const double efficiency = kNvlsEfficiency[arch_index(t.compute_capability)];
  double speed = g.intra_bandwidth * efficiency * (g.channels - 1) / g.channels;
  if (kind == CollectiveKind::AllReduce) {
    speed *= 2;
  } else {
    speed *= (t.ranks_per_node() - 1) / t.ranks_per_node();
  }
  if (t.nodes > 1) speed = std::min(speed, tree && t.nodes <= 2 ? 2 * g.inter_bandwidth : g.inter_bandwidth);
  if (tree) speed = std::min(speed, per_nodes(kMaxNvlsTree, t));
  return g.channels * speed;
}

double collnet_bus(const NcclTopology& t, CollectiveKind kind, NcclAlgorithm algorithm) {
  if (algorithm == CollNetChain) return t.tree.channels * t.tree.intra_bandwidth;
  const double ppn = t.ranks_per_node();
  if (kind != CollectiveKind::AllReduce) return ppn * std::min(t.ring.intra_bandwidth, .9 * t.ring.inter_bandwidth);
  double factor = ppn / t.ring.channels;
  factor -= (factor - 1) / 2;
  const double bus = t.ring.channels * t.ring.intra_bandwidth / factor;
  return t.compute_capability >= 90 ? .85 * bus : bus;
}

double bus_bandwidth(const NcclTopology& t, CollectiveKind kind, NcclAlgorithm algorithm, NcclProtocol protocol) {
  switch (algorithm) {
    case Tree:
      return tree_bus(t, protocol);
    case Ring:
      return ring_bus(t, protocol);
    case CollNetDirect:
    case CollNetChain:
      return collnet_bus(t, kind, algorithm);
    case Nvls:
    case NvlsTree:
      return nvls_bus(t, kind, algorithm == NvlsTree);
    case Pat:
      return .75 * t.bus(t.tree);  // PAT runs on the tree's graph.
  }
  return 0;
}

// Bytes of the buffer for each byte on the bus. NCCL leaves this at 1 for non-ring all-gathers and reduce-scatters.
double bus_to_algorithm(const NcclTopology& t, CollectiveKind kind, NcclAlgorithm algorithm) {
  const bool reduces_all = kind == CollectiveKind::AllReduce;
  if (algorithm != Ring && !reduces_all) return 1;
  if ((algorithm == Nvls || algorithm == NvlsTree) && has_old_nvls(t)) return 5.0 / 6;
  if (algorithm == Ring || algorithm == Nvls || algorithm == NvlsTree) {
    return static_cast<double>(t.ranks) / (reduces_all ? 2 * (t.ranks - 1) : t.ranks - 1);
  }
  return .5;
}

double network_latency(const NcclTopology& t, NcclAlgorithm algorithm, NcclProtocol protocol) {
  double latency = kNetworkLatency[index(algorithm)][index(protocol)];
  // One GPU a node receives and sends through the same NIC.
  if (algorithm == Ring && t.ranks == t.nodes) latency = kNetworkLatency[index(Tree)][index(protocol)];
  if (algorithm == NvlsTree && has_old_nvls(t)) latency = kNvlsTreeNetworkLatencyUpTo2_27;
  // Simple waits once more for the flush after the data.
  return latency + (protocol == NcclProtocol::Simple ? 2 : 1) * t.nic_latency_us;
}

double latency_us(const NcclTopology& t, CollectiveKind kind, NcclAlgorithm algorithm, NcclProtocol protocol) {
  const double base = kBaseLatency[index(algorithm)][index(protocol)];
  const double intra = (t.nvlink ? kNvlinkLatency : kPcieLatency)[index(algorithm)][index(protocol)];
  const double inter = network_latency(t, algorithm, protocol);
  const double ppn = t.ranks_per_node();
  const int rounds = kind == CollectiveKind::AllReduce ? 2 : 1;
  switch (algorithm) {
    case Ring: {
      const double overhead =
          t.nodes == 1 ? 0 : (t.cpu == CpuVendor::Amd ? 2 : 1) * (protocol == NcclProtocol::Simple ? 3 : 1);
      const int steps = rounds * (t.ranks - 1);
      const int network_steps = rounds * (t.nodes - 1);
      return base + (steps - network_steps) * std::max(intra, overhead) + network_steps * inter;
    }
    case Tree:
      return base + 2 * ((t.ranks / t.nodes - 1) * intra + floor_log2(t.nodes) * inter);
    case CollNetDirect:
      return base + 2 * (std::min(1.0, ppn - 1) * intra + .4 * (ppn - 1)) + inter;
    case CollNetChain:
      return base + 2 * (ppn - 1) * intra + inter;
    case Nvls:
      return base + intra + (t.nodes > 1 ? inter : 0);
    case NvlsTree:
      return base + intra + 2 * floor_log2(t.nodes) * inter;
    case Pat:
      return base + floor_log2(t.nodes) * inter / 3.5 + 2.8 * t.ranks;
  }
  return base;
}

bool protocol_allowed(const NcclTopology& t, NcclProtocol protocol) {
  if (protocol == NcclProtocol::Simple) return true;
  if (protocol == NcclProtocol::LL) return true;
  // LL128 needs stores of 128 bytes to arrive whole: NVLink inside, and no host bridge on the way to the NIC.
  const bool whole_inside = t.nvlink || t.ranks == t.nodes;
  return whole_inside && (t.nodes == 1 || t.nic_near_gpu) && t.compute_capability >= 70;
}

bool algorithm_allowed(const NcclTopology& t, CollectiveKind kind, NcclAlgorithm algorithm, NcclProtocol protocol) {
  const bool reduces_all = kind == CollectiveKind::AllReduce;
  if (algorithm == Ring) return true;
  if (algorithm == Tree) return reduces_all;
  if (protocol != NcclProtocol::Simple) return false;
  switch (algorithm) {
    case CollNetDirect:
      return t.sharp && t.nodes > 1 && t.nvswitch;
    case CollNetChain:
      return t.sharp && t.nodes > 1 && reduces_all;
    case Nvls:
      return t.nvls.channels >= 2 && (t.nodes == 1 || t.sharp);
    case NvlsTree:
      return t.nvls.channels >= 2 && t.nodes > 1 && reduces_all;
    case Pat:
      return !reduces_all && t.nodes > 1 && t.ranks == t.nodes && t.compute_capability >= 60 &&
             t.rules.minor_version >= kFirstMinorWithPat;
    default:
      return false;
  }
}

double tree_correction(const NcclTopology& t, CollectiveKind kind, NcclAlgorithm algorithm, NcclProtocol protocol,
                       std::int64_t bytes) {
  const bool x86_blackwell = t.compute_capability >= 100 && t.cpu != CpuVendor::Arm;
  const bool lags = algorithm == Tree || (algorithm == NvlsTree && x86_blackwell);
  if (!lags || kind != CollectiveKind::AllReduce || bytes < 64) return 1;
  const auto row = index(std::bit_width(static_cast<std::uint64_t>(bytes) >> 6) - 1);
  const auto& factors = kTreeCorrection[index(protocol)];
  return row < factors.size() ? factors[row] : 1;
}

// Beyond 64 bytes for each rank and channel a ring between nodes has a plateau.
double ring_plateau(const NcclTopology& t, CollectiveKind kind, NcclAlgorithm algorithm, NcclProtocol protocol,
                    std::int64_t bytes) {
  const bool applies = algorithm == Ring && protocol == NcclProtocol::Simple && t.nodes > 1 &&
                       kind == CollectiveKind::AllReduce &&
                       bytes / (static_cast<std::int64_t>(t.channels) * t.ranks) >= 64;
  if (!applies) return 1;
  return t.compute_capability < 80 ? 1.9 : 1.4;
}

}  // namespace

RingLatency ring_latency(NcclProtocol protocol) {
  return {.base_us = kBaseLatency[index(Ring)][index(protocol)],
          .network_hop_us = kNetworkLatency[index(Ring)][index(protocol)]};
}

NcclTuning nccl_tuning(const NcclTopology& topology) {
  assert(topology.ranks >= 2 && topology.nodes >= 1 && topology.ring.channels >= 1 && topology.channels >= 1);
  NcclTuning tuning{.topology = topology};
  for (std::size_t k = 0; k < kNumCollectiveKinds; ++k) {
    for (std::size_t a = 0; a < kNumNcclAlgorithms; ++a) {
      for (std::size_t p = 0; p < kNumNcclProtocols; ++p) {
        const auto kind = static_cast<CollectiveKind>(k);
        const auto algorithm = static_cast<NcclAlgorithm>(a);
        const auto protocol = static_cast<NcclProtocol>(p);
        if (!topology.rules.allows(static_cast<int>(k), algorithm, protocol)) continue;
        if (!protocol_allowed(topology, protocol) || !algorithm_allowed(topology, kind, algorithm, protocol)) continue;
        const double bus = bus_bandwidth(topology, kind, algorithm, protocol);
        tuning.entries[k][a][p] = {
            .latency = Seconds(1e-6 * latency_us(topology, kind, algorithm, protocol)),
            .bandwidth = BytesPerSecond(1e9 * bus * bus_to_algorithm(topology, kind, algorithm))};
      }
    }
  }
  return tuning;
}

NcclChoice nccl_choice(const NcclTuning& tuning, CollectiveKind kind, Bytes total) {
  assert(total > Bytes(0));
  const NcclTopology& t = tuning.topology;
  NcclChoice best{.latency = Seconds::max()};
  for (std::size_t a = 0; a < kNumNcclAlgorithms; ++a) {
    for (std::size_t p = 0; p < kNumNcclProtocols; ++p) {
      const NcclEntry& entry = tuning.entries[index(kind)][a][p];
      if (entry.bandwidth <= BytesPerSecond(0)) continue;
      const auto algorithm = static_cast<NcclAlgorithm>(a);
      const auto protocol = static_cast<NcclProtocol>(p);
      const NcclChoice choice{
          .algorithm = algorithm,
          .protocol = protocol,
          .latency = entry.latency * ring_plateau(t, kind, algorithm, protocol, total.count()),
          .transfer = total / entry.bandwidth / tree_correction(t, kind, algorithm, protocol, total.count())};
      if (choice.time() < best.time()) best = choice;
    }
  }
  return best;
}

NcclLaunch nccl_launch(const NcclTuning& tuning, const NcclChoice& choice, Bytes total) {
  const NcclTopology& t = tuning.topology;
  const bool ring = choice.algorithm == Ring;
  const bool nvls = choice.algorithm == Nvls || choice.algorithm == NvlsTree;
  NcclLaunch launch{.channels = nvls ? t.nvls_channels : t.channels, .threads = 640};
  std::int64_t bytes_per_thread = 64;
  if (choice.protocol == NcclProtocol::Simple && ring) launch.threads = t.bus(t.ring) <= 12 ? 256 : 512;
  if (choice.protocol == NcclProtocol::LL) {
    launch.threads = 512;
    bytes_per_thread = ring ? 8 * static_cast<std::int64_t>(t.ranks) : 8;
  }
  if (choice.protocol == NcclProtocol::LL128) bytes_per_thread = 8;
  const auto too_small = [&] { return total.count() < launch.channels * launch.threads * bytes_per_thread; };
  while (too_small() && launch.channels > 1) --launch.channels;
  while (too_small() && launch.threads % 128 == 0) launch.threads /= 2;
  return launch;
}

}  // namespace fsdp::simulator
