#include "simulator/nccl/pcie_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "simulator/nccl/collective_cost.h"
#include "tests/support/group_shapes.h"
#include "tests/support/nccl_tables.h"

namespace fsdp::simulator {
namespace {

using namespace fsdp::literals;
using enum CollectiveKind;

GroupShape with_bus(GroupShape shape, double bus) {
  shape.bus_bandwidth = BytesPerSecond(bus);
  shape.bus_bandwidth_provenance = Provenance::Given;
  return shape;
}

// ---- What the clock says ----

// Four GPUs at 5 GB/s gather 4 MiB: 8 us to begin, 8.4 us and three hops of 5.7 beside 3/4 of the buffer at 5 GB/s.
TEST(PcieClock, LatencyAndTransferOverlap) {
  const GroupShape shape = with_bus(over_pcie(4, 89, IntraLink::PcieHost, 4), 5e9);
  const double latency = 8 + 8.4 + 3 * 5.7;
  const double transfer = .75 * 4194304 / 5e3;
  const double expected = std::pow(std::pow(latency, 1.3) + std::pow(transfer, 1.3), 1 / 1.3);
  const Seconds time = time_over_pcie(nccl_tuning(nccl_topology(shape)), shape, AllGather, 4_MiB);
  EXPECT_NEAR(1e6 * time.count(), expected, .1);
}

TEST(PcieClock, DefaultBandwidthIsAShareOfTheLinkLessThroughTheHost) {
  EXPECT_NEAR(pcie_bus(over_pcie(4, 89, IntraLink::PciePeer, 4)).count(), .72 * 31.5e9, 1);
  EXPECT_NEAR(pcie_bus(over_pcie(4, 89, IntraLink::PcieHost, 4)).count(), .45 * 31.5e9, 1);
  GroupShape half = over_pcie(4, 70, IntraLink::PcieHost, 3);
  half.pcie_lanes = 8;
  EXPECT_NEAR(pcie_bus(half).count(), .45 * 7.875e9, 1);
  EXPECT_EQ(pcie_bus(with_bus(half, 3e9)), BytesPerSecond(3e9));
}

TEST(PcieClock, BandIsNarrowerForKnownLinks) {
  const GroupShape host = over_pcie(4, 89, IntraLink::PcieHost, 4);
  EXPECT_EQ(collective_cost(host).band, (UncertaintyBand{.low = .85, .high = 7.5}));
  EXPECT_EQ(collective_cost(over_pcie(4, 89, IntraLink::PciePeer, 4)).band, (UncertaintyBand{.low = .85, .high = 1.3}));
  EXPECT_EQ(collective_cost(with_bus(host, 5e9)).band, (UncertaintyBand{.low = .9, .high = 1.15}));
}

// ---- Measured tables: tests/golden/nccl/README.md says where they are from ----

struct PcieTable {
  const char* name;
  std::string machine;
  GroupShape shape;
  double known;     // Mean of |predicted / measured - 1| from 1 MiB on, with the bandwidth that large buffers reach.
  double left_out;  // The same, with the share of the other machines of its transport.
  double by_share;  // The same, with the clock's own share.
};

std::vector<PcieTable> pcie_tables() {
  const auto host = [](int gpus, int capability, int generation) {
    return with_version(over_pcie(gpus, capability, IntraLink::PcieHost, generation), 27);
  };
  const auto peer = [](int gpus, int capability, int generation) {
    return with_version(over_pcie(gpus, capability, IntraLink::PciePeer, generation), 27);
  };
  return {
      {"b4090_8g_p2p", "b4090", peer(8, 89, 4), .095, .178, .166},
      {"pptest_4090_4g_p2p", "pptest", peer(4, 89, 4), .050, .122, .100},
      {"switch_4090_4g_p2p", "7773x", peer(4, 89, 4), .003, .187, .139},
      {"crazy_5090_8g_p2p", "crazy", peer(8, 120, 5), .171, .161, .160},
      {"bessemer_v100pcie_4g", "bessemer", peer(4, 70, 3), .065, .148, .127},
      {"b4090_8g_shm", "b4090", host(8, 89, 4), .061, .759, .070},
      {"genoa_5090_4g", "genoa", host(4, 120, 5), .014, .648, .046},
      {"gdr116_v100_4g", "gdr116", host(4, 70, 3), .008, .860, .017},
      {"gpuserver2_v100pcie_2g", "gpuserver2", host(2, 70, 3), .013, .788, .012},
      {"sm02_a100pcie_4g", "sm02", host(4, 80, 4), .074, .406, .621},
      {"autodl_2080ti_2g", "autodl", host(2, 75, 3), .089, .146, .483},
      {"kal_4090_2g_apart", "kal", host(2, 89, 4), .023, .592, .734},
      {"kal_4090_4g", "kal", host(4, 89, 4), .004, .714, .813},
      {"kal_4090_2g_same_switch", "kal", host(2, 89, 4), .036, .761, .845},
      {"d2l_4090_4g", "d2l", host(4, 89, 4), .009, .765, .847},
      {"d2l_4090_2g_same_bridge", "d2l", host(2, 89, 4), .013, .754, .840},
      {"container_4090_2g", "container", host(2, 89, 4), .102, .912, .941},
  };
}

using Points = std::vector<MeasuredTime>;

bool is_peer(const PcieTable& table) {
  return table.shape.intra_link == IntraLink::PciePeer;
}

double rate_of(const PcieTable& table) {
  return 15.75e9 * std::exp2(table.shape.pcie_generation - 3);
}

// What buffers of 64 MiB and more reach: the median of their bus bandwidths.
double plateau(const PcieTable& table, const Points& points) {
  std::vector<double> buses;
  for (const MeasuredTime& point : points) {
    const Bytes sent = ring_bytes_sent(point.kind, point.bytes, table.shape.ranks);
    if (point.bytes >= 64_MiB) buses.push_back(static_cast<double>(sent.count()) / point.time.count());
  }
  std::sort(buses.begin(), buses.end());
  return (buses[(buses.size() - 1) / 2] + buses[buses.size() / 2]) / 2;
}

// Measured over predicted, from 1 MiB on.
std::vector<double> longer(const GroupShape& shape, const Points& points) {
  const CollectiveCost cost = collective_cost(shape);
  std::vector<double> result;
  for (const MeasuredTime& point : points) {
    if (point.bytes >= 1_MiB) result.push_back(point.time / collective_time(cost, point.kind, point.bytes));
  }
  return result;
}

double error_of(const GroupShape& shape, const Points& points) {
  std::vector<double> ratios = longer(shape, points);
  for (double& ratio : ratios) ratio = 1 / ratio;
  return mean_error(ratios);
}

class PcieTables : public ::testing::Test {
 protected:
  // Mean over the machines of that transport but one, each with the mean of its tables.
  double share_of_others(const PcieTable& without) const {
    std::map<std::string, std::vector<double>> shares;
    for (const PcieTable& table : tables) {
      if (is_peer(table) != is_peer(without) || table.machine == without.machine) continue;
      shares[table.machine].push_back(plateau(table, points.at(table.name)) / rate_of(table));
    }
    double sum = 0;
    for (const auto& [machine, values] : shares) sum += mean(values) / static_cast<double>(shares.size());
    return sum;
  }

