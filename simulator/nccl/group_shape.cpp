// The placement of the ranks of a group.
//
// Ranks are numbered node by node: rank r sits on node r / G of G GPUs each. A mesh (replicate, shard) numbers its
// shard dimension fastest, as FSDP2 and HSDP do:
//
//   2 nodes of 4, mesh (2, 4)     shard groups      {0 1 2 3} {4 5 6 7}          one node each
//                                 replicate groups  {0 4} {1 5} {2 6} {3 7}      one rank a node, over both
//   2 nodes of 4, mesh (4, 2)     shard groups      {0 1} {2 3} {4 5} {6 7}      one node each
//                                 replicate groups  {0 2 4 6} {1 3 5 7}          two ranks a node, over both
//
// A stride of s puts floor(G / s) ranks of a group on a node, at least one. Consecutive groups of N ranks start at
// multiples of N, hence anywhere on a node that is a multiple of gcd(N, G): the worst start is G - gcd(N, G).
//
// All groups of a dimension communicate at the same time. With n NICs on a node, G / k groups of k ranks each, and each
// group leaving through as many NICs as it has ranks (at most n), one NIC serves (G / k) min(k, n) / n groups.
//
// Measured times apply to a group inside one node with the same link as in the measurement: its kind, its nominal rate,
// NCCL's own choice, and no bus bandwidth of its own that differs from the usual one of the card. Another value means
// that this very machine was measured or calibrated.
//
// Sources: torch.distributed.device_mesh.init_device_mesh (row-major numbering), torchrun (ranks node by node).
//
// Not modeled: sibling groups that share PCIe lanes or the host's memory inside a node, and strides that divide neither
// the node nor are divided by it beyond the average.

#include "simulator/nccl/group_shape.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

namespace fsdp::simulator {

namespace {

int divide_up(int a, int b) {
  return (a + b - 1) / b;
}

int nodes_of(const Cluster& cluster, int ranks, int stride) {
  const int gpus = cluster.gpus_per_node;
  int nodes = 0;
  if (stride == 1) {
    nodes = divide_up(gpus - std::gcd(ranks, gpus) + ranks, gpus);
  } else {
    nodes = divide_up(ranks, std::max(1, gpus / stride));
  }
  return std::clamp(nodes, 1, std::min(ranks, cluster.nodes));
}

bool is_nvlink(IntraLink kind) {
  return kind == IntraLink::NvSwitch || kind == IntraLink::NvLink;
}

// A path between GPUs that is slower (or faster) than the slot counts as fewer (or more) lanes.
int effective_lanes(const Cluster& cluster) {
  const HostLink& host = cluster.host_link;
  const bool known = cluster.intra_node.bandwidth.value > BytesPerSecond(0) && host.bandwidth.value > BytesPerSecond(0);
  if (is_nvlink(cluster.intra_node.kind) || !known) return host.pcie_lanes;
  const double ratio = cluster.intra_node.bandwidth.value.count() / host.bandwidth.value.count();
  return std::max(1, static_cast<int>(std::lround(host.pcie_lanes * ratio)));
}

int groups_per_nic(int gpus_per_node, int ranks_per_node, int gpus_per_nic) {
  const int nics = divide_up(gpus_per_node, gpus_per_nic);
  const int groups = divide_up(gpus_per_node, ranks_per_node);
  return divide_up(groups * std::min(ranks_per_node, nics), nics);
}

MeasuredCard measured_on(const Cluster& cluster, const GroupShape& shape) {
  const Measurements* tables = cluster.gpu.measured.get();
  if (tables == nullptr || !tables->collectives || shape.nodes > 1) return {};
  const IntraNodeLink& link = cluster.intra_node;
  const IntraNodeLink& usual = cluster.gpu.intra_node;
  const bool is_this_link =
      link.kind == tables->collectives->link && link.bandwidth.value == tables->collectives->bandwidth;
  const bool says_more =
      link.bus_bandwidth && (!usual.bus_bandwidth || link.bus_bandwidth->value != usual.bus_bandwidth->value);
  const bool is_default =
      shape.nccl.algorithms == NcclRules{}.algorithms && shape.nccl.protocols == NcclRules{}.protocols;
  const auto& times = tables->collectives->times;
  const bool has_size =
      std::any_of(times.begin(), times.end(), [&](const MeasuredTimes& each) { return each.gpus == shape.ranks; });
  return is_this_link && is_default && !says_more && has_size ? cluster.gpu.measured : MeasuredCard{};
}

}  // namespace

GroupShape group_shape(const Cluster& cluster, int ranks, int stride) {
  assert(ranks >= 1 && stride >= 1);
  GroupShape shape;
  shape.ranks = ranks;
  shape.nodes = nodes_of(cluster, ranks, stride);
  shape.ranks_per_node = divide_up(ranks, shape.nodes);
  shape.gpus_per_node = cluster.gpus_per_node;
  shape.compute_capability = cluster.gpu.compute_capability;
  shape.intra_link = cluster.intra_node.kind;
  if (is_nvlink(shape.intra_link)) shape.nvlink_bandwidth = cluster.intra_node.bandwidth.value;
  shape.pcie_generation = cluster.host_link.pcie_generation;
  shape.pcie_lanes = effective_lanes(cluster);
  // A part of a mesh has a part of its links, so the bandwidth of the whole node does not apply.
  const bool like_the_whole_node = shape.intra_link != IntraLink::NvLink || ranks == cluster.gpus_per_node;
  if (cluster.intra_node.bus_bandwidth && like_the_whole_node) {
    shape.bus_bandwidth = cluster.intra_node.bus_bandwidth->value;
    shape.bus_bandwidth_provenance = cluster.intra_node.bus_bandwidth->provenance;
  }
  shape.cpu = cluster.cpu;
  shape.nccl = nccl_rules(cluster.nccl).value_or(NcclRules{});
  shape.measured = measured_on(cluster, shape);
  const MachineTables* own = cluster.gpu.machine.of_ranks(ranks);
  if (own != nullptr && !own->collectives.empty() && shape.nodes == 1) shape.machine = cluster.gpu.machine;
  if (shape.nodes == 1) return shape;
  shape.network = cluster.network.kind;
  shape.network_latency = cluster.network.latency.value;
  shape.nic_bandwidth = cluster.network.nic_bandwidth.value;
  shape.gpus_per_nic = std::clamp(cluster.network.gpus_per_nic, 1, cluster.gpus_per_node);
  shape.nic_near_gpu = cluster.network.nic_near_gpu;
  shape.groups_per_nic = groups_per_nic(cluster.gpus_per_node, shape.ranks_per_node, shape.gpus_per_nic);
  shape.sharp = cluster.network.sharp;
  return shape;
}

GroupShape group_shape(const Cluster& cluster, const Mesh& mesh, const RankGroup& ranks) {
  return group_shape(cluster, static_cast<int>(mesh.size(ranks)), static_cast<int>(mesh.stride(ranks)));
}

}  // namespace fsdp::simulator
