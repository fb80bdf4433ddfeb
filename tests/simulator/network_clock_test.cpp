#include "simulator/nccl/network_clock.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "simulator/nccl/collective_cost.h"
#include "tests/support/group_shapes.h"
#include "tests/support/nccl_tables.h"

namespace fsdp::simulator {
namespace {

using namespace fsdp::literals;
using enum CollectiveKind;

GroupShape over(NetworkKind network, GroupShape shape) {
  shape.network = network;
  shape.network_latency = usual_latency(network).value;
  return shape;
}

GroupShape a100s(int nodes, int ranks_per_node, IntraLink link, double nic, int gpus_per_nic, CpuVendor cpu) {
  return {.ranks = nodes * ranks_per_node,
          .ranks_per_node = ranks_per_node,
          .nodes = nodes,
          .gpus_per_node = ranks_per_node,
          .compute_capability = 80,
          .intra_link = link,
          .nvlink_bandwidth = BytesPerSecond(300e9),
          .cpu = cpu,
          .nic_bandwidth = BytesPerSecond(nic),
          .gpus_per_nic = gpus_per_nic};
}

GroupShape polaris(int nodes) {
  return over(NetworkKind::Slingshot, a100s(nodes, 4, IntraLink::NvLink, 25e9, 2, CpuVendor::Amd));
}

GroupShape alps(int nodes) {
  GroupShape shape = a100s(nodes, 4, IntraLink::NvLink, 25e9, 1, CpuVendor::Arm);
  shape.compute_capability = 90;
  shape.nvlink_bandwidth = BytesPerSecond(450e9);
  shape.pcie_generation = 5;
  return over(NetworkKind::Slingshot, shape);
}

GroupShape single_gpus_over_efa(int compute_capability, int pcie_generation, double nic, CpuVendor cpu) {
  GroupShape shape = a100s(2, 1, IntraLink::PcieHost, nic, 1, cpu);
  shape.compute_capability = compute_capability;
  shape.pcie_generation = pcie_generation;
  shape.nic_near_gpu = false;
  shape.nccl = *nccl_rules({.protocols = "Simple"});
  return over(NetworkKind::Efa, shape);
}

GroupShape tcpx() {
  GroupShape shape = over(NetworkKind::Tcpx, h100_group(2, 8));
  shape.nic_bandwidth = BytesPerSecond(25e9);
  return with_version(shape, 27);
}

GroupShape with_sharp(GroupShape shape) {
  shape.sharp = true;
  return shape;
}

// ---- What the clock says ----

Seconds network_time(const GroupShape& shape, CollectiveKind kind, Bytes total) {
  return time_over_network(nccl_tuning(nccl_topology(shape)), shape, kind, total);
}

// 16 GPUs on 2 nodes, an all-gather of 1 MiB in LL128: 14 + 0.7 x 15 (4 + 1.8) us of steps beside 4.1 us of transfer,
// 3.35 of them on the network and the others because rings of 384 GB/s pass through links of 370.8.
TEST(NetworkClock, EachStepOfARingWaitsForAHopOverTheNetwork) {
  const double steps = 14 + .7 * 15 * 5.8;
  const double transfer = 1048576 / 313.2e3 * std::pow(1 + std::pow(384 / 370.8, 4), .25);
  const double expected = std::pow(std::pow(steps, 1.3) + std::pow(transfer, 1.3), 1 / 1.3);
  EXPECT_NEAR(1e6 * network_time(h100_group(2, 8), AllGather, 1_MiB).count(), expected, .1);
}

TEST(NetworkClock, SmallMessagesTakeTimeInProportionToRanks) {
  const auto time = [](int nodes) {
    GroupShape shape = h100_group(nodes, 8);
    shape.nccl = *nccl_rules({.protocols = "Simple"});
    return network_time(shape, AllGather, 4_MiB);
  };
  EXPECT_NEAR(time(64) / time(16), 4, .1);
}

TEST(NetworkClock, ASlowerHopMakesEverythingSlower) {
  for (const CollectiveKind kind : {AllGather, ReduceScatter, AllReduce}) {
    for (const Bytes size : {64_KiB, 1_MiB, 64_MiB, 1_GiB}) {
      EXPECT_LT(network_time(h100_group(4, 8), kind, size),
                network_time(over(NetworkKind::Efa, h100_group(4, 8)), kind, size));
    }
  }
}

TEST(NetworkClock, FasterNetworkKeepsTheLatencyThatNcclAssumes) {
  GroupShape shape = h100_group(4, 8);
  shape.network_latency = Seconds(1e-6);
  GroupShape assumed = shape;
  assumed.network_latency = kNcclNetworkLatency;
  EXPECT_EQ(network_time(shape, AllGather, 64_MiB), network_time(assumed, AllGather, 64_MiB));
}

// Eight rails carry 384 GB/s, a GPU's links 371; four rails 192.
TEST(NetworkClock, RingIsLimitedByEquallyFastLinksInsideNodes) {
  const auto bus = [](const GroupShape& shape) {
    return 64.0 * (1LL << 30) * (shape.ranks - 1) / shape.ranks / network_time(shape, AllGather, 64_GiB).count();
  };
  EXPECT_NEAR(bus(h100_group(10, 8)) / 384e9, .83, .02);
  EXPECT_NEAR(bus(h100_group(10, 4)) / 192e9, .98, .02);
}

// ---- Measured tables: tests/golden/nccl/README.md says where they are from ----

struct NetworkTable {
  const char* name;
  GroupShape shape;
  double expected_error;  // Mean of |predicted / measured - 1| from 1 MiB on.
};

std::vector<NetworkTable> network_tables() {
  using enum NetworkKind;
  const GroupShape p5 = with_version(over(Efa, h100_group(2, 8)), 27);
  const GroupShape sophia =
      with_version(over(Infiniband, a100s(2, 8, IntraLink::NvSwitch, 25e9, 1, CpuVendor::Amd)), 27);
  const GroupShape p4de = with_version(over(Efa, a100s(2, 8, IntraLink::NvSwitch, 12.5e9, 2, CpuVendor::Intel)), 27);
  return {
      {"xx_h100_10n20g_all_reduce", h100_group(10, 2), .029},
      {"xx_h100_10n20g_all_gather", h100_group(10, 2), .020},
      {"xx_h100_10n20g_reduce_scatter", h100_group(10, 2), .025},
      {"xx_h100_10n40g_all_reduce", h100_group(10, 4), .052},
      {"xx_h100_10n40g_all_gather", h100_group(10, 4), .053},
      {"xx_h100_10n80g_all_reduce", h100_group(10, 8), .068},
      {"xx_h100_10n80g_all_gather", h100_group(10, 8), .116},
      {"xx_h100_10n80g_reduce_scatter", h100_group(10, 8), .148},
      {"sophia_a100_2n16g_all_reduce", sophia, .078},
      {"sophia_a100_2n16g_all_gather", sophia, .057},
      {"cw_h100_12n96g_ar", with_sharp(h100_group(12, 8)), .014},
      {"h200_roce_2n16g_ar", over(Roce, h100_group(2, 8)), .067},
      {"p5_2n16g_ar_v2.22.3", p5, .096},
      {"p5_2n16g_ar_v2.20.3", p5, .097},
      {"p5_readme_2n16g_ar", p5, .095},
      {"p4de_2n16g_ar", p4de, .060},
      {"g7e_rtxpro6000_2n2g_ar", single_gpus_over_efa(120, 5, 12.5e9, CpuVendor::Amd), .138},
      {"a3mega_2n16g_ar", tcpx(), .261},
      {"a3mega_2n16g_ag", tcpx(), .040},
      {"polaris218_2n8g_all_gather", with_version(polaris(2), 27), .364},
      {"polaris221_2n8g_all_gather", with_version(polaris(2), 27), .369},
      {"polaris218_8n32g_all_gather", with_version(polaris(8), 27), .356},
      {"polaris221_8n32g_all_gather", with_version(polaris(8), 27), .366},
      {"polaris218_128n512g_all_gather", with_version(polaris(128), 27), .406},
      {"polaris221_256n1024g_all_reduce", with_version(polaris(256), 27), .225},
      {"alps_gh200_4n16g_ar", with_version(alps(4), 27), .301},
      {"alps_gh200_64n256g_ar", with_version(alps(64), 27), .129},
      // Without GPUDirect a T4 reaches half of what its NIC has; this one took no part in the fit.
      {"eks_t4_2n2g_ar", with_version(single_gpus_over_efa(75, 3, 6.25e9, CpuVendor::Intel), 27), .522},
  };
}

std::vector<double> network_ratios(const GroupShape& shape, const std::vector<MeasuredTime>& points) {
  const CollectiveCost cost = collective_cost(shape);
  std::vector<double> result;
  result.reserve(points.size());
  for (const MeasuredTime& point : points)
    result.push_back(collective_time(cost, point.kind, point.bytes) / point.time);
  return result;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

TEST(MeasuredNetworks, TheErrorOfEachTableIsTheStatedOne) {
  const auto points = read_measured_tables("tests/golden/nccl/several_nodes.csv");
  ASSERT_EQ(points.size(), network_tables().size());
  for (const NetworkTable& table : network_tables()) {
    EXPECT_NEAR(mean_error(network_ratios(table.shape, points.at(table.name))), table.expected_error, .006)
        << table.name;
  }
}

TEST(MeasuredNetworks, MeanErrorOfEachNetworkMatchesTheReadme) {
  const auto points = read_measured_tables("tests/golden/nccl/several_nodes.csv");
  std::map<NetworkKind, std::vector<double>> errors;
  for (const NetworkTable& table : network_tables()) {
    if (std::string(table.name).starts_with("eks")) continue;
    const NetworkKind network =
        table.shape.network == NetworkKind::Roce ? NetworkKind::Infiniband : table.shape.network;
    errors[network].push_back(mean_error(network_ratios(table.shape, points.at(table.name))));
  }
  EXPECT_NEAR(mean_of(errors.at(NetworkKind::Infiniband)), .061, .006);
  EXPECT_NEAR(mean_of(errors.at(NetworkKind::Efa)), .097, .006);
  EXPECT_NEAR(mean_of(errors.at(NetworkKind::Tcpx)), .150, .006);
  EXPECT_NEAR(mean_of(errors.at(NetworkKind::Slingshot)), .314, .006);
}

TEST(MeasuredNetworks, NineOfTenPointsLieInTheStatedBand) {
  const auto points = read_measured_tables("tests/golden/nccl/several_nodes.csv");
  std::map<std::pair<NetworkKind, bool>, std::pair<int, int>> inside_of_all;
  for (const NetworkTable& table : network_tables()) {
    const CollectiveCost cost = collective_cost(table.shape);
    const std::vector<double> values = network_ratios(table.shape, points.at(table.name));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const UncertaintyBand band = uncertainty(cost, points.at(table.name)[i].bytes);
      auto& [inside, all] = inside_of_all[{table.shape.network, table.shape.nic_near_gpu}];
      inside += band.low <= 1 / values[i] && 1 / values[i] <= band.high;
      ++all;
    }
  }
  for (const auto& [network, counts] : inside_of_all) {
    EXPECT_GE(counts.first, .9 * counts.second)
        << describe(network.first) << ": " << counts.first << " of " << counts.second;
  }
}

}  // namespace
}  // namespace fsdp::simulator
