// The search over a captured GAN, whose step has several passes, against brute force. The capture is of
// tests/rehearsal/capture_scripts/turns.py (mlp).

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/base/files.h"
#include "planner/advice/explained_search.h"
#include "planner/search/branch_and_bound.h"
#include "planner/search/search.h"
#include "tests/support/search_cases.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

Case captured_gan() {
  Case c;
  const auto text = read_text_file("tests/golden/captured/small_gan.json");
  auto spec = text ? parse_model_spec(*text, "small_gan.json") : Result<ModelSpec>();
  if (!spec) ADD_FAILURE() << to_string(spec.error().front());
  c.spec = spec.value_or(ModelSpec{});
  c.cluster = small_cluster(4, 1, kPlenty);
  c.space.base = *base_plan(c.spec, {});
  c.space.checkpoint_ways = {CheckpointMode::Full};
  return c;
}

TEST(PassesSearch, FindsWhatBruteForceFinds) {
  const Case c = captured_gan();
  Engine all(c);
  const std::vector<Priced> points = price_all(all);
  ASSERT_GT(points.size(), 50U);
  for (std::size_t i = 0; i < points.size(); i += points.size() / 12) {
    const Priced& limit = points[i];
    Engine engine(c, all);
    BranchAndBound search(engine.cost, Objective::Time);
    const auto found = search.next(limit.needed);
    ASSERT_TRUE(found.has_value());
    const Priced* best = nullptr;
    for (const Priced& point : points) {
      if (point.needed <= limit.needed && (best == nullptr || point.nanoseconds < best->nanoseconds)) best = &point;
    }
    EXPECT_EQ(found->cost.time, best->nanoseconds);
    EXPECT_EQ(search.num_broken_bounds(), 0);
  }
}

TEST(PassesSearch, BoundsAreNeverAboveAPlan) {
  const Case c = captured_gan();
  Engine engine(c);
  for (const Priced& point : price_all(engine)) {
    for (const CostLevel level : {CostLevel::Sums, CostLevel::Order, CostLevel::Time, CostLevel::Live}) {
      const Bound bound = engine.cost.bound(point.box, static_cast<int>(level));
      EXPECT_LE(bound.time, point.nanoseconds) << static_cast<int>(level);
      EXPECT_LE(bound.memory, point.needed) << static_cast<int>(level);
    }
  }
}

TEST(PassesSearch, EveryPlanHasEachModelAsAUnit) {
  const Case c = captured_gan();
  const auto found = search(c.spec, c.workload, c.cluster, c.space, {});
  ASSERT_TRUE(found.has_value());
  const std::vector<Unit>& units = found->best.plan.units;
  ASSERT_GE(units.size(), 3U);
  EXPECT_EQ(units[units.size() - 3].modules, (std::vector<std::string>{"Generator"}));
  EXPECT_EQ(units[units.size() - 2].modules, (std::vector<std::string>{"Discriminator"}));
  EXPECT_EQ(units.back().modules, (std::vector<std::string>{""}));
}

TEST(PassesSearch, UnpredictedFeaturesAreRefusedByName) {
  Case c = captured_gan();
  c.space.accumulation = 2;
  const auto found = search(c.spec, c.workload, c.cluster, c.space, {});
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(to_string(found.error().front()),
            "accumulation: The script trains its models by turns, so that a step has the micro-batches that it was "
            "captured with. Plan for one micro-batch a step: its samples are those of a captured batch on each GPU.");
}

}  // namespace
}  // namespace fsdp::planner
