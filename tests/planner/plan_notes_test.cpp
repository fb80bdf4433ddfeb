// Sentences about gradients that a rank keeps between micro-batches.

#include "planner/advice/plan_notes.h"

#include <gtest/gtest.h>

#include <optional>
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
Answer answer(const Plan& plan, Bytes memory, std::optional<Bytes> host = std::nullopt) {
  Cluster cluster = small_cluster(kGpus, 1, memory);
  if (host) cluster.host_memory = Sourced<Bytes>{*host, Provenance::Given, "a test"};
  simulator::Predictor predictor(*build_model(small_transformer(kSizes)), cluster);
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

// Eight processes take 16 GiB, and 4 % of all are the margin. Under DDP each of eight ranks reads the whole model.
TEST(PlanNotes, WeightsThatTheHostCannotHoldWhileTheyAreLoadedAreNamed) {
  Plan ddp = plan_of(true);
  ddp.runtime.framework = Framework::Ddp;
  ddp.mesh = {kGpus, 1};
  ddp.units = {{{""}, {}}};
  ddp.mixed_precision = {};
  const Bytes processes = Bytes(16LL << 30);
  const Bytes model = Bytes(4 * answer(ddp, Bytes(80LL << 30)).report.parameters);
  const auto with_margin = [](Bytes bytes) { return Bytes(bytes.count() + bytes.count() / 25 + 1); };
  EXPECT_EQ(answer(ddp, Bytes(80LL << 30), with_margin(processes + 8 * model)).notes.find("loading"),
            std::string::npos);
  const std::string notes = answer(ddp, Bytes(80LL << 30), with_margin(processes + 7 * model)).notes;
  EXPECT_NE(notes.find("loading needs " + format_bytes(processes + 8 * model) + " of host memory on a node"),
            std::string::npos)
      << notes;
  EXPECT_NE(notes.find("each rank reads the whole model"), std::string::npos) << notes;
  // Rank 0 sends the weights of a plan of FSDP2.
  EXPECT_EQ(answer(plan_of(true), Bytes(80LL << 30), with_margin(processes + model)).notes.find("loading"),
            std::string::npos);
}

TEST(PlanNotes, RejectedPlansThatLackTheGradientsTheyKeepAreNamed) {
  simulator::Predictor predictor(*build_model(small_transformer(kSizes)), small_cluster(kGpus, 1, Bytes(1LL << 30)));
  const Bytes kept = Bytes(4 * predictor.report(plan_of(false))->receives_gradient_parameters);
  const Candidate last{.plan = plan_of(false), .label = "reduces last", .missing = kept};
  const Candidate every{.plan = plan_of(true), .label = "reduces each", .missing = Bytes(1)};
  EXPECT_EQ(note_on_rejected({every}, predictor), "");
  Candidate hopeless = last;
  hopeless.missing = kept + Bytes(1);
  EXPECT_EQ(note_on_rejected({hopeless}, predictor), "");
  const std::string note = note_on_rejected({every, last, last}, predictor);
  EXPECT_TRUE(note.starts_with("reduces last lacks " + format_bytes(kept))) << note;
  EXPECT_NE(
      note.find("of its 4 micro-batches each GPU would keep the gradients of the whole model, " + format_bytes(kept)),
      std::string::npos)
      << note;
  EXPECT_TRUE(note.ends_with("so would 1 more of the faster plans.")) << note;
}

}  // namespace
}  // namespace fsdp::planner
