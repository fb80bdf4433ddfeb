#pragma once

// The shape of a process group: all that the cost of a collective depends on. A group of 16,384 ranks is as small as a
// group of two.

#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "core/plan/mesh.h"

namespace fsdp::simulator {

struct GroupShape {
  int ranks = 1;           ///< Ranks of the group.
  int ranks_per_node = 1;  ///< Ranks of the group on one node; rounded up if nodes differ.
  int nodes = 1;           ///< Nodes that hold at least one rank of the group.
  int gpus_per_node = 1;   ///< GPUs of a node, in the group or not.

  int compute_capability = 80;  ///< 75 for T4, 80 for A100, 90 for H100.
  IntraLink intra_link = IntraLink::PcieHost;
  BytesPerSecond nvlink_bandwidth{};  ///< Nominal, of one GPU, per direction: 450e9 for H100 SXM. 0 without NVLink.
  int pcie_generation = 4;
  int pcie_lanes = 16;
  /// Bus bandwidth (as nccl-tests defines it) that large all-gathers reach inside such a node. 0 if unknown.
  BytesPerSecond bus_bandwidth{};
  Provenance bus_bandwidth_provenance = Provenance::Assumed;
  CpuVendor cpu = CpuVendor::Unknown;

  NetworkKind network = NetworkKind::Ethernet;
  Seconds network_latency = kNcclNetworkLatency;  ///< Latency of one hop between nodes.
  BytesPerSecond nic_bandwidth{};  ///< Bandwidth of one NIC, or of all NICs of a GPU that owns several. 0 for one node.
  int gpus_per_nic = 1;            ///< 8 if all GPUs of a node share one NIC.
  bool nic_near_gpu = true;        ///< GPU and NIC under one PCIe switch (GPUDirect): NCCL may then use LL128.
  /// Groups that run the same collective at the same time through one NIC, including this one: with HSDP every GPU of a
  /// node belongs to another replicate group. The clock uses it; NCCL's choice does not.
  int groups_per_nic = 1;
  bool sharp = false;  ///< True if the network reduces (CollNet plugin loaded).
  NcclRules nccl = {};
  /// Measurements of nodes of such GPUs and links. Has no collectives if they do not apply to this group.
  MeasuredCard measured = {};
  MeasuredMachine machine = {};  ///< Measurements of this very machine with as many ranks of one node.

  bool operator==(const GroupShape&) const = default;
};

/// The shape of a group of `ranks` ranks that lie `stride` apart. If groups of one mesh dimension are placed
/// differently, it is the one that spans most nodes. REQUIRES: at least one rank, stride 1 or more.
GroupShape group_shape(const Cluster& cluster, int ranks, int stride = 1);

/// The shape of a group of a mesh; that of one rank if it is empty.
GroupShape group_shape(const Cluster& cluster, const Mesh& mesh, const RankGroup& ranks);

}  // namespace fsdp::simulator
