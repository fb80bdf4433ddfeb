#include "simulator/nccl/nccl_tuning.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/group_shapes.h"

namespace fsdp::simulator {
namespace {

using namespace fsdp::literals;
using enum CollectiveKind;
using enum NcclAlgorithm;
using enum NcclProtocol;

NcclTuning h100_tuning(int nodes, int ranks_per_node, int minor_version = 27) {
  return nccl_tuning(nccl_topology(with_version(h100_group(nodes, ranks_per_node), minor_version)));
}

// Latency in us and bandwidth in GB/s, rounded to one digit as NCCL prints them.
struct Printed {
  double latency;
  double bandwidth;
};

void expect_printed(const NcclTuning& tuning, CollectiveKind kind, NcclAlgorithm algorithm, NcclProtocol protocol,
                    Printed expected) {
  const NcclEntry& entry = tuning.entry(kind, algorithm, protocol);
  SCOPED_TRACE(fmt::format("{} {}", name_of(algorithm), name_of(protocol)));
  EXPECT_NEAR(1e6 * entry.latency.count(), expected.latency, .0501);
  EXPECT_NEAR(1e-9 * entry.bandwidth.count(), expected.bandwidth, .0501);
}

struct PrintedRow {
  int nodes;
  int ranks_per_node;
  Printed ll;
  Printed ll128;
  Printed simple;
};

void expect_rows(const std::vector<PrintedRow>& rows, CollectiveKind kind, NcclAlgorithm algorithm) {
  for (const PrintedRow& row : rows) {
    SCOPED_TRACE(std::to_string(row.nodes) + " nodes of " + std::to_string(row.ranks_per_node));
    const NcclTuning tuning = h100_tuning(row.nodes, row.ranks_per_node);
    expect_printed(tuning, kind, algorithm, LL, row.ll);
    expect_printed(tuning, kind, algorithm, LL128, row.ll128);
    expect_printed(tuning, kind, algorithm, Simple, row.simple);
  }
}

// The numbers of the next three tests are from NCCL 2.27.5's own tuning logs on H100 SXM, Intel, one 400G NIC per GPU,
// as copied into meta-pytorch/autoparallel@a54c252, autoparallel/cost_models/nccl_cost_model.py.

TEST(NcclTuning, RingAllGatherAndReduceScatterMatchNcclsTable) {
  const std::vector<PrintedRow> rows = {
      {2, 8, {23.3, 41.6}, {44.6, 313.2}, {70.0, 409.6}},     {4, 8, {42.7, 21.1}, {79.2, 303.1}, {145.6, 396.4}},
      {16, 8, {159.1, 20.6}, {286.8, 295.9}, {599.2, 387.0}}, {2, 1, {11.6, 48}, {22.5, 88.3}, {22.4, 96}},
      {4, 4, {26.7, 21.8}, {48.8, 188.4}, {91.2, 204.8}},
  };
  expect_rows(rows, AllGather, Ring);
  expect_rows(rows, ReduceScatter, Ring);
}

TEST(NcclTuning, RingAllReduceMatchesNcclsTable) {
  expect_rows({{2, 8, {40, 20.8}, {75.2, 156.6}, {131.6, 204.8}}, {8, 8, {156.4, 10.4}, {282.8, 149.1}, {585.2, 195}}},
              AllReduce, Ring);
}

TEST(NcclTuning, TreeAllReduceMatchesNcclsTable) {
  expect_rows({{2, 8, {25.2, 16.6}, {48.5, 124.8}, {92.4, 140.8}},
               {8, 8, {45.2, 8.7}, {82.5, 98.6}, {148.4, 122.4}},
               {4, 1, {26.8, 4.9}, {48, 17.6}, {64.4, 18.8}}},
              AllReduce, Tree);
}

TEST(NcclTuning, NvlsTreeOfTheOlderRegimeMatchesNcclsTable) {
  expect_printed(h100_tuning(2, 8), AllReduce, NvlsTree, Simple, {53, 266.7});
  expect_printed(h100_tuning(4, 8), AllReduce, NvlsTree, Simple, {81, 160});
  expect_printed(h100_tuning(2, 4), AllReduce, NvlsTree, Simple, {53, 160});
}

// 40 GB/s x 0.85 x 7/8 x 2 = 59.5 a channel inside, cut to 57.7; 8 channels; 16/30 of the bus: 246.2 GB/s.
// 25 + 2 x 20.9 = 66.8 us.
TEST(NcclTuning, NvlsTreeOfTheNewerRegimeIsCappedPerChannel) {
  expect_printed(h100_tuning(2, 8, 28), AllReduce, NvlsTree, Simple, {66.8, 246.2});
}

// NCCL 2.29.7, two nodes of one GPU each, sockets over two 1.2 GB/s paths, as printed by NCCL.
NcclTopology two_nodes_over_sockets() {
  NcclTopology topology;
  topology.ranks = 2;
  topology.nodes = 2;
  topology.compute_capability = 120;
  topology.nic_near_gpu = false;
  topology.ring = {.channels = 2, .intra_bandwidth = 1.2, .inter_bandwidth = 1.2};
  topology.tree = {.channels = 2, .intra_bandwidth = 2.4, .inter_bandwidth = 1.2};
  topology.channels = 4;
  return topology;
}

TEST(NcclTuning, TwoNodesOverSocketsMatchNcclsTableWithoutLL128) {
  const NcclTuning tuning = nccl_tuning(two_nodes_over_sockets());
  expect_printed(tuning, AllGather, Ring, LL, {11.6, 2.4});
  expect_printed(tuning, AllGather, Ring, Simple, {22.4, 4.8});
  EXPECT_EQ(tuning.entry(AllGather, Ring, LL128).bandwidth, BytesPerSecond(0));
}

// The log counts one rank's part: 16 KB, 32 KB and 64 KB of it are twice that as whole buffers.
TEST(NcclTuning, TwoNodesOverSocketsChooseLLThenPatThenSimple) {
  const NcclTuning tuning = nccl_tuning(two_nodes_over_sockets());
  const auto choice = [&](Bytes part) {
    const NcclChoice choice = nccl_choice(tuning, AllGather, 2 * part);
    return std::string(name_of(choice.algorithm)) + " " + std::string(name_of(choice.protocol));
  };
  EXPECT_EQ(choice(1_KiB), "Ring LL");
  EXPECT_EQ(choice(16_KiB), "Ring LL");
  EXPECT_EQ(choice(32_KiB), "PAT Simple");
  EXPECT_EQ(choice(64_KiB), "Ring Simple");
  EXPECT_EQ(choice(64_MiB), "Ring Simple");
}

TEST(NcclTuning, H100NodeReducesInTheSwitchAndGathersInARing) {
  const NcclTuning tuning = h100_tuning(1, 8, 30);
  EXPECT_EQ(nccl_choice(tuning, AllReduce, 1_GiB).algorithm, Nvls);
  EXPECT_EQ(nccl_choice(tuning, AllGather, 1_GiB).algorithm, Ring);
  // 8 x 59.5 = 476 GB/s on the bus; nccl-tests measured 478 to 483 on such nodes.
  expect_printed(tuning, AllReduce, Nvls, Simple, {25, 272});
}

TEST(NcclTuning, PcieNodesNeverUseLL128) {
  const GroupShape shape{.ranks = 4, .ranks_per_node = 4, .gpus_per_node = 4, .compute_capability = 75};
  const NcclTuning tuning = nccl_tuning(nccl_topology(shape));
  EXPECT_EQ(tuning.entry(AllGather, Ring, LL128).bandwidth, BytesPerSecond(0));
  EXPECT_EQ(tuning.entry(AllReduce, Tree, LL128).bandwidth, BytesPerSecond(0));
  EXPECT_GT(tuning.entry(AllGather, Ring, LL).bandwidth, BytesPerSecond(0));
}

TEST(NcclTuning, AmdHostHasItsOwnRowForLLAndSlowerHops) {
  GroupShape shape = h100_group(2, 8);
  shape.cpu = CpuVendor::Amd;
  const NcclTuning tuning = nccl_tuning(nccl_topology(shape));
  // 6.6 + 14 x 2 + 2.7; 22.5 x 16/15.
  expect_printed(tuning, AllGather, Ring, LL, {37.3, 24});
}

TEST(NcclTuning, ForbiddenAlgorithmsAreNotChosen) {
  GroupShape shape = h100_group(1, 8);
  shape.nccl = *nccl_rules({.algorithms = "^NVLS", .protocols = "Simple"});
  const NcclTuning tuning = nccl_tuning(nccl_topology(shape));
  EXPECT_EQ(nccl_choice(tuning, AllReduce, 1_GiB).algorithm, Ring);
  EXPECT_EQ(nccl_choice(tuning, AllGather, 1_KiB).protocol, Simple);
  EXPECT_EQ(tuning.entry(AllGather, Ring, LL).bandwidth, BytesPerSecond(0));
}

TEST(NcclTuning, PatExistsSinceNccl2_23) {
  EXPECT_EQ(h100_tuning(2, 1, 22).entry(AllGather, Pat, Simple).bandwidth, BytesPerSecond(0));
  EXPECT_GT(h100_tuning(2, 1, 23).entry(AllGather, Pat, Simple).bandwidth, BytesPerSecond(0));
}

TEST(NcclTuning, SmallCallsLaunchFewerBlocksAndLargeOnesAllOfThem) {
  const NcclTuning tuning = h100_tuning(1, 8, 30);
  const auto launch = [&](Bytes total) { return nccl_launch(tuning, nccl_choice(tuning, AllGather, total), total); };
  EXPECT_EQ(launch(1_GiB), (NcclLaunch{.channels = 24, .threads = 512}));
  // LL, 8 bytes x 8 ranks a thread: one block of 64 threads covers 4 KiB.
  EXPECT_EQ(launch(4_KiB), (NcclLaunch{.channels = 1, .threads = 64}));
}

TEST(NcclTopology, KnownMachinesHaveTheGraphsThatNcclLogs) {
  const auto eight_h100 = nccl_topology(h100_group(1, 8));
  EXPECT_EQ(eight_h100.ring, (NcclGraph{12, 30, 30}));
  EXPECT_EQ(eight_h100.nvls, (NcclGraph{8, 40, 40}));
  EXPECT_EQ(eight_h100.channels, 24);
  EXPECT_EQ(eight_h100.nvls_channels, 16);
  const auto p5 = nccl_topology(h100_group(2, 8));
  EXPECT_EQ(p5.ring, (NcclGraph{8, 48, 48}));
  EXPECT_EQ(p5.channels, 16);
  EXPECT_EQ(nccl_topology(h100_group(4, 4)).ring, (NcclGraph{8, 24, 24}));

  GroupShape a100{.ranks = 8,
                  .ranks_per_node = 8,
                  .gpus_per_node = 8,
                  .compute_capability = 80,
                  .intra_link = IntraLink::NvSwitch,
                  .nvlink_bandwidth = BytesPerSecond(300e9)};
  EXPECT_EQ(nccl_topology(a100).ring, (NcclGraph{12, 20, 20}));
  // Perlmutter: four A100 and four NICs a node, eight channels in the log.
  a100 = {.ranks = 8,
          .ranks_per_node = 4,
          .nodes = 2,
          .gpus_per_node = 4,
          .compute_capability = 80,
          .intra_link = IntraLink::NvLink,
          .nvlink_bandwidth = BytesPerSecond(300e9),
          .nic_bandwidth = BytesPerSecond(25e9)};
  EXPECT_EQ(nccl_topology(a100).channels, 8);
  a100.gpus_per_nic = 2;  // Polaris has two NICs, and four channels.
  EXPECT_EQ(nccl_topology(a100).channels, 4);
}

}  // namespace
}  // namespace fsdp::simulator
