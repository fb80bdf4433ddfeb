#include "simulator/nccl/collective_cost.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/support/group_shapes.h"
#include "tests/support/nccl_tables.h"

namespace fsdp::simulator {
namespace {

using namespace fsdp::literals;
using enum CollectiveKind;

GroupShape pcie(int gpus, int compute_capability, int generation, CpuVendor cpu) {
  GroupShape shape = over_pcie(gpus, compute_capability, IntraLink::PcieHost, generation);
  shape.cpu = cpu;
  return shape;
}

GroupShape a100_nodes(int nodes, int ranks_per_node, IntraLink link, int gpus_per_nic) {
  return {.ranks = nodes * ranks_per_node,
          .ranks_per_node = ranks_per_node,
          .nodes = nodes,
          .gpus_per_node = ranks_per_node,
          .compute_capability = 80,
          .intra_link = link,
          .nvlink_bandwidth = BytesPerSecond(300e9),
          .cpu = CpuVendor::Amd,
          .nic_bandwidth = BytesPerSecond(25e9),
          .gpus_per_nic = gpus_per_nic};
}

GroupShape four_v100_of_eight() {
  return {.ranks = 4,
          .ranks_per_node = 4,
          .gpus_per_node = 8,
          .compute_capability = 70,
          .intra_link = IntraLink::NvLink,
          .nvlink_bandwidth = BytesPerSecond(150e9),
          .pcie_generation = 3,
          .cpu = CpuVendor::Intel};
}

CollectiveCost cost_of(const GroupShape& shape) {
  return collective_cost(shape);
}

// ---- Laws ----

GroupShape any_shape() {
  const int ranks_per_node = *rc::gen::element(1, 2, 3, 4, 8);
  const int nodes = *rc::gen::element(1, 2, 3, 16, 2048);
  GroupShape shape{
      .ranks = nodes * ranks_per_node,
      .ranks_per_node = ranks_per_node,
      .nodes = nodes,
      .gpus_per_node = 8,
      .compute_capability = *rc::gen::element(70, 75, 80, 86, 89, 90, 100, 120),
      .intra_link = *rc::gen::element(IntraLink::NvSwitch, IntraLink::NvLink, IntraLink::PciePeer, IntraLink::PcieHost),
      .pcie_generation = *rc::gen::inRange(3, 6),
      .cpu = *rc::gen::element(CpuVendor::Unknown, CpuVendor::Intel, CpuVendor::Amd, CpuVendor::Arm),
      .network = *rc::gen::element(NetworkKind::Infiniband, NetworkKind::Efa, NetworkKind::Tcpx),
      .network_latency = Seconds(*rc::gen::element(0.0, 14e-6, 15.8e-6, 50e-6, 1e-3)),
      .nic_bandwidth = BytesPerSecond(*rc::gen::element(1.25e9, 12.5e9, 25e9, 50e9)),
      .gpus_per_nic = *rc::gen::element(1, 2, 8),
      .nic_near_gpu = *rc::gen::arbitrary<bool>(),
      .groups_per_nic = *rc::gen::element(1, 8),
      .sharp = *rc::gen::arbitrary<bool>(),
      .nccl = {.minor_version = *rc::gen::element(20, 23, 27, 28, 30)}};
  const bool nvlink = shape.intra_link == IntraLink::NvSwitch || shape.intra_link == IntraLink::NvLink;
  if (nvlink) shape.nvlink_bandwidth = BytesPerSecond(*rc::gen::element(56e9, 150e9, 300e9, 450e9, 900e9));
  return shape;
}

CollectiveKind any_kind() {
  return *rc::gen::element(AllGather, ReduceScatter, AllReduce);
}
Bytes any_size() {
  const int octave = *rc::gen::inRange(0, 42);
  return Bytes((std::int64_t{1} << octave) + *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << octave));
}

// Neighboring sizes, because that is where the clock by itself can fall: when NCCL goes over to another algorithm.
RC_GTEST_PROP(CollectiveCost, MoreBytesNeverTakeLess, ()) {
  const CollectiveCost cost = collective_cost(any_shape());
  const CollectiveKind kind = any_kind();
  const Bytes fewer = any_size();
  const Bytes more = fewer + Bytes(*rc::gen::inRange<std::int64_t>(0, fewer.count()));
  RC_ASSERT(collective_time(cost, kind, fewer) <= collective_time(cost, kind, more));
}

// The same on machines whose clock does fall.
TEST(CollectiveCost, TimeRisesWithBytesEvenIfTheClockFalls) {
  int falls = 0;
  for (const int nodes : {2, 3, 4, 8, 16, 64}) {
    const GroupShape shape = with_version(h100_group(nodes, 8), 27);
    const NcclTuning tuning = nccl_tuning(nccl_topology(shape));
    const CollectiveCost cost = collective_cost(shape);
    const auto clock = [&](Bytes n) { return corrected_time(tuning, cost.link_class, shape, AllReduce, n); };
    for (Bytes size = 1_KiB; size < 1_GiB; size = 2 * size) {
      falls += clock(size - 1_B) > clock(size);
      EXPECT_LE(collective_time(cost, AllReduce, size - Bytes(size.count() / 8)),
                collective_time(cost, AllReduce, size));
    }
  }
  EXPECT_GT(falls, 0);
}

RC_GTEST_PROP(CollectiveCost, EveryTimeIsPositiveAndFiniteUnlessThereIsOneRank, ()) {
  const GroupShape shape = any_shape();
  const Seconds time = collective_time(collective_cost(shape), any_kind(), any_size());
  RC_ASSERT(std::isfinite(time.count()));
  RC_ASSERT((time > Seconds(0)) == (shape.ranks > 1));
}

// No algorithm moves a rank's part of the buffer faster than the links of its GPU do. Eta is at most 1, and NVLS saves
// at most half of a ring's bytes.
RC_GTEST_PROP(CollectiveCost, NothingIsFasterThanTheLinksOfOneGpu, ()) {
  GroupShape shape = any_shape();
  shape.ranks_per_node = shape.ranks = *rc::gen::element(2, 4, 8);
  shape.nodes = 1;
  shape.intra_link = IntraLink::NvSwitch;
  shape.nvlink_bandwidth = BytesPerSecond(*rc::gen::element(150e9, 300e9, 450e9, 900e9));
  const Bytes total = any_size();
  const Bytes sent = ring_bytes_sent(AllGather, total, shape.ranks);
  const Seconds time = collective_time(collective_cost(shape), any_kind(), total);
  RC_ASSERT(time >= .99 * (sent / shape.nvlink_bandwidth));
}

// Between two knots the clock rises smoothly, but for the jumps of NCCL's choice.
RC_GTEST_PROP(CollectiveCost, TableMatchesTheClockWithinThreePercentOnARing, ()) {
  const GroupShape shape = h100_group(1, 8);
  const CollectiveCost cost = cost_of(shape);
  const NcclTuning tuning = nccl_tuning(nccl_topology(shape));
  const Bytes total(*rc::gen::inRange<std::int64_t>(256, std::int64_t{1} << 40));
  const Seconds exact = corrected_time(tuning, cost.link_class, shape, AllGather, total);
  RC_ASSERT(std::abs(collective_time(cost, AllGather, total) / exact - 1) < .03);
}

TEST(CollectiveCost, ASingleRankAlreadyHasEverything) {
  const CollectiveCost cost = cost_of(h100_group(1, 1));
  EXPECT_EQ(collective_time(cost, AllGather, 1_GiB), Seconds(0));
  EXPECT_EQ(cost.provenance, "A group of one rank sends nothing.");
}

TEST(CollectiveCost, NothingToSendTakesNoTime) {
  EXPECT_EQ(collective_time(cost_of(h100_group(1, 8)), AllReduce, 0_B), Seconds(0));
}

TEST(CollectiveCost, LastSlopeContinuesBeyondTheTable) {
  const CollectiveCost cost = cost_of(h100_group(1, 8));
  const Bytes tebibyte(std::int64_t{1} << 40);
  const double ratio = collective_time(cost, AllGather, 4 * tebibyte) / collective_time(cost, AllGather, tebibyte);
  EXPECT_NEAR(ratio, 4, .005);
  // Three more tebibytes cost three times what one more costs.
  const auto time = [&](std::int64_t n) { return collective_time(cost, AllGather, n * tebibyte).count(); };
  EXPECT_NEAR((time(4) - time(1)) / (time(2) - time(1)), 3, 1e-6);
}

TEST(CollectiveCost, SixteenThousandRanksAreAsQuickAsTwo) {
  // 16383 steps over 2048 nodes: 6.6 + 14336 x 1 + 2047 x (2.7 + 1.8) us of latency even for the smallest message.
  const CollectiveCost cost = cost_of(h100_group(2048, 8));
  EXPECT_NEAR(collective_time(cost, AllGather, 1_KiB).count(), .9 * 23.55e-3, .1e-3);
}

TEST(CollectiveCost, GroupsThatShareANicWaitForEachOther) {
  GroupShape shape = h100_group(2, 1);
  const Seconds alone = collective_time(cost_of(shape), AllReduce, 1_GiB);
  shape.groups_per_nic = 8;
  // A little less than eight: the ramp grows with the square root only.
  EXPECT_NEAR(collective_time(cost_of(shape), AllReduce, 1_GiB) / alone, 8, .15);
}

TEST(CollectiveCost, ProvenanceNamesAssumptionsAndTheBand) {
  EXPECT_EQ(cost_of(pcie(4, 75, 3, CpuVendor::Intel)).provenance,
            "Collectives: NCCL >=2.28 tuning tables on 1 ring channel x 10.0 GB/s, corrected for one PCIe node at "
            "7.09 GB/s (a share of the link's rate). Not calibrated on this machine: expect 0.85 to 7.5 times the "
            "predicted time. The busbw that nccl-tests reports narrows it: --bus-bandwidth.");
  const std::string nodes = cost_of(h100_group(2, 8)).provenance;
  EXPECT_TRUE(
      nodes.ends_with("corrected for several nodes over InfiniBand. Not calibrated on this machine: expect 0.85 "
                      "to 1.15 times the predicted time (0.8 to 2 times below 64 MiB)."))
      << nodes;
}

// ---- Bytes sent under a ring ----

TEST(RingBytesSent, FourRanksSendThreeQuartersAndAllReduceTwice) {
  EXPECT_EQ(ring_bytes_sent(AllGather, 4000_B, 4), 3000_B);
  EXPECT_EQ(ring_bytes_sent(ReduceScatter, 4000_B, 4), 3000_B);
  EXPECT_EQ(ring_bytes_sent(AllReduce, 4000_B, 4), 6000_B);
  EXPECT_EQ(ring_bytes_sent(AllGather, 4000_B, 1), 0_B);
  // 5 bytes over 4 ranks: parts of at most 2 bytes; 15/4 rounds up to 4.
  EXPECT_EQ(ring_bytes_sent(AllGather, 5_B, 4), 4_B);
}

// The oracle: send one part per hop.
RC_GTEST_PROP(RingBytesSent, TheClosedFormAgreesWithWalkingTheRing, ()) {
  const int ranks = *rc::gen::inRange(1, 100);
  const Bytes part(*rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 45));
  Bytes walked;
  for (int hop = 1; hop < ranks; ++hop) walked += part;
  RC_ASSERT(ring_bytes_sent(AllGather, part * ranks, ranks) == walked);
}

