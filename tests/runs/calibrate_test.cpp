// What a run teaches about a machine, and the file that keeps it.

#include "runs/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "core/cluster/cpu_cluster.h"
#include "planner/space/space.h"
#include "simulator/predictor.h"
#include "tests/support/small_models.h"

namespace fsdp::runs {
namespace {

constexpr int kRanks = 4;

struct Trained {
  ModelSpec spec =
      planner::small_transformer({.layers = 3, .hidden = 512, .vocabulary = 4096, .batch = 2, .sequence = 256});
  Model model = *build_model(spec, {});
  Cluster cluster = cpu_cluster(kRanks, Bytes(8LL << 30));
  Plan plan;

  Trained() {
    plan = *planner::base_plan(spec, {});
    plan.mesh = {1, kRanks};
    plan.units = {{.modules = {""}}};
  }

  TimeReport times(const Cluster& machines) const { return simulator::Predictor(model, machines).report(plan)->time; }

  /// A report as of a machine that is slower by these factors.
  StepReport measured(double compute, double communication) const {
    StepReport report;
    report.gpu = "CPU";
    report.time = times(calibrated(cluster, {.compute = compute, .communication = communication}));
    return report;
  }
};

TEST(Calibrate, FindsTheFactorsOfASlowerMachine) {
  const Trained run;
  const StepReport measured = run.measured(3.5, 8);
  const auto found = calibrate(run.model, run.plan, run.cluster, run.times(run.cluster), measured);
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(found->compute, 3.5, 1e-3);
  EXPECT_NEAR(found->communication, 8, 1e-2);
  EXPECT_EQ(found->ranks, kRanks);
  EXPECT_EQ(found->device, "CPU");
  const TimeReport again = run.times(calibrated(run.cluster, *found));
  EXPECT_NEAR(again.step / measured.time.step, 1, 1e-3);
}

TEST(Calibrate, FindsAFasterMachineToo) {
  const Trained run;
  const auto found = calibrate(run.model, run.plan, run.cluster, {}, run.measured(0.25, 0.5));
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(found->compute, 0.25, 1e-3);
}

TEST(Calibrate, RunWithoutWaitsLeavesLinksUncalibrated) {
  const Trained run;
  StepReport measured = run.measured(2, 1);
  measured.time.exposed_communication = Seconds(0);
  EXPECT_EQ(calibrate(run.model, run.plan, run.cluster, {}, measured)->communication, 1);
}

TEST(Calibrate, RecordsPredictionsBesideMeasurements) {
  const Trained run;
  const TimeReport predicted = run.times(run.cluster);
  const StepReport measured = run.measured(2, 3);
  const auto found = calibrate(run.model, run.plan, run.cluster, predicted, measured);
  ASSERT_EQ(found->residuals.size(), 4U);
  EXPECT_EQ(found->residuals[0], (TimeResidual{"step", predicted.step, measured.time.step}));
}

class CalibrationFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string path = testing::TempDir() + "calibration-" + std::to_string(getpid()) + ".json";
    std::ofstream(path) << text;
    return path;
  }
};

TEST_F(CalibrationFile, ReadsBackAsWritten) {
  Calibration calibration{"CPU", 4, 3.058, 31.43, "measured: a step", {{"step", Seconds(0.5), Seconds(0.25)}}, {}};
  calibration.workspaces.measured_on = "a CPU, AVX2";
  calibration.workspaces.set("mm bfloat16 2x3 3x4t", 1, Bytes(512));
  calibration.workspaces.set("mm bfloat16 2x3 3x4t", 2, Bytes(0));
  const auto read = read_calibration_file(write(to_text(calibration)));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, calibration);
}

TEST_F(CalibrationFile, ReportsEveryError) {
  const auto read = read_calibration_file(write(
      R"({"format_version": "7.0", "device": "CPU", "ranks": 0, "compute": -1, "comunication": 2, "source": "x"})"));
  ASSERT_FALSE(read.has_value());
  std::string said;
  for (const Error& error : read.error()) said += to_string(error) + "\n";
  for (const char* part : {"7.0", "/ranks", "/compute", "comunication", "communication"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
  }
}

TEST_F(CalibrationFile, MayLackKernels) {
  const auto read = read_calibration_file(write(
      R"({"format_version": "1.0", "device": "CPU", "ranks": 1, "compute": 1, "communication": 2, "source": "x"})"));
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(read->workspaces.empty());
}

TEST_F(CalibrationFile, ReportsErrorsOfKernels) {
  const auto read = read_calibration_file(write(
      R"({"format_version": "1.1", "device": "CPU", "ranks": 1, "compute": 1, "communication": 2, "source": "x",
          "workspaces": {"measured_on": "x", "calls": [{"call": "mm", "threads": 0, "bytes": -4}]}})"));
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().size(), 2U);
}

