#include "planner/request/length_answer.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "planner/advice/explained_search.h"
#include "planner/request/plan_request.h"
#include "simulator/predictor.h"

namespace fsdp::planner {
namespace {

const std::string kLibraryOfRuns = "model_specs";

struct Planned {
  ResolvedRequest request;
  StepReport report;
};

Planned planned(const PlanChoices& choices, const std::string& model = "gpt2") {
  auto request = resolve({.model = model, .choices = choices}, kLibraryOfRuns);
  EXPECT_TRUE(request.has_value());
  request->space.explain = false;
  request->space.pareto_points = 0;
  auto found = search(request->spec, request->workload, request->cluster, request->space);
  EXPECT_TRUE(found.has_value());
  return {*std::move(request), found->report};
}

Result<LengthAnswer> answer_of(const Planned& planned, const std::vector<std::int64_t>& lengths, LengthOptions options,
                               std::int64_t limit = 0) {
  return answer_lengths(planned.request.spec, planned.report.plan, planned.request.cluster, planned.report.memory,
                        {.lengths = lengths, .limit = limit, .where = "lengths.txt"}, options);
}

std::vector<std::int64_t> spread_lengths() {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 97; ++i) lengths.push_back(24 + 10 * (i * 31 % 97));
  return lengths;  // 24 to 984
}

const PlanChoices kTwoGpus{.gpus = 2, .gpu_name = "L4", .batch = 4, .sequence = 1024};

TEST(LengthAnswer, ARunWithRoomFits) {
  const Planned plan = planned(kTwoGpus);
  const auto answer = answer_of(plan, spread_lengths(), {.steps = 50});
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->verdict().has_room());
  EXPECT_EQ(answer->drawn_gpus, kDrawnGpus);  // Two jobs of two GPUs.
  EXPECT_EQ(answer->planned.flushes, 0);
  EXPECT_EQ(answer->probability(), 0);
  EXPECT_EQ(answer->longest, 984);
  EXPECT_EQ(answer->sample_tokens.least, 24);
  EXPECT_EQ(answer->sample_tokens.most, 984);
  EXPECT_GE(answer->batch_tokens.median, answer->sample_tokens.median);
  EXPECT_LE(answer->allocated.most, answer->planned.peak_allocated.count());
  EXPECT_EQ(answer->reserved.most, answer->planned.peak_reserved.count());
  EXPECT_EQ(*answer, *answer_of(plan, spread_lengths(), {.steps = 50}));
}

TEST(LengthAnswer, EachChangeIsARunOfItsOwn) {
  const auto answer = answer_of(planned(kTwoGpus), spread_lengths(), {.steps = 50});
  ASSERT_TRUE(answer);
  const auto row = [&](const std::string& what) -> std::optional<LengthRow> {
    for (const LengthRow& each : answer->rows) {
      if (each.what == what) return each;
    }
    return std::nullopt;
  };
  ASSERT_TRUE(row("as planned") && row("expandable segments") && row("pad to a multiple of 64") &&
              row("group samples by length") && row("pad all to the longest"));
  EXPECT_EQ(row("expandable segments")->how, "PYTORCH_ALLOC_CONF=expandable_segments:True");
  EXPECT_EQ(row("expandable segments")->padding, row("as planned")->padding);
  EXPECT_GT(row("pad to a multiple of 64")->padding, row("as planned")->padding);
  EXPECT_GT(row("pad all to the longest")->padding, row("pad to a multiple of 64")->padding);
  EXPECT_LT(row("group samples by length")->padding, row("as planned")->padding);
  EXPECT_LE(row("expandable segments")->peak_reserved, row("as planned")->peak_reserved);
}

TEST(LengthAnswer, OneLengthReservesWhatThePlanDoes) {
  const Planned plan = planned(kTwoGpus);
  const auto answer = answer_of(plan, {1024}, {.steps = 5, .tries_remedies = false});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->planned.peak_reserved, plan.report.memory.peaks.reserved);
  EXPECT_EQ(answer->planned.peak_allocated, plan.report.memory.peaks.allocated);
  EXPECT_EQ(answer->at_longest, plan.report.memory.peaks.reserved);
  EXPECT_EQ(answer->margin, plan.report.memory.margin);
  EXPECT_TRUE(answer->rows.empty());
}

