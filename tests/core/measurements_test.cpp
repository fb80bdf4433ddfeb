#include "core/cluster/measurements.h"

#include <gtest/gtest.h>

#include <string>

#include "core/cluster/cluster_library.h"

namespace fsdp {
namespace {

MeasuredProducts products() {
  // Twice as many rows reach twice the share; more columns change nothing.
  return {.m = {100, 200, 400},
          .n = {10, 1000},
          .k = {10, 1000},
          .share = {.1, .1, .1, .1, .2, .2, .2, .2, .4, .4, .4, .4}};
}

TEST(MeasuredShare, InterpolatesTheGridByAPowerLaw) {
  EXPECT_NEAR(measured_share(products(), 200, 1000, 10), .2, 1e-12);
  EXPECT_NEAR(measured_share(products(), 150, 77, 300), .15, 1e-12);
}

TEST(MeasuredShare, TakesTheEdgeBeyondTheGrid) {
  EXPECT_NEAR(measured_share(products(), 1, 1, 1), .1, 1e-12);
  EXPECT_NEAR(measured_share(products(), 9000, 9000, 9000), .4, 1e-12);
}

TEST(MeasuredShare, TheLastAxisRunsFastest) {
  MeasuredAttention attention{.heads = {1, 10}, .sequence = {100, 200}, .share = {.1, .2, .3, .4}};
  EXPECT_NEAR(measured_share(attention, 1, 200), .2, 1e-12);
  EXPECT_NEAR(measured_share(attention, 10, 100), .3, 1e-12);
}

TEST(MeasuredTime, ExistsOnlyForMeasuredSizesAndGroups) {
  const MeasuredCollectives tables{.bytes = {1000, 4000}, .times = {{MeasuredCollective::AllGather, 4, {10, 40}}}};
  EXPECT_NEAR(measured_time(tables, MeasuredCollective::AllGather, 4, 2000)->count(), 20e-6, 1e-12);
  EXPECT_FALSE(measured_time(tables, MeasuredCollective::AllGather, 4, 999));
  EXPECT_FALSE(measured_time(tables, MeasuredCollective::AllGather, 4, 4001));
  EXPECT_FALSE(measured_time(tables, MeasuredCollective::AllGather, 8, 2000));
  EXPECT_FALSE(measured_time(tables, MeasuredCollective::AllReduce, 4, 2000));
}

TEST(Measurements, BelongToTheCardsThatTheyName) {
  const ClusterLibrary library = *read_cluster_library("model_specs/clusters");
  for (const char* name : {"A100 40GB SXM", "A100 80GB SXM", "H100 SXM", "H200", "B200", "GB200", "GB300"}) {
    const Gpu gpu = *find_gpu(name, library.gpus, "");
    ASSERT_NE(gpu.measured.get(), nullptr) << name;
    EXPECT_TRUE(gpu.measured.get()->collectives) << name;
    EXPECT_EQ(gpu.measured.get()->products->peak, gpu.bf16->value) << name;
    EXPECT_EQ(gpu.measured.get()->license, "Apache-2.0");
  }
  EXPECT_FALSE(find_gpu("L40S", library.gpus, "")->measured.get()->collectives);
  EXPECT_EQ(find_gpu("H100 PCIe", library.gpus, "")->measured.get(), nullptr);
}

std::string file_errors_of(std::string text) {
  const auto document = parse_json(std::move(text), "x.json");
  const auto found = read_measurements(*document);
  std::string lines;
  if (!found) {
    for (const Error& error : found.error()) lines += to_string(error) + "\n";
  }
  return lines;
}

TEST(Measurements, ReportsEveryError) {
  const std::string said = file_errors_of(R"({"format_version": "1.0", "kind": "measurements", "gpus": ["T4"],
 "package": {"name": "a", "version": "1", "license": "MIT", "copyright": "b"},
 "collectives": {"table": "t", "library": "NCCL 1", "link": "nvswitch", "bandwidth": "1GB/s", "bytes": [],
                 "times": [{"collective": "all_gathr", "gpus": 2, "microseconds": [1]}]},
 "products": {"table": "t", "dtype": "bf16", "peak": "1TFLOPS", "m": [1, 1], "n": [1, 2], "k": [1, 2], "share": [0.5, 2], "large": 1,
              "held_back": {"shapes": 1, "median": 0.1, "p90": 0.1}}})");
  EXPECT_NE(said.find("/collectives/bytes: The sizes do not rise."), std::string::npos) << said;
  EXPECT_NE(said.find("Unknown collective \"all_gathr\"."), std::string::npos) << said;
  EXPECT_NE(said.find("/products/m: The sizes do not rise."), std::string::npos) << said;
  EXPECT_NE(said.find("/products/share/1"), std::string::npos) << said;
}

TEST(Measurements, ThereIsAShareForEachPoint) {
  const std::string said = file_errors_of(R"({"format_version": "1.0", "kind": "measurements", "gpus": ["T4"],
 "package": {"name": "a", "version": "1", "license": "MIT", "copyright": "b"},
 "products": {"table": "t", "dtype": "bf16", "peak": "1TFLOPS", "m": [1, 2], "n": [1, 2], "k": [1, 2], "share": [0.5, 0.5], "large": 1,
              "held_back": {"shapes": 1, "median": 0.1, "p90": 0.1}}})");
  EXPECT_NE(said.find("/products/share: There are 2 values for 8 points."), std::string::npos) << said;
}

}  // namespace
}  // namespace fsdp
