#pragma once

// The shape of a process group: all that the cost of a collective depends on. A group of 16,384 ranks is as small as a
// group of two.

#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "core/plan/mesh.h"

namespace fsdp::simulator {

struct GroupShape {
  int ranks = 1;           ///< Ranks of the group.
  int ranks_per_node = 1;  ///< Ranks of the group on one node; rounded up where nodes differ.
  int nodes = 1;           ///< Nodes that hold at least one rank of the group.
  int gpus_per_node = 1;   ///< GPUs of a node, in the group or not.

  int compute_capability = 80;  ///< 75 for T4, 80 for A100, 90 for H100.
  IntraLink intra_link = IntraLink::PcieHost;
  BytesPerSecond nvlink_bandwidth{};  ///< Nominal, of one GPU, per direction: 450e9 for H100 SXM. 0 without NVLink.
  int pcie_generation = 4;
  int pcie_lanes = 16;
  /// Bus bandwidth (as nccl-tests defines it) that large all-gathers reach inside such a node. 0: nobody says.
  BytesPerSecond bus_bandwidth{};
  Provenance bus_bandwidth_provenance = Provenance::Assumed;
  CpuVendor cpu = CpuVendor::Unknown;

  NetworkKind network = NetworkKind::Ethernet;
  Seconds network_latency = kNcclNetworkLatency;  ///< Latency of one hop between nodes.
  BytesPerSecond nic_bandwidth{};  ///< Bandwidth of one NIC, or of all NICs together where one GPU owns several. 0 if
                                   ///< one node.
  int gpus_per_nic = 1;            ///< 8 where all GPUs of a node share one NIC.
  bool nic_near_gpu = true;        ///< GPU and NIC under one PCIe switch (GPUDirect): NCCL may then use LL128.
  /// Groups that run the same collective at the same time through one NIC, this one included: with HSDP every GPU of
  /// a node belongs to another replicate group. NCCL's choice does not see it, the clock does.
  int groups_per_nic = 1;
  bool sharp = false;  ///< The network reduces (CollNet plugin loaded).
  NcclRules nccl = {};
  /// Measurements of nodes of such GPUs and links; no collectives in it where they say nothing about this group.
  MeasuredCard measured = {};
  MeasuredMachine machine = {};  ///< This very machine, where it has collectives of so many ranks of one node.

  bool operator==(const GroupShape&) const = default;
};

/// The shape of a group of `ranks` ranks that lie `stride` apart. Where groups of one mesh dimension lie differently on
/// the nodes, it is the one that spans most nodes. REQUIRES: at least one rank, stride 1 or more.
GroupShape group_shape(const Cluster& cluster, int ranks, int stride = 1);

/// The shape of the groups along an axis of a mesh.
GroupShape axis_group(const Cluster& cluster, const Mesh& mesh, MeshAxis axis);

}  // namespace fsdp::simulator