TEST(LengthAnswer, ACardThatIsTooSmallReturnsItsCacheOrRunsOut) {
  Planned plan = planned(kTwoGpus);
  const auto ample = answer_of(plan, spread_lengths(), {.steps = 200, .tries_remedies = false});
  ASSERT_TRUE(ample);
  const auto with_memory = [&](Bytes memory) {
    plan.request.cluster.gpu.usable_memory.value = memory;
    return *answer_of(plan, spread_lengths(), {.steps = 200, .tries_remedies = false});
  };
  const Bytes outside = ample->outside;
  const LengthAnswer no_margin = with_memory(outside + ample->planned.peak_reserved + Bytes(2 << 20));
  EXPECT_EQ(no_margin.verdict().tightness, Tightness::Margin);
  const LengthAnswer flushing = with_memory(outside + ample->planned.peak_reserved - Bytes(2 << 20));
  EXPECT_EQ(flushing.verdict().verdict, Verdict::Fits);
  EXPECT_EQ(flushing.verdict().tightness, Tightness::Flushes);
  EXPECT_GT(flushing.planned.flushes, 0);
  const LengthAnswer out = with_memory(outside + ample->planned.peak_allocated - Bytes(2 << 20));
  EXPECT_EQ(out.verdict().verdict, Verdict::DoesNotFit);
  EXPECT_GT(out.planned.num_out, 0);
  EXPECT_GT(out.planned.first_out, 0);
  EXPECT_GT(out.probability(), 0);
}

TEST(LengthAnswer, TheLongestSampleCountsAlsoIfItIsNotDrawn) {
  Planned plan = planned({.gpus = 1, .gpu_name = "L4", .batch = 1, .sequence = 1024});
  std::vector<std::int64_t> lengths(100000, 16);
  const auto drawn_seldom = [&](std::int64_t longest) {
    lengths[0] = longest;
    return *answer_of(plan, lengths, {.steps = 3, .tries_remedies = false});
  };
  const LengthAnswer ample = drawn_seldom(1024);
  ASSERT_LT(ample.batch_tokens.most, 1024);
  EXPECT_EQ(ample.longest, 1024);
  EXPECT_EQ(ample.verdict().verdict, Verdict::Fits);
  LengthAnswer scarce = ample;
  for (std::int64_t less = 1; !scarce.longest_is_out && less < 64; ++less) {
    plan.request.cluster.gpu.usable_memory.value = ample.outside + ample.at_longest - Bytes(less << 25);
    scarce = drawn_seldom(1024);
  }
  EXPECT_EQ(scarce.planned.num_out, 0);
  EXPECT_TRUE(scarce.longest_is_out);
  EXPECT_EQ(scarce.verdict().verdict, Verdict::DoesNotFit);
}

TEST(LengthAnswer, CutsAndRefusesLongSamples) {
  const Planned plan = planned(kTwoGpus);
  const auto cut = answer_of(plan, {10, 5000, 700, 2000}, {.steps = 4, .tries_remedies = false}, 1024);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->num_cut, 2);
  EXPECT_EQ(cut->sample_tokens.most, 1024);
  const auto refused = answer_of(plan, {10, 5000}, {.steps = 4, .tries_remedies = false});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().front().where, "lengths.txt");
  EXPECT_NE(refused.error().front().what.find("A batch of 5000 tokens a row cannot be trained."), std::string::npos)
      << refused.error().front().what;
}

TEST(LengthAnswer, RefusesModelsWithoutSequences) {
  const Planned plan = planned({.gpus = 2, .gpu_name = "L4"}, "resnet18");
  const auto refused = answer_of(plan, {10}, {.steps = 4});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().front().what.find("has no size \"seq\""), std::string::npos);
}

}  // namespace
}  // namespace fsdp::planner