  static double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  }

  // Mean over machines of the mean over their tables.
  static double mean(const std::map<std::string, std::vector<double>>& by_machine) {
    double sum = 0;
    for (const auto& [machine, values] : by_machine) sum += mean(values);
    return sum / static_cast<double>(by_machine.size());
  }

  std::vector<PcieTable> tables = pcie_tables();
  std::map<std::string, Points> points = read_measured_tables("tests/golden/nccl/pcie_nodes.csv");
};

TEST_F(PcieTables, ErrorsOfEachTableAreTheStatedOnes) {
  ASSERT_EQ(points.size(), tables.size());
  std::map<std::string, std::vector<double>> known;
  std::map<std::string, std::vector<double>> peers;
  for (const PcieTable& table : tables) {
    const Points& measured = points.at(table.name);
    const double with_plateau = error_of(with_bus(table.shape, plateau(table, measured)), measured);
    const double with_share = error_of(with_bus(table.shape, share_of_others(table) * rate_of(table)), measured);
    const double by_share = error_of(table.shape, measured);
    EXPECT_NEAR(with_plateau, table.known, .006) << table.name;
    EXPECT_NEAR(with_share, table.left_out, .006) << table.name;
    EXPECT_NEAR(by_share, table.by_share, .006) << table.name;
    known[table.machine].push_back(with_plateau);
    if (is_peer(table)) peers[table.machine].push_back(with_share);
  }
  EXPECT_NEAR(mean(known), .055, .002);
  EXPECT_NEAR(mean(peers), .157, .005);
}

// Predicted over measured below 1 MiB, with the bandwidth that large buffers reach: the mean over machines, each with
// the geometric mean of its points, and the mean of the errors. Without the time to begin they are 0.80 and 0.233.
TEST_F(PcieTables, SmallMessagesTakeTheStartupTime) {
  std::map<std::string, std::vector<double>> logarithms;
  std::map<std::string, std::vector<double>> errors;
  for (const PcieTable& table : tables) {
    const CollectiveCost cost = collective_cost(with_bus(table.shape, plateau(table, points.at(table.name))));
    for (const MeasuredTime& point : points.at(table.name)) {
      if (point.bytes >= 1_MiB) continue;
      const double ratio = collective_time(cost, point.kind, point.bytes) / point.time;
      logarithms[table.machine].push_back(std::log(ratio));
      errors[table.machine].push_back(std::abs(ratio - 1));
    }
  }
  EXPECT_EQ(errors.size(), 11U);
  EXPECT_NEAR(std::exp(mean(logarithms)), 0.961, .01);
  EXPECT_NEAR(mean(errors), 0.180, .006);
}

// The constants of the clock: of peer to peer the mean of all machines; through host memory that of the four whose GPUs
// have links of their own and read host memory as fast as others do.
TEST_F(PcieTables, DefaultSharesAreMeansOfTheTables) {
  std::vector<double> peers;
  std::vector<double> hosts;
  for (const PcieTable& table : tables) {
    const double share = plateau(table, points.at(table.name)) / rate_of(table);
    if (is_peer(table)) peers.push_back(share);
    if (!is_peer(table) && share > .4) hosts.push_back(share);
  }
  EXPECT_NEAR(mean(peers), .72, .005);
  EXPECT_EQ(hosts.size(), 4U);
  EXPECT_NEAR(mean(hosts), .45, .005);
}

TEST_F(PcieTables, NineOfTenPointsLieInTheStatedBand) {
  for (const char* of : {"stated", "peer", "host"}) {
    int inside = 0;
    int all = 0;
    for (const PcieTable& table : tables) {
      const Points& measured = points.at(table.name);
      GroupShape shape = table.shape;
      if (of == std::string("stated")) {
        shape = with_bus(shape, plateau(table, measured));
      } else if (is_peer(table) != (of == std::string("peer"))) {
        continue;
      }
      const CollectiveCost cost = collective_cost(shape);
      for (const MeasuredTime& point : measured) {
        if (point.bytes < 1_MiB) continue;
        const UncertaintyBand band = uncertainty(cost, point.bytes);
        const double ratio = point.time / collective_time(cost, point.kind, point.bytes);
        inside += band.low <= ratio && ratio <= band.high;
        ++all;
      }
    }
    EXPECT_GE(inside, .9 * all) << of << ": " << inside << " of " << all;
  }
}

}  // namespace
}  // namespace fsdp::simulator
