// The phases of a job beside its steps, by arithmetic. Against the real PyTorch: tests/rehearsal/job_phases_test.py.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/report/job_phases.h"
#include "simulator/predictor.h"
#include "tests/support/small_models.h"
#include "tests/support/spec_models.h"

namespace fsdp::simulator {
namespace {

constexpr int kGpus = 4;
// An embedding and a head of 4096 x 512 numbers are the largest tensors.
const planner::SmallTransformer kSizes{.layers = 4, .hidden = 512, .heads = 8, .vocabulary = 4096};
constexpr std::int64_t kLargest = 4096 * 512 * 4;

Plan plan_of(Framework framework = Framework::Fsdp2) {
  Plan plan;
  plan.runtime.framework = framework;
  const bool is_cut = framework != Framework::Ddp;
  plan.mesh = is_cut ? Mesh{1, kGpus} : Mesh{kGpus, 1};
  plan.parameter_dtype = Dtype::Float32;
  if (is_cut) {
    plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
    for (int i = 0; i < kSizes.layers; ++i) plan.units.push_back({{"model.layers." + std::to_string(i)}, {}});
  }
  plan.units.push_back({{""}, {}});
  return plan;
}

struct Phases {
  StepReport report;
  std::vector<JobPhaseNeed> all;

  const JobPhaseNeed& of(JobPhase phase) const { return all[static_cast<std::size_t>(phase)]; }
};

Phases phases_of(const Plan& plan, planner::SmallTransformer sizes = kSizes, std::optional<Bytes> host = std::nullopt,
                 std::optional<Model> evaluation = std::nullopt, Bytes memory = Bytes(15LL << 30)) {
  Cluster cluster = planner::small_cluster(kGpus, 1, memory);
  if (host) cluster.host_memory = Sourced<Bytes>{*host, Provenance::Given, "a test"};
  Predictor predictor(*build_model(planner::small_transformer(sizes)), cluster);
  Phases phases{*predictor.report(plan), {}};
  phases.all = *predictor.job_phases(phases.report, std::move(evaluation));
  return phases;
}

std::int64_t host_bytes_of(const Phases& phases, JobPhase phase) {
  return (phases.of(phase).host.needed - phases.of(JobPhase::SteadyStep).host.needed).count();
}

TEST(JobPhases, StepsAreThoseOfTheReport) {
  const Phases phases = phases_of(plan_of());
  for (const PhasePeaks& peaks : phases.report.memory.phases) {
    if (peaks.phase == RunPhase::Initialization) continue;
    const bool is_first = peaks.phase == RunPhase::FirstStep;
    EXPECT_EQ(*phases.of(is_first ? JobPhase::FirstStep : JobPhase::SteadyStep).device, peaks.peaks);
  }
}

TEST(JobPhases, SavingGathersOneTensorAtATime) {
  // The root, which the evaluation has left unsharded in bf16: embedding, head and the last norm.
  const Phases mixed = phases_of(plan_of());
  const auto more = [](const Phases& of) {
    return (of.of(JobPhase::SavingWhole).device->live - of.of(JobPhase::SavingParts).device->live).count();
  };
  EXPECT_EQ(more(mixed), 2 * (2 * 4096 * 512 + 512));
  planner::SmallTransformer tied = kSizes;
  tied.tied = true;
  const Phases phases = phases_of(plan_of(), tied);
  EXPECT_EQ(more(phases), kLargest);
  const MemoryPeaks& parts = *phases.of(JobPhase::SavingParts).device;
  // Three times the shards: parameters and two moments; and the batch.
  EXPECT_GT(parts.live, Bytes(3 * 4 * phases.report.parameters / kGpus));
}

TEST(JobPhases, RankZeroKeepsAllWeightsOnTheHostAndTiedOnesForEachName) {
  const Phases phases = phases_of(plan_of());
  EXPECT_EQ(host_bytes_of(phases, JobPhase::SavingWhole), 4 * phases.report.parameters);
  planner::SmallTransformer tied = kSizes;
  tied.tied = true;
  const Phases of_tied = phases_of(plan_of(), tied);
  EXPECT_EQ(host_bytes_of(of_tied, JobPhase::SavingWhole), 4 * of_tied.report.parameters + kLargest);
}

TEST(JobPhases, PartsAreCopiedByAllRanksOfANode) {
  const Phases phases = phases_of(plan_of());
  EXPECT_EQ(host_bytes_of(phases, JobPhase::SavingParts), 3 * 4 * phases.report.parameters);
}

TEST(JobPhases, OneRankReadsWhatItSendsAndEachRankReadsAModelThatIsNotSharded) {
  const Phases fsdp2 = phases_of(plan_of());
  EXPECT_EQ(host_bytes_of(fsdp2, JobPhase::Loading), 4 * fsdp2.report.parameters);
  const Phases ddp = phases_of(plan_of(Framework::Ddp));
  EXPECT_EQ(host_bytes_of(ddp, JobPhase::Loading), kGpus * 4 * ddp.report.parameters);
  // A tensor is whole on the GPU before its shard is copied from it.
  EXPECT_GE(fsdp2.of(JobPhase::Loading).device->live, Bytes(4 * fsdp2.report.parameters / kGpus + kLargest));
}

TEST(JobPhases, ResumingMakesStatesByAnUpdateOfZeros) {
  const Phases phases = phases_of(plan_of());
  const std::int64_t shards = 4 * phases.report.parameters / kGpus;
  // Shards, gradients, two moments, and the list of roots of the foreach implementation.
  const std::int64_t live = phases.of(JobPhase::ResumingParts).device->live.count();
  EXPECT_GE(live, 5 * shards);
  EXPECT_LT(live, 5 * shards + (1 << 16));
}

TEST(JobPhases, AStepThatRunsOutOfMemoryIsTheLast) {
  const MemoryPeaks whole = *phases_of(plan_of()).of(JobPhase::Evaluation).device;
  const Phases phases =
      phases_of(plan_of(), kSizes, std::nullopt, std::nullopt, whole.device - Bytes(whole.reserved.count() / 2));
  ASSERT_EQ(phases.of(JobPhase::SteadyStep).on_device.verdict, Verdict::DoesNotFit);
  EXPECT_EQ(phases.of(JobPhase::Evaluation).on_device.verdict, Verdict::DoesNotFit);
  EXPECT_EQ(*phases.of(JobPhase::Evaluation).device, whole);
}

TEST(JobPhases, AnEvaluationSavesNothing) {
  const Phases phases = phases_of(plan_of());
  EXPECT_LT(phases.of(JobPhase::Evaluation).device->live, phases.of(JobPhase::SteadyStep).device->live);
  // Logits of twice as many samples, in bf16, fp32 and their log_softmax.
  planner::SmallTransformer twice = kSizes;
  twice.batch *= 2;
  const Phases larger = phases_of(plan_of(), kSizes, std::nullopt, *build_model(planner::small_transformer(twice)));
  EXPECT_GT(larger.of(JobPhase::Evaluation).device->live, phases.of(JobPhase::Evaluation).device->live);
  EXPECT_EQ(larger.of(JobPhase::SteadyStep).device, phases.of(JobPhase::SteadyStep).device);
}

TEST(JobPhases, ThePhaseThatDoesNotFitIsNamed) {
  const Phases enough = phases_of(plan_of(), kSizes, Bytes(64LL << 30));
  EXPECT_EQ(first_misfit(enough.all, Bytes(15LL << 30)), "");
  // The processes need 8 GiB and their margin.
  const Phases small = phases_of(plan_of(), kSizes, Bytes((8LL << 30) + (340LL << 20)));
  EXPECT_TRUE(first_misfit(small.all, Bytes(15LL << 30)).starts_with("loading needs "))
      << first_misfit(small.all, Bytes(1));
  EXPECT_TRUE(small.of(JobPhase::SteadyStep).fits());
}

TEST(JobPhases, PhasesThatAreNotPredictedAreEmpty) {
  Plan plan = plan_of();
  plan.optimizer.kind = OptimizerKind::ScheduleFreeAdamW;
  const Phases phases = phases_of(plan);
  EXPECT_FALSE(phases.of(JobPhase::ResumingWhole).device);
  EXPECT_TRUE(phases.of(JobPhase::Evaluation).device);
}

}  // namespace
}  // namespace fsdp::simulator
