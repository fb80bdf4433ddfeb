// What --objective asks, against every plan of a space, each predicted.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/plan/plan.h"
#include "planner/advice/explained_search.h"
#include "planner/search/search.h"
#include "planner/search/ties.h"
#include "planner/space/batches.h"
#include "planner/space/space.h"
#include "tests/support/search_cases.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

/// Three layers on two GPUs; small enough for every plan of it to be predicted.
Case small_case(SearchObjective objective, Bytes memory) {
  Case c;
  c.spec = small_transformer({.layers = 3, .hidden = 256, .vocabulary = 4096, .batch = 2, .sequence = 256});
  c.cluster = small_cluster(2, 1, memory);
  c.space.base = *base_plan(c.spec, c.workload);
  c.space.objective = objective;
  c.space.blocks_per_unit = {1, 0};
  c.space.max_micro_batch = 3;
  c.space.cpu_offload = false;
  return c;
}

/// Step times are told in whole nanoseconds.
constexpr double kRounded = 1e-6;

std::int64_t needed(const SearchResult& result) {
  return (result.report.memory.peaks.device + result.report.memory.margin).count();
}

TEST(Objective, MemoryFindsTheFastestOfTheSmallestPlans) {
  Case all = small_case(SearchObjective::Time, kPlenty);
  all.space = whole(all.space);
  Engine engine(all);
  const std::vector<Priced> points = price_all(engine);
  const std::int64_t least = std::min_element(points.begin(), points.end(), [](const Priced& a, const Priced& b) {
                               return a.needed < b.needed;
                             })->needed;
  double fastest = 0;
  for (const Priced& point : points) {
    if (point.needed == least && (fastest == 0 || point.nanoseconds < fastest)) fastest = point.nanoseconds;
  }
  ASSERT_GT(points.size(), 100U);
  for (const Bytes memory : {Bytes(2 * least), kPlenty}) {
    const Case c = small_case(SearchObjective::Memory, memory);
    const SearchResult found = *search(c.spec, c.workload, c.cluster, c.space);
    EXPECT_EQ(found.verdict, Verdict::Fits);
    EXPECT_EQ(needed(found), least);
    EXPECT_NEAR(found.best.step.count() * 1e9 / fastest, 1, kRounded);
    EXPECT_EQ(found.proof.optimality_gap, 0);
    EXPECT_TRUE(found.proof.is_proven);
  }
  const Case tight = small_case(SearchObjective::Memory, Bytes(least - 1));
  EXPECT_EQ(search(tight.spec, tight.workload, tight.cluster, tight.space)->verdict, Verdict::DoesNotFit);
}

TEST(Objective, MemorySearchesExpandableSegmentsToo) {
  Case c = small_case(SearchObjective::Memory, kPlenty);
  c.space.may_expand_segments = false;
  const SearchResult without = *search(c.spec, c.workload, c.cluster, c.space);
  c.space.base.runtime.allocator_settings = "expandable_segments:True";
  const SearchResult with = *search(c.spec, c.workload, c.cluster, c.space);
  c.space.base.runtime.allocator_settings = "";
  c.space.may_expand_segments = true;
  const SearchResult either = *search(c.spec, c.workload, c.cluster, c.space);
  ASSERT_LT(with.best.device_peak, without.best.device_peak);
  EXPECT_EQ(either.best, with.best);
  EXPECT_EQ(needed(either), needed(with));
}

TEST(Objective, TokensFindsTheMostSamplesPerSecond) {
  const Case all = small_case(SearchObjective::Tokens, kPlenty);
  Engine engine(all);
  const std::vector<Priced> points = price_all(engine);
  std::vector<std::int64_t> sizes;
  for (const Priced& point : points) sizes.push_back(point.needed);
  std::sort(sizes.begin(), sizes.end());
  std::vector<double> answers;
  for (const std::size_t part : {0, 1, 8, 32, 63}) {
    const Case c = small_case(SearchObjective::Tokens, Bytes(sizes[part * (sizes.size() - 1) / 63]));
    const std::int64_t budget = budget_of(c.cluster).count();
    double most = 0;  // Samples of one GPU in a nanosecond.
    for (const Priced& point : points) {
      const Family& family = engine.families.families[point.box.family];
      const auto samples = static_cast<double>(family.micro_batch * family.accumulation);
      if (point.needed <= budget) most = std::max(most, samples / point.nanoseconds);
    }
    const SearchResult found = *search(c.spec, c.workload, c.cluster, c.space);
    ASSERT_EQ(found.verdict, Verdict::Fits) << part;
    EXPECT_LE(needed(found), budget);
    const double trained = static_cast<double>(samples_of(found.best.plan)) / 2 / (found.best.step.count() * 1e9);
    EXPECT_LE(trained, most * (1 + kRounded)) << part;
    EXPECT_GE(trained * (1 + kTieShare), most * (1 - kRounded)) << part;
    EXPECT_NEAR(most / trained - 1, found.proof.optimality_gap, kRounded) << part;
    if (answers.empty() || answers.back() != trained) answers.push_back(trained);
  }
  EXPECT_GE(answers.size(), 3U);  // More memory brings more.
}

TEST(Objective, TokensKeepsTheGivenBatch) {
  Case c = small_case(SearchObjective::Tokens, kPlenty);
  c.space.micro_batch = 3;
  EXPECT_EQ(samples_of(search(c.spec, c.workload, c.cluster, c.space)->best.plan) % 6, 0);
  c.space.accumulation = 5;
  EXPECT_EQ(samples_of(search(c.spec, c.workload, c.cluster, c.space)->best.plan), 30);
  c.space.micro_batch.reset();
  c.space.accumulation.reset();
  c.space.global_batch = 8;
  EXPECT_EQ(samples_of(search(c.spec, c.workload, c.cluster, c.space)->best.plan), 8);
}

TEST(Objective, TriesPowersOfTwoAndOneAndAHalfTimesThem) {
  EXPECT_EQ(tried_micro_batches(1), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(tried_micro_batches(12), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 8, 12}));
}

}  // namespace
}  // namespace fsdp::planner
