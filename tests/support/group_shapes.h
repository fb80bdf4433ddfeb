#pragma once

// Process groups for the tests of NCCL's model.

#include "simulator/nccl/group_shape.h"

namespace fsdp::simulator {

/// H100s, eight to a node with NVSwitch, with a network card of 400 Gbit/s for each.
inline GroupShape h100_group(int nodes, int ranks_per_node) {
  return {.ranks = nodes * ranks_per_node,
          .ranks_per_node = ranks_per_node,
          .nodes = nodes,
          .gpus_per_node = 8,
          .compute_capability = 90,
          .intra_link = IntraLink::NvSwitch,
          .nvlink_bandwidth = BytesPerSecond(450e9),
          .pcie_generation = 5,
          .cpu = CpuVendor::Intel,
          .network = NetworkKind::Infiniband,
          .network_latency = usual_latency(NetworkKind::Infiniband).value,
          .nic_bandwidth = BytesPerSecond(50e9)};
}

/// A node of its own, whose GPUs are all of a group.
inline GroupShape one_node(int gpus, int compute_capability, IntraLink link) {
  return {.ranks = gpus,
          .ranks_per_node = gpus,
          .gpus_per_node = gpus,
          .compute_capability = compute_capability,
          .intra_link = link};
}

/// The same without NVLink.
inline GroupShape over_pcie(int gpus, int compute_capability, IntraLink link, int generation) {
  GroupShape shape = one_node(gpus, compute_capability, link);
  shape.pcie_generation = generation;
  return shape;
}

/// A group under NCCL 2.`minor`.
inline GroupShape with_version(GroupShape shape, int minor) {
  shape.nccl.minor_version = minor;
  return shape;
}

}  // namespace fsdp::simulator