// ---- Measured tables: tests/golden/nccl/README.md says where they are from. pcie_clock_test.cpp has those over PCIe.

struct Machine {
  const char* table;
  GroupShape shape;
  int gpus_per_process;   // Processes of the measurement: one process that drives several pays about 5.3 us for each.
  double expected_error;  // Mean of |predicted / measured - 1|.
};

const std::vector<Machine>& machines() {
  static const std::vector<Machine> kMachines = {
      {"xx_h100_1n4g_all_reduce", h100_group(1, 4), 1, .03},
      {"xx_h100_1n8g_all_gather", h100_group(1, 8), 1, .03},
      {"xx_h100_1n8g_reduce_scatter", h100_group(1, 8), 1, .04},
      {"vtrain_a100_8g_ar", with_version(a100_nodes(1, 8, IntraLink::NvSwitch, 1), 27), 8, .05},
      {"vtrain_v100_4g_ar", with_version(four_v100_of_eight(), 27), 4, .13},
  };
  return kMachines;
}

// Predicted over measured, for each point of a table.
std::vector<double> ratios(const Machine& machine, const std::vector<MeasuredTime>& points) {
  const CollectiveCost cost = collective_cost(machine.shape);
  const Seconds floor(machine.gpus_per_process > 1 ? 5.3e-6 * machine.gpus_per_process : 0);
  std::vector<double> result;
  for (const MeasuredTime& point : points) {
    result.push_back(std::max(floor, collective_time(cost, point.kind, point.bytes)) / point.time);
  }
  return result;
}

