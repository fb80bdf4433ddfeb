#include "core/cluster/machine_tables.h"

#include <gtest/gtest.h>

#include <string>

#include "core/cluster/cluster_library.h"
#include "core/cluster/cluster_reader.h"
#include "core/cluster/cpu_cluster.h"

namespace fsdp {
namespace {

std::vector<WorkTimes> attention() {
  return {
      {.work = "attention", .depth = 16, .sizes = {100, 400}, .microseconds = {10, 20}, .backward_microseconds = {}},
      {.work = "attention", .depth = 64, .sizes = {100, 400}, .microseconds = {40, 80}, .backward_microseconds = {}},
      {.work = "linear", .sizes = {10, 1000}, .microseconds = {1, 100}, .backward_microseconds = {2, 300}}};
}

double microseconds(const std::optional<LookedUp>& found) {
  return found ? 1e6 * found->time.count() : -1;
}

TEST(LookUpWork, InterpolatesSizesByAPowerLaw) {
  EXPECT_NEAR(microseconds(look_up(attention(), "linear", 0, 100)), 10, 1e-9);
  EXPECT_NEAR(microseconds(look_up(attention(), "linear", 0, 1000, WorkDirection::Backward)), 300, 1e-9);
  EXPECT_NEAR(microseconds(look_up(attention(), "attention", 16, 200)), 14.142135623, 1e-6);
}

TEST(LookUpWork, InterpolatesDepthsByAPowerLaw) {
  EXPECT_NEAR(microseconds(look_up(attention(), "attention", 32, 100)), 20, 1e-9);
  EXPECT_DOUBLE_EQ(look_up(attention(), "attention", 32, 100)->beyond, 1);
}

TEST(LookUpWork, ReportsTheDistanceOutsideTheTable) {
  EXPECT_DOUBLE_EQ(look_up(attention(), "linear", 0, 2000)->beyond, 2);
  EXPECT_DOUBLE_EQ(look_up(attention(), "linear", 0, 5)->beyond, .5);
  EXPECT_DOUBLE_EQ(look_up(attention(), "attention", 128, 100)->beyond, 2);
  EXPECT_NEAR(microseconds(look_up(attention(), "linear", 0, 2000)), 100, 1e-9);
}

TEST(LookUpWork, FindsNothingForOtherWork) {
  EXPECT_FALSE(look_up(attention(), "lin", 0, 100));
  EXPECT_FALSE(look_up(attention(), "zero", 0, 100));
  EXPECT_FALSE(look_up(attention(), "attention", 16, 100, WorkDirection::Backward));
  EXPECT_FALSE(look_up({}, "linear", 0, 100));
}

TEST(MergeTables, KeepsTheShorterTimeOfASize) {
  MachineTables known{.ops = attention()};
  merge(known, {.compute_share = .5,
                .ops = {{.work = "linear",
                         .sizes = {10, 50, 1000},
                         .microseconds = {3, 4, 80},
                         .backward_microseconds = {1.5, 6, 400}}}});
  EXPECT_EQ(known.ops.back(), (WorkTimes{.work = "linear",
                                         .sizes = {10, 50, 1000},
                                         .microseconds = {1, 4, 80},
                                         .backward_microseconds = {1.5, 6, 300}}));
  EXPECT_EQ(known.ops.front(), attention().front());
  EXPECT_DOUBLE_EQ(known.compute_share, .5);
}

Cluster with_tables() {
  Cluster cluster = cpu_cluster(2, Bytes(std::int64_t{1} << 34));
  MachineTables two{.ranks = 2,
                    .threads = 1,
                    .device = "CPU",
                    .processor = "x",
                    .libraries = "y",
                    .model = "mlp",
                    .measured_at = "today",
                    .spent = Seconds(1.5),
                    .load = .25,
                    .compute_share = .5};
  two.ops = attention();
  two.collectives = {{.work = "all_gather", .sizes = {1024}, .microseconds = {12.5}, .backward_microseconds = {}}};
  two.context = Bytes(300 << 20);
  two.launch_microseconds = 5;
  two.host_to_gpu = BytesPerSecond(25e9);
  MachineTables one = two;
  one.ranks = 1;
  cluster.gpu.machine = MeasuredMachine({one, two});
  return cluster;
}

std::string text_of(const Cluster& cluster) {
  JsonWriter writer;
  write_cluster(cluster, writer);
  return std::move(writer).take();
}

std::string errors_of(const std::string& text) {
  const auto document = parse_json(text, "c.json");
  if (!document) return to_string(document.error().front());
  const Result<Cluster> cluster = read_cluster(*document, {});
  if (cluster) return "good";
  std::string lines;
  for (const Error& error : cluster.error()) lines += (lines.empty() ? "" : "\n") + to_string(error);
  return lines;
}

std::string with(std::string text, const std::string& old, const std::string& now) {
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), now);
}

TEST(MachineOfACluster, ReadsBackAsWritten) {
  const Cluster cluster = with_tables();
  const auto document = parse_json(text_of(cluster), "c.json");
  ASSERT_TRUE(document);
  const auto read = read_cluster(*document, {});
  ASSERT_TRUE(read) << to_string(read.error().front());
  EXPECT_EQ(*read, cluster);
  ASSERT_NE(read->gpu.machine.of_ranks(2), nullptr);
  EXPECT_EQ(read->gpu.machine.of_ranks(3), nullptr);
}

TEST(MachineOfACluster, TablesAreSortedWhenRead) {
  Cluster cluster = with_tables();
  MachineTables tables = *cluster.gpu.machine.of_ranks(1);
  std::swap(tables.ops[0], tables.ops[2]);
  cluster.gpu.machine = MeasuredMachine({tables});
  const auto document = parse_json(text_of(cluster), "c.json");
  const auto read = read_cluster(*document, {});
  ASSERT_TRUE(read);
  EXPECT_TRUE(look_up(read->gpu.machine.of_ranks(1)->ops, "attention", 16, 100));
}

TEST(MachineOfACluster, ReportsErrorsWithTheirPlaces) {
  const std::string good = text_of(with_tables());
  EXPECT_EQ(errors_of(good), "good");
  EXPECT_NE(errors_of(with(good, "\"ranks\": 1", "\"ranks\": 2")).find("two measurements of 2 ranks"),
            std::string::npos);
  EXPECT_NE(errors_of(with(good, "[10, 1000]", "[1000, 10]")).find("The sizes do not rise."), std::string::npos);
  EXPECT_NE(errors_of(with(good, "[10, 1000]", "[]")).find("The sizes do not rise."), std::string::npos);
  EXPECT_NE(errors_of(with(good, "[10, 1000]", "[10]")).find("There are 2 values for 1 sizes."), std::string::npos);
  EXPECT_NE(errors_of(with(good, "[1, 100]", "[0, 100]")).find("1"), std::string::npos);
  EXPECT_NE(errors_of(with(good, "[1, 100]", "[1, 1e400]")), "good");
  EXPECT_NE(errors_of(with(good, "\"compute_share\": 0.5", "\"compute_share\": 1.5")), "good");
  EXPECT_NE(errors_of(with(good, "\"device\": \"CPU\"", "\"device\": \"\"")).find("There is no text."),
            std::string::npos);
  EXPECT_NE(errors_of(with(good, "\"work\": \"linear\"", "\"wrok\": \"linear\"")).find("wrok"), std::string::npos);
}

}  // namespace
}  // namespace fsdp
