// The rings and trees that NCCL finds on a machine.
//
// NCCL walks a list of speeds from high to low and packs as many rings of that speed onto the links as they carry. A
// ring of speed b takes b from each link that it passes, so a GPU whose links carry B in total holds floor(B / b) of
// them. We do the same on the sums instead of on a graph:
//
//   one node        B = NVLink of the GPU (inside the group), or one PCIe path; channels = floor(B / b)
//   several nodes   one channel for each NIC that the group uses, at the speed of the NIC
//
// Fast channels are then split in two ("duplication"), because one channel's CTA cannot fill them. Link speeds are
// NCCL's own, lower than the nominal ones: 20.6 GB/s for a 25 GB/s NVLink of H100, 24 for PCIe gen4 x16.
//
//   H100 SXM, 8 of a node   18 links x 20.6 = 370.8;  6 x 60 -> split -> 12 x 30
//   A100 SXM, 8 of a node   12 links x 20   = 240;    6 x 40 -> split -> 12 x 20
//   H100, 4 nodes x 8       8 NICs of 50 GB/s         8 x 48, not split (more than 4 channels)
//
// Sources: NCCL src/graph/topo.h (speeds of links), src/graph/search.cc (lists of speeds, duplication),
// src/graph/connect.cc (channels of the communicator); channel counts printed by NCCL on p5 (16), Perlmutter 2x4 (8),
// Polaris 2x4 (4), and single-GPU nodes (2).
//
// Not modeled: the search itself. Boxes whose PCIe trees or NVLink meshes are uneven, rails that cross switches, and
// nodes with different numbers of ranks get the graph of the even box with the same totals.

#include "simulator/nccl/nccl_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <span>

