// What a run teaches about a machine, and the file that keeps it.

#include "planner/calibrate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "core/processors.h"
#include "planner/space.h"
#include "simulator/predictor.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

constexpr int kRanks = 4;

struct Trained {
  ModelSpec spec = small_transformer({.layers = 3, .hidden = 512, .vocabulary = 4096, .batch = 2, .sequence = 256});
  Model model = *build_model(spec, {});
  Cluster cluster = processors(kRanks, Bytes(8LL << 30));
  Plan plan;

  Trained() {
    plan = *base_plan(spec, {});
    plan.mesh = {.replicate = 1, .shard = kRanks};
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

TEST(Calibrate, ARunThatWaitedForNothingSaysNothingOfLinks) {
  const Trained run;
  StepReport measured = run.measured(2, 1);
  measured.time.exposed_communication = Seconds(0);
  EXPECT_EQ(calibrate(run.model, run.plan, run.cluster, {}, measured)->communication, 1);
}

TEST(Calibrate, KeepsWhatWasPredictedBeside) {
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

TEST_F(CalibrationFile, IsReadAsItWasWritten) {
  const Calibration calibration{"CPU", 4, 3.058, 31.43, "measured: a step", {{"step", Seconds(0.5), Seconds(0.25)}}};
  const auto read = read_calibration_file(write(to_text(calibration)));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, calibration);
}

TEST_F(CalibrationFile, SaysAllThatIsWrong) {
  const auto read = read_calibration_file(write(
      R"({"format_version": "7.0", "device": "CPU", "ranks": 0, "compute": -1, "comunication": 2, "source": "x"})"));
  ASSERT_FALSE(read.has_value());
  std::string said;
  for (const Error& error : read.error()) said += to_string(error) + "\n";
  for (const char* part : {"7.0", "/ranks", "/compute", "comunication", "communication"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
  }
}

TEST(Calibrated, SlowsRatesAndLengthensLatencies) {
  const Cluster before = processors(2, Bytes(1LL << 30));
  const Cluster after = calibrated(before, {.compute = 2, .communication = 4, .source = "a run"});
  EXPECT_DOUBLE_EQ(after.gpu.fp32->value.count(), before.gpu.fp32->value.count() / 2);
  EXPECT_DOUBLE_EQ(after.intra_node.bandwidth.value.count(), before.intra_node.bandwidth.value.count() / 4);
  EXPECT_DOUBLE_EQ(after.intra_node.latency.value.count(), before.intra_node.latency.value.count() * 4);
  EXPECT_EQ(after.gpu.fp32->provenance, Provenance::Measured);
  EXPECT_EQ(after.gpu.fp32->source, "a run");
}

}  // namespace
}  // namespace fsdp::planner
