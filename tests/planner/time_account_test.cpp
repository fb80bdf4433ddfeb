// Where the time of a step goes, and what is said to shorten its waits.

#include "planner/advice/time_account.h"

#include <gtest/gtest.h>

#include <numeric>

#include "planner/advice/time_changes.h"
#include "planner/request/plan_request.h"
#include "planner/space/space.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

StreamEvent event(Stream stream, std::string name, StepPhase phase, double start, double end, double exposed = 0) {
  return {.stream = stream,
          .name = std::move(name),
          .phase = phase,
          .start = Seconds(start),
          .end = Seconds(end),
          .exposed = Seconds(exposed)};
}

double of(const TimeAccount& account, TimeUse use) {
  return account.uses[static_cast<std::size_t>(use)].count();
}

TEST(TimeAccount, AssignsEachMomentToAUse) {
  // The second all-gather begins after a reduce-scatter, while compute waits already.
  const simulator::StepTimeline timeline{
      .step = Seconds(20),
      .compute = Seconds(11),
      .exposed_communication = Seconds(7),
      .events = {event(Stream::AllGather, "layers.0", StepPhase::Forward, 0, 3, 3),
                 event(Stream::Compute, "copy-out layers.0", StepPhase::Forward, 3, 4),
                 event(Stream::Compute, "layers.0", StepPhase::Forward, 4, 6),
                 event(Stream::ReduceScatter, "layers.1", StepPhase::Backward, 5, 8),
                 event(Stream::AllGather, "layers.1", StepPhase::Forward, 8, 10, 4),
                 event(Stream::Compute, "recompute", StepPhase::Backward, 11, 12),
                 event(Stream::Compute, "layers.1", StepPhase::Backward, 12, 16),
                 event(Stream::Compute, "clip_grad_norm", StepPhase::Optimizer, 16, 17),
                 event(Stream::Compute, "optimizer", StepPhase::Optimizer, 17, 20)}};
  const TimeAccount account = account_of(timeline);
  EXPECT_DOUBLE_EQ(of(account, TimeUse::Copies), 1);
  EXPECT_DOUBLE_EQ(of(account, TimeUse::Forward), 2);
  EXPECT_DOUBLE_EQ(of(account, TimeUse::Recompute), 1);
  EXPECT_DOUBLE_EQ(of(account, TimeUse::Backward), 4);
  EXPECT_DOUBLE_EQ(of(account, TimeUse::Clip), 1);
  EXPECT_DOUBLE_EQ(of(account, TimeUse::Optimizer), 3);
  EXPECT_DOUBLE_EQ(of(account, TimeUse::Collectives), 7);
  EXPECT_DOUBLE_EQ(of(account, TimeUse::Launches), 1) << "from 10 to 11";
  EXPECT_DOUBLE_EQ(account.launches.count(), 2) << "step, compute and waits say so";
  ASSERT_EQ(account.waits.size(), 1U);
  const Wait& wait = account.waits.front();
  EXPECT_EQ(wait.units, "layers.*");
  EXPECT_EQ(wait.count, 2);
  EXPECT_DOUBLE_EQ(wait.exposed.count(), 7);
  EXPECT_DOUBLE_EQ(wait.taken.count(), 5);
  EXPECT_DOUBLE_EQ(wait.queued.count(), 2);
  EXPECT_DOUBLE_EQ(wait.queued_behind[static_cast<std::size_t>(Stream::ReduceScatter)].count(), 2);
}

struct Question {
  ModelSpec spec = small_transformer({.layers = 6, .hidden = 512, .vocabulary = 8192, .batch = 4, .sequence = 256});
  Cluster cluster;
  Plan plan;
  simulator::Predictor predictor;

  explicit Question(int accumulation, Bytes memory = Bytes(std::int64_t{8} << 30))
      : cluster(small_cluster(4, 2, memory)), predictor(*build_model(spec), cluster) {
    plan = *base_plan(spec, {});
    plan.mesh = {1, 8};
    plan.accumulation = accumulation;
    plan.units = {};
    for (int layer = 0; layer < 6; ++layer) plan.units.push_back({{"model.layers." + std::to_string(layer)}, {}});
    plan.units.push_back({{""}, {}});
  }

  TimeExplanation answer() {
    const auto outcome = predictor.evaluate(plan, simulator::Detail::Memory);
    const Candidate best{.plan = plan, .step = outcome->step, .device_peak = outcome->peaks.device};
    const Workload workload;
    return *explain_time({.spec = spec,
                          .workload = workload,
                          .cluster = cluster,
                          .predictor = predictor,
                          .best = best,
                          .verdict = Verdict::Fits});
  }
};

TEST(TimeAccount, AddsUpToTheStep) {
  for (const int accumulation : {1, 2}) {
    Question question(accumulation);
    const TimeAccount account = question.answer().account;
    const Seconds sum = std::accumulate(account.uses.begin(), account.uses.end(), Seconds(0));
    EXPECT_NEAR(sum / account.step, 1, 1e-9);
    Seconds waits{0};
    for (const Wait& wait : account.waits) waits += wait.exposed;
    EXPECT_NEAR(waits.count(), of(account, TimeUse::Collectives), 1e-9 * account.step.count());
    EXPECT_GT(waits, Seconds(0)) << "else the cluster is too fast for the test";
  }
}

TEST(TimeAccount, ChangeSavesWhatItPromises) {
  Question question(8);
  const TimeExplanation explanation = question.answer();
  ASSERT_FALSE(explanation.waits.empty());
  int synced = 0;
  for (const ExplainedWait& explained : explanation.waits) {
    if (!explained.change) continue;
    EXPECT_LT(explained.change->exposed, explained.wait.exposed);
    EXPECT_LT(explained.change->remedy.delta_time, Seconds(0));
    if (explained.change->remedy.change.gradient_sync != GradientSync::Last) continue;
    ++synced;
    Question changed(8);
    changed.plan.sync_every_micro_batch = false;
    const TimeAccount account = changed.answer().account;
    EXPECT_NEAR((explanation.account.step + explained.change->remedy.delta_time) / account.step, 1, 1e-12);
    EXPECT_EQ(exposed_of(account, explained.wait), explained.change->exposed);
  }
  EXPECT_GT(synced, 0) << "reductions of each micro-batch cost more than those of one";
}

// One word for all: what runs fits, and is tight where it has no room to spare.
TEST(TimeAccount, ChangeThatLeavesNoRoomFitsAndIsTight) {
  Question synced(8);
  synced.plan.sync_every_micro_batch = false;
  const auto outcome = synced.predictor.evaluate(synced.plan, simulator::Detail::Device);
  const Bytes between = outcome->peaks.device + Bytes(outcome->margin.count() / 2);
  int told = 0;
  for (const ExplainedWait& explained : Question(8, between).answer().waits) {
    if (!explained.change || explained.change->remedy.change.gradient_sync != GradientSync::Last) continue;
    ++told;
    EXPECT_EQ(explained.change->remedy.verdict, Verdict::Fits);
    EXPECT_TRUE(explained.change->remedy.is_tight);
  }
  EXPECT_GT(told, 0);
}

}  // namespace
}  // namespace fsdp::planner
