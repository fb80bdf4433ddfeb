// Collectives of one node as somebody measured them: taken where they speak for the group, and how far other
// laboratories are from them (tests/golden/nccl/nvlink_nodes.csv).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/cluster/cluster_library.h"
#include "simulator/nccl/collective_cost.h"
#include "tests/support/nccl_tables.h"

namespace fsdp::simulator {
namespace {

using namespace fsdp::literals;
using enum CollectiveKind;

const ClusterLibrary& library() {
  static const ClusterLibrary read = *read_cluster_library("model_specs/clusters");
  return read;
}

Cluster node_of(const std::string& gpu, int gpus, int nodes = 1) {
  return *make_cluster(*find_gpu(gpu, library().gpus, ""), gpus, nodes);
}

double microseconds(const Cluster& cluster, CollectiveKind kind, Bytes total) {
  return 1e6 * collective_time(collective_cost(group_shape(cluster, world_size(cluster))), kind, total).count();
}

TEST(MeasuredCollectives, MeasuredSizeHasTheMeasuredTime) {
  // model_specs/clusters/measured/h100_sxm.json, all_gather of 8.
  EXPECT_NEAR(microseconds(node_of("H100", 8), AllGather, 512_MiB), 1401.5, .1);
}

TEST(MeasuredCollectives, ClockContinuesFromTheEndOfTheTable) {
  const Cluster with = node_of("H100", 8);
  Cluster without = with;
  without.gpu.measured = {};
  const double ratio = microseconds(with, AllGather, 512_MiB) / microseconds(without, AllGather, 512_MiB);
  EXPECT_NEAR(microseconds(with, AllGather, 16_GiB) / microseconds(without, AllGather, 16_GiB), ratio, 1e-3);
}

bool is_measured(const Cluster& cluster, int ranks) {
  return group_shape(cluster, ranks).measured.get() != nullptr;
}

TEST(MeasuredCollectives, ApplyOnlyToTheirLinkAndSizes) {
  EXPECT_TRUE(is_measured(node_of("H100", 8), 8));
  EXPECT_TRUE(is_measured(node_of("A100 40GB SXM", 8), 4));
  EXPECT_FALSE(is_measured(node_of("H100", 8), 3));       // Nobody measured three.
  EXPECT_FALSE(is_measured(node_of("H100", 8, 2), 16));   // Several nodes.
  EXPECT_TRUE(is_measured(node_of("H100", 8, 2), 8));     // One of them.
  EXPECT_FALSE(is_measured(node_of("H100 PCIe", 8), 8));  // No NVLink.
  EXPECT_FALSE(is_measured(node_of("L40S", 8), 8));       // PCIe boxes differ among themselves.
  Cluster slower = node_of("H100", 8);
  slower.intra_node.bandwidth.value = BytesPerSecond(300e9);
  EXPECT_FALSE(is_measured(slower, 8));
  Cluster measured_here = node_of("H100", 8);
  measured_here.intra_node.bus_bandwidth->value = BytesPerSecond(200e9);
  EXPECT_FALSE(is_measured(measured_here, 8));
}

TEST(MeasuredCollectives, ApplyOnlyIfNcclMayChoose) {
  Cluster cluster = node_of("H100", 8);
  cluster.nccl.version = "2.27.5";
  EXPECT_NEAR(microseconds(cluster, AllGather, 512_MiB), 1401.5, .1);
  cluster.nccl.protocols = "Simple";
  EXPECT_NE(collective_cost(group_shape(cluster, 8)).provenance.find("tuning tables"), std::string::npos);
}

// By itself and in steps, of the machine that is planned for; between the sizes that steps have, log-log; outside, the
// nearest one's ratio.
TEST(MeasuredCollectives, OnThisMachineUseTimesMeasuredInSteps) {
  MachineTables tables{.ranks = 2, .device = "CPU"};
  tables.collectives = {{.work = "all_gather", .sizes = {1 << 20, 1 << 24}, .microseconds = {100, 1600}},
                        {.work = "all_gather in steps", .sizes = {1 << 21, 1 << 22}, .microseconds = {600, 400}},
                        {.work = "reduce_scatter", .sizes = {1 << 20, 1 << 24}, .microseconds = {200, 3200}},
                        {.work = "reduce_scatter in steps", .sizes = {1 << 20}, .microseconds = {150}}};
  Cluster cluster = node_of("T4", 2);
  cluster.gpu.machine = MeasuredMachine({tables});
  EXPECT_NEAR(microseconds(cluster, AllGather, 2_MiB), 600, .1);
  EXPECT_NEAR(microseconds(cluster, AllGather, 1_MiB), 300, .1);
  EXPECT_NEAR(microseconds(cluster, AllGather, 16_MiB), 1600, .1) << "no less than what less takes";
  EXPECT_NEAR(microseconds(cluster, ReduceScatter, 2_MiB), 400, .1) << "no shorter than by itself";
  const CollectiveCost cost = collective_cost(group_shape(cluster, 2));
  EXPECT_DOUBLE_EQ(cost.busy[0], 1);
  tables.collectives[1].microseconds = {600, 1200};
  cluster.gpu.machine = MeasuredMachine({tables});
  EXPECT_NEAR(collective_cost(group_shape(cluster, 2)).busy[0], 1. / 3, 1e-9);
  EXPECT_NEAR(microseconds(cluster, AllGather, 16_MiB), 4800, .1);
}

TEST(MeasuredCollectives, ProvenanceNamesTheMeasurement) {
  EXPECT_EQ(collective_cost(group_shape(node_of("H100", 8), 8)).provenance,
            "Collectives: measured on 8 H100 SXM, NCCL 2.29.2 (aiconfigurator-core 0.12.0), which is not this machine: "
            "expect 0.95 to 1.1 times the predicted time (0.9 to 1.9 times below 64 MiB).");
}

struct Point {
  std::string table;
  Cluster cluster;
  CollectiveKind kind = AllGather;
  Bytes total;
  double measured = 0;  // Microseconds.
};

std::vector<Point> points_of_others() {
  std::vector<Point> points;
  for (const MeasuredTime& row : read_measured_times("tests/golden/nccl/nvlink_nodes.csv")) {
    const Cluster node = node_of(row.columns.at("gpu"), std::stoi(row.columns.at("gpus")));
    points.push_back({row.columns.at("table"), node, row.kind, row.bytes, 1e6 * row.time.count()});
  }
  return points;
}

// One process that drives eight GPUs pays about 5.3 us for each, whatever it sends.
double floor_of(const Point& point) {
  const bool is_one_process = !point.table.starts_with("xx_") && !point.table.starts_with("gcp_");
  return is_one_process ? 5.3 * world_size(point.cluster) : 0;
}

struct Errors {
  double sum = 0;
  int count = 0;

