#pragma once

// Derives from the shape of a process group the topology graphs that NCCL's search would find: how many channels, and
// the bandwidth of each.

#include <string>

#include "simulator/nccl/group_shape.h"

namespace fsdp::simulator {

/// One of NCCL's topology graphs: parallel rings or trees over the same ranks. Bandwidths are those of one channel in
/// GB/s (1e9), the unit of NCCL's logs and tables.
struct NcclGraph {
  int channels = 0;  ///< 0 if the graph does not exist on this machine.
  double intra_bandwidth = 0;
  double inter_bandwidth = 0;

  bool operator==(const NcclGraph&) const = default;
};

/// The facts of a communicator that NCCL's tuning reads.
struct NcclTopology {
  int ranks = 1;
  int nodes = 1;
  int compute_capability = 80;
  CpuVendor cpu = CpuVendor::Unknown;
  bool nvlink = false;        ///< True if the ranks of a node communicate over NVLink.
  bool nvswitch = false;      ///< True if they do so through a switch.
  bool nic_near_gpu = true;   ///< True if GPU and NIC are under one PCIe switch.
  bool sharp = false;         ///< True if a CollNet plugin is loaded.
  NcclRules rules = {};       ///< The choices that NCCL_ALGO, NCCL_PROTO or a network plugin leave.
  double nic_latency_us = 0;  ///< The network plugin's claim; biases NCCL's choice, never our clock.
  NcclGraph ring;
  NcclGraph tree;
  NcclGraph nvls;         ///< One channel for each rank of a node. Needs an NVSwitch and compute capability 90.
  int channels = 0;       ///< Channels of the communicator: those that it launches, and that own buffers.
  int nvls_channels = 0;  ///< CTAs that NVLS uses, and whose buffers it owns.
  double gpu_links = 0;   ///< Rate of one GPU's links to the others of its node, GB/s. 0 if there are none.

  /// Speed of one channel of a graph between its slowest two ranks, GB/s.
  double speed(const NcclGraph& graph) const { return nodes <= 2 ? graph.intra_bandwidth : graph.inter_bandwidth; }
  /// Rate of all channels of a graph together, GB/s.
  double bus(const NcclGraph& graph) const { return graph.channels * speed(graph); }
  double ranks_per_node() const { return static_cast<double>(ranks) / nodes; }

  bool operator==(const NcclTopology&) const = default;
};

/// The graphs for a group. REQUIRES: `shape.ranks`, `shape.nodes` and `shape.ranks_per_node` are at least 1.
NcclTopology nccl_topology(const GroupShape& shape);

/// "12 channels x 30.0 GB/s": for the assumptions that a report prints.
std::string describe(const NcclTopology& topology);

}  // namespace fsdp::simulator