TEST(KernelCallText, IsEqualForEquivalentCalls) {
  const auto text = [](KernelOperand a, KernelOperand b) {
    return text_of(KernelCall{.name = "mm", .dtype = Dtype::BFloat16, .operands = {std::move(a), std::move(b)}});
  };
  EXPECT_EQ(text({{48, 64}, {64, 1}}, {{64, 172}, {1, 64}}), "mm bfloat16 48x64 64x172t");
  EXPECT_EQ(text({{48, 64}, {}}, {{64, 1}, {1, 64}}), "mm bfloat16 48x64 64x1");
  EXPECT_EQ(text({{2, 8, 24}, {192, 1, 8}}, {{12, 24}, {96, 1}}), "mm bfloat16 2x8x24t 12x24");
  EXPECT_EQ(text({{12, 24}, {1, 96}}, {{12, 24}, {96, 2}}), "mm bfloat16 12x24t 12x24(96,2)");
  const KernelCall convolution{.name = "convolution",
                               .dtype = Dtype::Float32,
                               .operands = {{{2, 3, 8, 8}, {}}},
                               .settings = {{"stride", {2, 2}}, {"padding", {1, 0}}, {"groups", {1}}}};
  EXPECT_EQ(text_of(convolution), "convolution float32 2x3x8x8 stride 2 padding 1,0 groups 1");
}

TEST(KernelWorkspaces, AddKeepsOwnValuesAndIgnoresOtherMachines) {
  KernelWorkspaces mine;
  KernelWorkspaces others;
  mine.measured_on = others.measured_on = "a";
  mine.set("x", 1, Bytes(1));
  others.set("x", 1, Bytes(2));
  others.set("y", 1, Bytes(3));
  mine.add(others);
  EXPECT_EQ(mine.find("x", 1), Bytes(1));
  EXPECT_EQ(mine.find("y", 1), Bytes(3));
  EXPECT_EQ(mine.find("y", 2), std::nullopt);
  others.measured_on = "b";
  others.set("z", 1, Bytes(4));
  mine.add(others);
  EXPECT_EQ(mine.find("z", 1), std::nullopt);
}

TEST(Calibrated, AddsWhatKernelsTake) {
  const Trained run;
  const auto live = [&](const Cluster& machines) {
    return *simulator::Predictor(run.model, machines).report(run.plan);
  };
  const StepReport before = live(run.cluster);
  const auto says = [](const StepReport& report, const std::string& part) {
    return std::any_of(report.assumptions.begin(), report.assumptions.end(),
                       [&](const std::string& line) { return line.find(part) != std::string::npos; });
  };
  EXPECT_TRUE(says(before, "--calibration"));
  EXPECT_FALSE(says(live(planner::small_cluster(kRanks, 1, Bytes(8LL << 30))), "--calibration")) << "GPUs";
  // The gradient of the head's weight, [4096, 512], of 512 rows: every step asks for it.
  Calibration calibration;
  calibration.workspaces.set("mm bfloat16 4096x512t 512x512", 1, Bytes(1LL << 30));
  const StepReport after = live(calibrated(run.cluster, calibration));
  EXPECT_GT(after.memory.peaks.live, Bytes(1LL << 30));
  EXPECT_LE(after.memory.peaks.live, before.memory.peaks.live + Bytes(1LL << 30));
  EXPECT_TRUE(says(after, "--calibration")) << "other products are not measured";
  Cluster of_two_threads = run.cluster;
  of_two_threads.gpu.num_sms.value = 2;
  EXPECT_EQ(live(calibrated(of_two_threads, calibration)).memory.peaks, live(of_two_threads).memory.peaks);
}

TEST(Calibrated, SlowsRatesAndLengthensLatencies) {
  const Cluster before = cpu_cluster(2, Bytes(1LL << 30));
  const Cluster after = calibrated(before, {.compute = 2, .communication = 4, .source = "a run"});
  EXPECT_DOUBLE_EQ(after.gpu.fp32->value.count(), before.gpu.fp32->value.count() / 2);
  EXPECT_DOUBLE_EQ(after.intra_node.bandwidth.value.count(), before.intra_node.bandwidth.value.count() / 4);
  EXPECT_DOUBLE_EQ(after.intra_node.latency.value.count(), before.intra_node.latency.value.count() * 4);
  EXPECT_EQ(after.gpu.fp32->provenance, Provenance::Measured);
  EXPECT_EQ(after.gpu.fp32->source, "a run");
}

}  // namespace
}  // namespace fsdp::runs
