#include "simulator/nccl/group_shape.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "simulator/nccl/collective_cost.h"

namespace fsdp::simulator {
namespace {

Cluster h100_nodes(int nodes, int gpus_per_node = 8) {
  Cluster cluster;
  cluster.gpu.compute_capability = 90;
  cluster.gpus_per_node = gpus_per_node;
  cluster.nodes = nodes;
  cluster.cpu = CpuVendor::Intel;
  cluster.intra_node.kind = IntraLink::NvSwitch;
  cluster.intra_node.bandwidth.value = BytesPerSecond(450e9);
  cluster.host_link.pcie_generation = 5;
  cluster.host_link.bandwidth.value = BytesPerSecond(63e9);
  cluster.network.nic_bandwidth.value = BytesPerSecond(50e9);
  cluster.network.gpus_per_nic = 1;
  cluster.network.nic_near_gpu = true;
  return cluster;
}

TEST(GroupShape, AShardGroupOfOneNodeStaysOnItsNvlink) {
  const GroupShape shape = group_shape(h100_nodes(4), 8);
  EXPECT_EQ(shape.nodes, 1);
  EXPECT_EQ(shape.ranks_per_node, 8);
  EXPECT_EQ(shape.nvlink_bandwidth, BytesPerSecond(450e9));
  EXPECT_EQ(shape.nic_bandwidth, BytesPerSecond(0));
}

TEST(GroupShape, AReplicateGroupOfWholeNodesHasOneRankOnEach) {
  const GroupShape shape = group_shape(h100_nodes(4), 4, 8);
  EXPECT_EQ(shape.nodes, 4);
  EXPECT_EQ(shape.ranks_per_node, 1);
  EXPECT_EQ(shape.groups_per_nic, 1);
}

TEST(GroupShape, EightReplicateGroupsShareTheOnlyNicOfANode) {
  Cluster cluster = h100_nodes(4);
  cluster.network.gpus_per_nic = kMostGpusPerNode;  // More than there are: all of them.
  const GroupShape shape = group_shape(cluster, 4, 8);
  EXPECT_EQ(shape.gpus_per_nic, 8);
  EXPECT_EQ(shape.groups_per_nic, 8);
  EXPECT_EQ(group_shape(cluster, 32).groups_per_nic, 1);
}

TEST(GroupShape, AReplicateGroupOfHalfNodesHasTwoRanksOnEach) {
  const GroupShape shape = group_shape(h100_nodes(4), 8, 4);
  EXPECT_EQ(shape.nodes, 4);
  EXPECT_EQ(shape.ranks_per_node, 2);
}

TEST(GroupShape, UnevenShardGroupIsPricedAcrossTwoNodes) {
  EXPECT_EQ(group_shape(h100_nodes(3, 4), 3).nodes, 2);
  EXPECT_EQ(group_shape(h100_nodes(1, 4), 3).nodes, 1);
  EXPECT_EQ(group_shape(h100_nodes(3, 4), 6).nodes, 2);
}

// The oracle: list the ranks of every group of a dimension, and count its nodes.
int most_nodes(int gpus_per_node, int world_size, int ranks, int stride) {
  std::size_t most = 0;
  for (int first = 0; first < world_size; ++first) {
    // A group of the dimension starts where the position along the dimension is 0.
    if ((first / stride) % ranks != 0) continue;
    std::map<int, int> on_node;
    for (int i = 0; i < ranks; ++i) ++on_node[(first + i * stride) / gpus_per_node];
    most = std::max(most, on_node.size());
  }
  return static_cast<int>(most);
}

RC_GTEST_PROP(GroupShape, NodeCountOfAMeshMatchesItsListOfRanks, ()) {
  const int gpus_per_node = *rc::gen::element(1, 2, 4, 8);
  const int nodes = *rc::gen::element(1, 2, 4, 8);
  const int world_size = gpus_per_node * nodes;
  const int shard =
      *rc::gen::suchThat(rc::gen::element(1, 2, 4, 8, 16, 32, 64), [&](int n) { return n <= world_size; });
  const int replicate = world_size / shard;
  const Cluster cluster = h100_nodes(nodes, gpus_per_node);
  RC_ASSERT(group_shape(cluster, shard).nodes == most_nodes(gpus_per_node, world_size, shard, 1));
  RC_ASSERT(group_shape(cluster, replicate, shard).nodes == most_nodes(gpus_per_node, world_size, replicate, shard));
}

RC_GTEST_PROP(GroupShape, CountsTheNodesOfConsecutiveRanksForAnySizes, ()) {
  const int gpus_per_node = *rc::gen::inRange(1, 10);
  const int ranks = *rc::gen::inRange(1, 30);
  // As many nodes as it takes until the pattern of starts repeats.
  const Cluster cluster = h100_nodes(ranks * gpus_per_node, gpus_per_node);
  RC_ASSERT(group_shape(cluster, ranks).nodes ==
            most_nodes(gpus_per_node, ranks * gpus_per_node * gpus_per_node, ranks, 1));
}

TEST(GroupShape, PciePathAtHalfRateCountsAsHalfTheLanes) {
  Cluster cluster = h100_nodes(1, 4);
  cluster.intra_node.kind = IntraLink::PcieHost;
  cluster.intra_node.bandwidth.value = BytesPerSecond(31.5e9);
  EXPECT_EQ(group_shape(cluster, 4).pcie_lanes, 8);
  EXPECT_EQ(group_shape(cluster, 4).nvlink_bandwidth, BytesPerSecond(0));
}

// 5 GB/s were measured; gathering 1 GB over 4 ranks sends 0.75 GB each: 150 ms, and a little for the ramp.
TEST(GroupShape, LargeCollectivesReachTheMeasuredBusBandwidth) {
  Cluster cluster = h100_nodes(1, 4);
  cluster.intra_node.kind = IntraLink::PcieHost;
  cluster.intra_node.bus_bandwidth = {BytesPerSecond(5e9), Provenance::Measured, "nccl-tests"};
  const CollectiveCost cost = collective_cost(group_shape(cluster, 4));
  EXPECT_NEAR(collective_time(cost, CollectiveKind::AllGather, Bytes(1'000'000'000)).count(), .150, .001);
  // But PCIe boxes of one kind differ, so another one's figure leaves a wide band. The user's own does not.
  EXPECT_EQ(cost.band, (UncertaintyBand{.low = .17, .high = 3}));
  EXPECT_NE(cost.provenance.find("one PCIe node at 5 GB/s (measured). Not calibrated"), std::string::npos);
  cluster.intra_node.bus_bandwidth->provenance = Provenance::Given;
  EXPECT_EQ(collective_cost(group_shape(cluster, 4)).band, (UncertaintyBand{.low = .9, .high = 1.15}));
}

TEST(GroupShape, AssumedBusBandwidthWidensTheBand) {
  Cluster cluster = h100_nodes(1);
  cluster.intra_node.bus_bandwidth = {BytesPerSecond(358e9), Provenance::Measured, "nccl-tests"};
  EXPECT_EQ(collective_cost(group_shape(cluster, 8)).band, (UncertaintyBand{.low = .85, .high = 1.2}));
  cluster.intra_node.bus_bandwidth->provenance = Provenance::Assumed;
  EXPECT_EQ(collective_cost(group_shape(cluster, 8)).band, (UncertaintyBand{.low = .85, .high = 1.25}));
}

}  // namespace
}  // namespace fsdp::simulator
