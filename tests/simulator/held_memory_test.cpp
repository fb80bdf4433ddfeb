// The part of the margin for memory that FSDP1 has freed and other streams still hold. Against the real FSDP1:
// tests/rehearsal/plan_runner_test.py, fsdp1_held.

#include <gtest/gtest.h>

#include "simulator/predictor.h"
#include "tests/support/small_models.h"

namespace fsdp::simulator {
namespace {

Plan plan_for(Framework framework, int gpus) {
  Plan plan;
  plan.runtime.framework = framework;
  plan.mesh = {1, gpus};
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  for (int i = 0; i < 6; ++i) plan.units.push_back({{"model.layers." + std::to_string(i)}, {}});
  plan.units.push_back({{""}, {}});
  return plan;
}

struct Held {
  StepReport report;
  Outcome quick;
};

Held predicted(const Plan& plan, Bytes memory = Bytes(15LL << 30)) {
  const planner::SmallTransformer sizes{.layers = 6, .hidden = 512, .heads = 8};
  Predictor predictor(*build_model(planner::small_transformer(sizes)),
                      planner::small_cluster(static_cast<int>(plan.mesh.shard), 1, memory));
  auto report = predictor.report(plan);
  EXPECT_TRUE(report.has_value()) << (report ? "" : to_string(report.error().front()));
  auto quick = predictor.evaluate(plan, Detail::Device);
  EXPECT_TRUE(quick.has_value());
  return {report.value_or(StepReport{}), quick.value_or(Outcome{})};
}

TEST(HeldMemory, IsPartOfTheMarginOfFsdp1) {
  const auto [report, quick] = predicted(plan_for(Framework::Fsdp1, 4));
  EXPECT_GT(report.memory.held, Bytes(0));
  EXPECT_GT(report.memory.margin, report.memory.held);
  EXPECT_EQ(quick.margin, report.memory.margin) << "The search and the report say the same.";
}

TEST(HeldMemory, IsNoneWhereStreamsAreNotRecorded) {
  EXPECT_EQ(predicted(plan_for(Framework::Fsdp2, 4)).report.memory.held, Bytes(0));
}

TEST(HeldMemory, IsLessWhereTheCpuWaitsForGathers) {
  Plan plan = plan_for(Framework::Fsdp1, 4);
  const MemoryReport limited = predicted(plan).report.memory;
  plan.fsdp1.limit_all_gathers = false;
  const MemoryReport free = predicted(plan).report.memory;
  EXPECT_GT(free.held, limited.held);
  ASSERT_EQ(free.peaks.device, limited.peaks.device);
  EXPECT_EQ(free.margin - limited.margin, free.held - limited.held);
}

TEST(HeldMemory, DecidesWhetherAPlanFits) {
  const Plan plan = plan_for(Framework::Fsdp1, 4);
  const MemoryReport& memory = predicted(plan).report.memory;
  const Bytes needed = memory.peaks.device + memory.margin;
  EXPECT_TRUE(predicted(plan, needed).quick.fits);
  EXPECT_FALSE(predicted(plan, needed - memory.held).quick.fits);
  EXPECT_FALSE(predicted(plan, needed - Bytes(1)).quick.fits);
}

}  // namespace
}  // namespace fsdp::simulator