TEST(MeasuredTables, ErrorOfEachMachineIsTheStatedOne) {
  const auto tables = read_measured_tables("tests/golden/nccl/measured_times.csv");
  ASSERT_EQ(tables.size(), machines().size());
  for (const Machine& machine : machines()) {
    EXPECT_NEAR(mean_error(ratios(machine, tables.at(machine.table))), machine.expected_error, .006) << machine.table;
  }
}

struct Band {
  LinkClass link_class;
  int index;  // 0 below 1 MiB, 1 up to 64 MiB, 2 above.
  double expected_error;
};

TEST(MeasuredTables, ErrorOfEachClassAndSizeIsTheStatedOne) {
  const auto tables = read_measured_tables("tests/golden/nccl/measured_times.csv");
  std::map<std::pair<LinkClass, int>, std::vector<double>> bands;
  for (const Machine& machine : machines()) {
    const auto& points = tables.at(machine.table);
    const std::vector<double> values = ratios(machine, points);
    for (std::size_t i = 0; i < points.size(); ++i) {
      const int band = points[i].bytes < 1_MiB ? 0 : points[i].bytes <= 64_MiB ? 1 : 2;
      bands[{collective_cost(machine.shape).link_class, band}].push_back(values[i]);
    }
  }
  const std::vector<Band> expected = {{LinkClass::NvlinkNode, 1, .11}, {LinkClass::NvlinkNode, 2, .03}};
  EXPECT_EQ(bands.size(), expected.size());
  for (const Band& band : expected) {
    EXPECT_NEAR(mean_error(bands.at({band.link_class, band.index})), band.expected_error, .006)
        << to_string(band.link_class) << ", band " << band.index;
  }
}

TEST(MeasuredTables, NineOfTenPointsLieInTheStatedBand) {
  const auto tables = read_measured_tables("tests/golden/nccl/measured_times.csv");
  int inside = 0;
  int all = 0;
  for (const Machine& machine : machines()) {
    const CollectiveCost cost = collective_cost(machine.shape);
    const auto& points = tables.at(machine.table);
    const std::vector<double> values = ratios(machine, points);
    for (std::size_t i = 0; i < points.size(); ++i) {
      const UncertaintyBand band = uncertainty(cost, points[i].bytes);
      const double factor = 1 / values[i];
      inside += band.low <= factor && factor <= band.high;
      ++all;
    }
  }
  EXPECT_GE(inside, .9 * all) << inside << " of " << all;
}

}  // namespace
}  // namespace fsdp::simulator
