// Sentences about gradients that a rank keeps between micro-batches.

#include "planner/advice/plan_notes.h"

#include <gtest/gtest.h>

#include <string>

#include "core/base/parse_units.h"
#include "core/spec/model_spec.h"
#include "simulator/predictor.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

constexpr int kGpus = 8;
const SmallTransformer kSizes{.layers = 6, .hidden = 512, .heads = 8, .batch = 1, .sequence = 64};

Plan plan_of(bool every) {
  Plan plan;
  plan.mesh = {1, kGpus};
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  for (int i = 0; i < kSizes.layers; ++i) plan.units.push_back({{"model.layers." + std::to_string(i)}, {}});
  plan.units.push_back({{""}, {}});
  plan.accumulation = 4;
  plan.sync_every_micro_batch = every;
  return plan;
}

/// The notes of a plan on devices of this size, and its report.
struct Answer {
  StepReport report;
  std::string notes;
};
Answer answer(const Plan& plan, Bytes memory) {
  simulator::Predictor predictor(*build_model(small_transformer(kSizes)), small_cluster(kGpus, 1, memory));
  Answer found{*predictor.report(plan), ""};
  for (const std::string& note : plan_notes(plan, found.report, predictor)) found.notes += note + "\n";
  return found;
}

TEST(PlanNotes, GradientsOfTheWholeModelAreNamed) {
  const auto [report, notes] = answer(plan_of(false), Bytes(80LL << 30));
  const std::string kept = format_bytes(Bytes(4 * report.receives_gradient_parameters));
  EXPECT_NE(notes.find("last of 4 micro-batches each GPU keeps the gradients of the whole model, " + kept),
            std::string::npos)
      << notes;
  EXPECT_NE(notes.find("--gradient-sync every"), std::string::npos) << notes;
}

TEST(PlanNotes, DefaultOfTrainersIsNamedIfItDoesNotFit) {
  const Bytes every = answer(plan_of(true), Bytes(80LL << 30)).report.memory.peaks.device;
  const StepReport last = answer(plan_of(false), Bytes(80LL << 30)).report;
  ASSERT_GT(last.memory.peaks.device, every);
  const Answer between = answer(plan_of(true), every + Bytes((last.memory.peaks.device - every).count() / 8));
  ASSERT_EQ(between.report.verdict, Verdict::Fits);
  EXPECT_NE(between.notes.find("unless sync_each_batch is set"), std::string::npos) << between.notes;
  EXPECT_EQ(answer(plan_of(true), Bytes(80LL << 30)).notes.find("sync_each_batch"), std::string::npos);
}

TEST(PlanNotes, OneMicroBatchOrOneCopyPerGpuKeepsNothingMore) {
  Plan plan = plan_of(false);
  plan.accumulation = 1;
  EXPECT_EQ(answer(plan, Bytes(80LL << 30)).notes.find("micro-batches"), std::string::npos);
  plan = plan_of(false);
  plan.mesh = {kGpus, 1};
  EXPECT_EQ(answer(plan, Bytes(80LL << 30)).notes.find("micro-batches"), std::string::npos);
}

}  // namespace
}  // namespace fsdp::planner