  void add(double ratio) {
    sum += std::abs(ratio - 1);
    ++count;
  }
  double mean() const { return sum / count; }
};

struct Expected {
  double clock;
  double measured;
};

// Mean of |predicted / measured - 1| against the tables of other laboratories. The clock's parameters were fitted with
// some of these tables in view; the measured tables know none of them. Below 8 MiB all of them are of one process that
// drives eight GPUs, which training does not do; nobody else published such sizes.
TEST(MeasuredCollectives, OtherLaboratoriesDifferAsStated) {
  std::map<int, Errors> clock, tables;
  for (const Point& point : points_of_others()) {
    Cluster without = point.cluster;
    without.gpu.measured = {};
    const double floor = floor_of(point);
    const int band = point.total < 8_MiB ? 0 : point.total < 64_MiB ? 1 : 2;
    tables[band].add(std::max(floor, microseconds(point.cluster, point.kind, point.total)) / point.measured);
    clock[band].add(std::max(floor, microseconds(without, point.kind, point.total)) / point.measured);
  }
  const std::map<int, Expected> expected = {{0, {.177, .250}}, {1, {.158, .083}}, {2, {.053, .017}}};
  for (const auto& [band, errors] : expected) {
    EXPECT_NEAR(clock[band].mean(), errors.clock, .001) << "band " << band;
    EXPECT_NEAR(tables[band].mean(), errors.measured, .001) << "band " << band;
  }
}

TEST(MeasuredCollectives, NineOfTenPointsOfOthersLieInTheStatedBand) {
  int inside = 0;
  int all = 0;
  for (const Point& point : points_of_others()) {
    const CollectiveCost cost = collective_cost(group_shape(point.cluster, world_size(point.cluster)));
    const double predicted = 1e6 * collective_time(cost, point.kind, point.total).count();
    const double ratio = point.measured / std::max(floor_of(point), predicted);
    const UncertaintyBand band = uncertainty(cost, point.total);
    inside += ratio >= band.low && ratio <= band.high ? 1 : 0;
    ++all;
  }
  EXPECT_EQ(all, 112);
  EXPECT_GE(inside, 101);
}

}  // namespace
}  // namespace fsdp::simulator
