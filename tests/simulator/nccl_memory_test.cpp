#include "simulator/nccl/nccl_memory.h"

#include <gtest/gtest.h>

#include "tests/support/group_shapes.h"

namespace fsdp::simulator {
namespace {

using namespace fsdp::literals;

GroupShape node_of(int gpus, int compute_capability, IntraLink link, double nvlink) {
  GroupShape shape = one_node(gpus, compute_capability, link);
  shape.nvlink_bandwidth = BytesPerSecond(nvlink);
  return shape;
}

// All-gather and reduce-scatter only: 24 channels x 12 MiB, and 180 MiB of queues and kernels.
TEST(NcclMemory, AGroupThatOnlyGathersAndScattersConnectsOnlyRings) {
  const auto terms = nccl_memory({"shard group", node_of(8, 90, IntraLink::NvSwitch, 450e9), false});
  ASSERT_EQ(terms.size(), 2u);
  EXPECT_EQ(terms[0].name, "nccl shard group: ring");
  EXPECT_EQ(terms[0].bytes, 288_MiB);
  EXPECT_EQ(terms[0].source, "12 MiB for each of 24 channels (NCCL src/transport/p2p.cc).");
  EXPECT_EQ(total_bytes(terms), 468_MiB);
}

// 288 + 288 + 256 + 180 MiB; 1.06 GB were measured.
TEST(NcclMemory, EightH100WithAnAllReduceAddTreesAndNvls) {
  const auto terms = nccl_memory({"shard group", node_of(8, 90, IntraLink::NvSwitch, 450e9), true});
  EXPECT_EQ(total_bytes(terms), 1012_MiB);
  EXPECT_NEAR(static_cast<double>(total_bytes(terms).count()), 1.06e9, .03e9);
}

// Beside those 7 x (32 x 12 + 63) MiB for the peers; 4.34 GB were measured.
TEST(NcclMemory, EightH100ThatExchangeTokensConnectEachPeer) {
  const auto terms = nccl_memory({"expert group", node_of(8, 90, IntraLink::NvSwitch, 450e9), true, true});
  EXPECT_EQ(total_bytes(terms), 4141_MiB);
  EXPECT_NEAR(static_cast<double>(total_bytes(terms).count()), 4.34e9, .02e9);
}

// 288 + 288 + 80 MiB; 688 MB were measured.
TEST(NcclMemory, A100WithAnAllReduceMatchTheMeasurement) {
  const auto terms = nccl_memory({"shard group", node_of(8, 80, IntraLink::NvSwitch, 300e9), true});
  EXPECT_NEAR(static_cast<double>(total_bytes(terms).count()), .688e9, .01e9);
}

TEST(NcclMemory, GpusConnectedByHostMemoryNeedLittle) {
  const auto terms = nccl_memory({"shard group", node_of(4, 75, IntraLink::PcieHost, 0), true});
  // Two channels: 8 MiB of rings, 8 MiB of trees, 80 MiB of queues and kernels.
  EXPECT_EQ(total_bytes(terms), 96_MiB);
}

// 24 NVLS channels x 2 x 1 MiB x 8 ranks.
TEST(NcclMemory, NvlsOnB200HasHalfMoreChannelsThanOnH100) {
  const auto terms = nccl_memory({"shard group", node_of(8, 100, IntraLink::NvSwitch, 900e9), true});
  EXPECT_EQ(terms[2].name, "nccl shard group: nvls");
  EXPECT_EQ(terms[2].bytes, 384_MiB);
}

// A replicate group has one rank a node: 4 channels, all through the NIC, 10 MiB each way, for rings and for trees.
TEST(NcclMemory, ReplicateGroupNeedsNetworkBuffers) {
  GroupShape shape = node_of(1, 90, IntraLink::NvSwitch, 450e9);
  shape.ranks = shape.nodes = 2;
  shape.gpus_per_node = 8;
  shape.pcie_generation = 5;
  shape.nic_bandwidth = BytesPerSecond(50e9);
  const auto terms = nccl_memory({"replicate group", shape, true});
  EXPECT_EQ(terms[0].name, "nccl replicate group: ring, network");
  EXPECT_EQ(terms[0].bytes, 80_MiB);
  EXPECT_EQ(total_bytes(terms), 340_MiB);
  shape.nic_near_gpu = false;
  EXPECT_EQ(total_bytes(nccl_memory({"replicate group", shape, true})), 180_MiB);
}

TEST(NcclMemory, AGroupOfOneRankTakesNothing) {
  EXPECT_TRUE(nccl_memory({"shard group", node_of(1, 90, IntraLink::NvSwitch, 450e9), true}).empty());
}

}  // namespace
}  // namespace fsdp::simulator