namespace fsdp::simulator {

namespace {

constexpr int kMaxChannels = 32;

constexpr std::array kIntraSpeeds = {40., 30., 20., 18., 15., 12., 10., 9., 7., 6., 5., 4., 3.};
constexpr std::array kIntraSpeedsSm90 = {60., 50., 40., 30., 24., 20., 15., 12., 11., 6., 3.};
constexpr std::array kIntraSpeedsSm100 = {90., 80., 70., 60., 50., 45., 40., 30., 24., 20., 19., 18.};
constexpr std::array kInterSpeeds = {48., 30., 28., 24., 20., 18., 15., 12., 10., 9.,
                                     7.,  6.,  5.,  4.,  3.,  2.4, 1.2, .24, .12};
constexpr std::array kInterSpeedsSm90 = {48., 45., 42., 40., 30., 24., 22., 20., 17.5,
                                         15., 12., 6.,  3.,  2.4, 1.2, .24, .12};
constexpr std::array kInterSpeedsSm100 = {96., 86.,  80., 48., 45.1, 42., 40., 30., 24., 22.,
                                          20., 17.5, 15., 12., 6.,   3.,  2.4, 1.2, .24, .12};

std::span<const double> intra_speeds(int compute_capability) {
  if (compute_capability >= 100) return kIntraSpeedsSm100;
  if (compute_capability >= 90) return kIntraSpeedsSm90;
  return kIntraSpeeds;
}

std::span<const double> inter_speeds(int compute_capability) {
  if (compute_capability >= 100) return kInterSpeedsSm100;
  if (compute_capability >= 90) return kInterSpeedsSm90;
  return kInterSpeeds;
}

// The fastest speed of the list that a path of `limit` carries; a path slower than the whole list keeps its own speed.
double fitting_speed(std::span<const double> speeds, double limit) {
  for (const double speed : speeds) {
    if (speed <= limit) return speed;
  }
  return limit;
}

// NCCL's bandwidth of a link over the nominal one: 20.6 of 25 GB/s on H100.
double nvlink_derating(int compute_capability) {
  if (compute_capability >= 100) return 40.1 / 50;
  if (compute_capability >= 90) return 20.6 / 25;
  if (compute_capability == 86) return 12.0 / 14;
  if (compute_capability >= 70) return 20.0 / 25;
  return 18.0 / 20;
}

// The part of a GPU's NVLinks that stay inside the group when there is no switch.
double nvlink_share(const GroupShape& shape) {
  if (shape.intra_link == IntraLink::NvSwitch || shape.ranks_per_node >= shape.gpus_per_node) return 1;
  // The hybrid cube mesh of an 8-GPU V100 box: a pair has at least one link of six, and a quad has four of them inside.
  if (shape.compute_capability == 70 && shape.gpus_per_node == 8 && shape.ranks_per_node <= 4) {
    constexpr std::array kLinksInside = {0., 0., 1., 2., 4.};
    return kLinksInside[shape.ranks_per_node] / 6;
  }
  return static_cast<double>(shape.ranks_per_node - 1) / (shape.gpus_per_node - 1);
}

bool has_nvlink(const GroupShape& shape) {
  return shape.intra_link == IntraLink::NvSwitch || shape.intra_link == IntraLink::NvLink;
}

double pcie_bandwidth(const GroupShape& shape) {
  const double x16 = 12.0 * std::exp2(std::clamp(shape.pcie_generation, 1, 6) - 3);
  return x16 * shape.pcie_lanes / 16;
}

// Between the sockets. Without a known vendor, the common Skylake figure, which is also the most careful one.
double socket_bandwidth(CpuVendor cpu) {
  switch (cpu) {
    case CpuVendor::Amd:
      return 16;
    case CpuVendor::Arm:
      return 6;
    case CpuVendor::Intel:
    case CpuVendor::Unknown:
      return 10;
  }
  return 10;
}

// The rate of one GPU's links inside its node, in NCCL's GB/s.
double node_bandwidth(const GroupShape& shape) {
  if (has_nvlink(shape)) {
    return shape.nvlink_bandwidth.count() / 1e9 * nvlink_derating(shape.compute_capability) * nvlink_share(shape);
  }
  const double pcie = pcie_bandwidth(shape);
  // The driver that allows peer copies across host bridges sends them over the root complex, not through memory.
  if (shape.intra_link == IntraLink::PciePeer) return pcie;
  const bool crosses_sockets = shape.gpus_per_node > 2 && 2 * shape.ranks_per_node > shape.gpus_per_node;
  return crosses_sockets ? std::min(pcie, socket_bandwidth(shape.cpu)) : pcie;
}

NcclGraph duplicated(NcclGraph graph, int compute_capability) {
  const double speed = graph.intra_bandwidth;
  if (speed < 25 || (compute_capability > 80 && speed < 50 && graph.channels > 4)) return graph;
  return {2 * graph.channels, graph.intra_bandwidth / 2, graph.inter_bandwidth / 2};
}

NcclGraph one_node_graph(const GroupShape& shape, double links) {
  const auto speeds = intra_speeds(shape.compute_capability);
  if (!has_nvlink(shape)) {
    const double speed = fitting_speed(speeds, links);
    return {1, speed, speed};
  }
  NcclGraph best{1, fitting_speed(speeds, links), 0};
  for (const double speed : speeds) {
    const int channels = std::min(kMaxChannels / 2, static_cast<int>(links / speed + 1e-9));
    // The search stops at a good answer: it does not pack slow rings for the last two percent.
    if (channels * speed > 1.02 * best.channels * best.intra_bandwidth) best = {channels, speed, 0};
  }
  best.inter_bandwidth = best.intra_bandwidth;
  return duplicated(best, shape.compute_capability);
}

NcclGraph several_nodes_graph(const GroupShape& shape, double links) {
  const double nic = std::min(shape.nic_bandwidth.count() / 1e9, pcie_bandwidth(shape));
  int channels = (shape.ranks_per_node + shape.gpus_per_nic - 1) / std::max(1, shape.gpus_per_nic);
  double limit = nic;
  if (shape.ranks_per_node > 1) {
    limit = std::min(nic, links);
    // A channel leaves the node at one GPU, so of the ranks of a node all but one send over the links inside.
    const double inside = static_cast<double>(shape.ranks_per_node - 1) / shape.ranks_per_node;
    const int carried = std::max(1, static_cast<int>(links / (limit * inside) + 1e-9));
    channels = std::min({channels, carried, kMaxChannels});
  }
  const double speed = fitting_speed(inter_speeds(shape.compute_capability), limit);
  return duplicated({channels, speed, speed}, shape.compute_capability);
}

NcclGraph tree_graph(const NcclGraph& ring, const GroupShape& shape, double links) {
  NcclGraph tree = ring;
  if (shape.nodes == 1) return tree;
  // Two trees cross the NIC in opposite directions, so inside the node a channel may run at twice the NIC's speed.
  tree.intra_bandwidth = 2 * ring.inter_bandwidth;
  if (shape.ranks_per_node > 1) {
    tree.intra_bandwidth = std::clamp(links / ring.channels, ring.inter_bandwidth, tree.intra_bandwidth);
  }
  return tree;
}

NcclGraph nvls_graph(const NcclGraph& ring, const GroupShape& shape, double links) {
  // NCCL does not use NVLS for two GPUs, which gain nothing.
  const bool supported =
      shape.intra_link == IntraLink::NvSwitch && shape.compute_capability >= 90 && shape.ranks_per_node > 2;
  if (!supported) return {};
  const double speed = fitting_speed(intra_speeds(shape.compute_capability), links / shape.ranks_per_node);
  const double nic = ring.channels * ring.inter_bandwidth / shape.ranks_per_node;
  return {shape.ranks_per_node, speed, shape.nodes == 1 ? speed : nic};
}

int communicator_channels(const NcclGraph& ring, const GroupShape& shape) {
  int channels = 2 * ring.channels;
  if (shape.compute_capability == 90 && shape.nodes > 1 && ring.intra_bandwidth > 45 && channels < 16) channels *= 2;
  return std::min(channels, kMaxChannels);
}

}  // namespace

NcclTopology nccl_topology(const GroupShape& shape) {
  assert(shape.ranks >= 1 && shape.nodes >= 1 && shape.ranks_per_node >= 1);
  const double links = node_bandwidth(shape);
  NcclTopology topology;
  topology.ranks = shape.ranks;
  topology.nodes = shape.nodes;
  topology.compute_capability = shape.compute_capability;
  topology.cpu = shape.cpu;
  topology.gpu_links = shape.ranks_per_node > 1 ? links : 0;
  topology.nvlink = has_nvlink(shape) && shape.ranks_per_node > 1;
  topology.nvswitch = shape.intra_link == IntraLink::NvSwitch;
  topology.nic_near_gpu = shape.nic_near_gpu;
  topology.sharp = shape.sharp;
  topology.rules = shape.nccl;
  topology.ring = shape.nodes == 1 ? one_node_graph(shape, links) : several_nodes_graph(shape, links);
  topology.tree = tree_graph(topology.ring, shape, links);
  topology.nvls = nvls_graph(topology.ring, shape, links);
  topology.channels = communicator_channels(topology.ring, shape);
  if (topology.nvls.channels > 0) {
    const bool hopper = shape.compute_capability < 100;
    topology.nvls_channels = hopper ? 16 : shape.nodes == 1 ? 24 : 32;
  }
  return topology;
}

std::string describe(const NcclTopology& topology) {
  const NcclGraph& ring = topology.ring;
  return fmt::format("{} ring {} x {:.1f} GB/s", ring.channels, ring.channels == 1 ? "channel" : "channels",
                     topology.speed(ring));
}

}  // namespace fsdp::simulator
