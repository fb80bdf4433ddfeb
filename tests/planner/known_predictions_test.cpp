#include "planner/search/known_predictions.h"
#include "planner/advice/explained_search.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "core/plan/plan_json.h"
#include "planner/search/expandable_segments.h"
#include "planner/search/predicted_cost.h"
#include "planner/search/predictors.h"
#include "planner/search/search.h"
#include "tests/support/search_cases.h"

namespace fsdp::planner {
namespace {

using simulator::Detail;

std::string text_of(const Plan& plan) {
  JsonWriter writer;
  writer.begin_object();
  write_plan_members(writer, plan);
  writer.end_object();
  return std::move(writer).take();
}

/// The keys of all points of a space, with their plans as text.
void add_points(const Case& c, const Space& space, KnownPredictions& known,
                std::map<KnownPredictions::Key, std::set<std::string>>& plans,
                std::map<std::string, std::set<KnownPredictions::Key>>& keys) {
  Engine engine(c);
  const Families families = *families_of(space, engine.predictors->of(0).model(), c.cluster);
  for (int f = 0; f < static_cast<int>(families.families.size()); ++f) {
    const Family& family = families.families[static_cast<std::size_t>(f)];
    const int number = known.number_of(space.base, families, family);
    for (const std::int32_t kept : family.kept) {
      for (const std::int32_t checkpointed : family.checkpointed) {
        for (std::int32_t way = 0; way < static_cast<std::int32_t>(family.ways.size()); ++way) {
          if (checkpointed == 0 && way > 0) continue;  // Without blocks there is one way.
          const PlanPoint plan_point{f, kept, checkpointed, way};
          const auto key = KnownPredictions::key_of(number, families, plan_point);
          const std::string plan = text_of(plan_of(space.base, families, plan_point));
          plans[key].insert(plan);
          keys[plan].insert(key);
        }
      }
    }
  }
}

TEST(KnownPredictions, APlanHasOneKeyInEverySpace) {
  const Case c = standard_case(kPlenty);
  Space on_devices = c.space;
  on_devices.cpu_offload = false;
  Space expanded = c.space;
  expanded.base.runtime.allocator_settings = kExpandableSegments;
  KnownPredictions known;
  std::map<KnownPredictions::Key, std::set<std::string>> plans;
  std::map<std::string, std::set<KnownPredictions::Key>> keys;
  add_points(c, c.space, known, plans, keys);
  const std::size_t usual = plans.size();
  add_points(c, on_devices, known, plans, keys);
  EXPECT_EQ(plans.size(), usual);  // All of them are in the space with both.
  add_points(c, whole(c.space), known, plans, keys);
  EXPECT_GT(plans.size(), usual);
  const std::size_t all = plans.size();
  add_points(c, expanded, known, plans, keys);
  EXPECT_EQ(plans.size(), all + usual);
  for (const auto& [key, texts] : plans) EXPECT_EQ(texts.size(), 1U) << *texts.begin();
  for (const auto& [plan, of_plan] : keys) EXPECT_EQ(of_plan.size(), 1U) << plan;
}

TEST(KnownPredictions, SpacesShareTheirPredictions) {
  const Case c = standard_case(kPlenty);
  Engine engine(c);
  KnownPredictions known;
  const PredictorOf predictor_of = [&](std::int64_t m) -> simulator::Predictor& { return engine.predictors->of(m); };
  PredictedCost first(c.space.base, engine.families, predictor_of, Room::Spare, &known);
  PredictedCost second(c.space.base, engine.families, predictor_of, Room::Spare, &known);
  PredictedCost tight(c.space.base, engine.families, predictor_of, Room::None, &known);
  const PlanPoint plan_point = first.plan_point_of(first.space().front().first_point());
  for (const Detail detail : {Detail::Time, Detail::Live, Detail::Device}) {
    const simulator::Outcome& asked = first.outcome(plan_point, detail);
    EXPECT_EQ(second.outcome(plan_point, detail).peaks.device, asked.peaks.device);
    EXPECT_EQ(second.outcome(plan_point, detail).step, asked.step);
    EXPECT_EQ(second.outcome(plan_point, detail).own_lower_bound, asked.own_lower_bound);
  }
  EXPECT_EQ(first.asked().time + first.asked().live + first.asked().memory, 3);
  EXPECT_EQ(second.asked().time + second.asked().live + second.asked().memory, 0);
  // What a plan can live in is another question.
  tight.memory_up_to(plan_point, simulator::kWholePrediction);
  EXPECT_EQ(tight.asked().memory, 1);
}

// A prediction that has ended above some limit says nothing of a higher one.
TEST(KnownPredictions, PartialPredictionIsCompletedForAHigherLimit) {
  const Case c = standard_case(kPlenty);
  Engine engine(c);
  KnownPredictions known;
  const PredictorOf predictor_of = [&](std::int64_t m) -> simulator::Predictor& { return engine.predictors->of(m); };
  PredictedCost first(c.space.base, engine.families, predictor_of, Room::Spare, &known);
  PredictedCost second(c.space.base, engine.families, predictor_of, Room::Spare, &known);
  PredictedCost third(c.space.base, engine.families, predictor_of, Room::Spare, &known);
  const PlanPoint plan_point = first.plan_point_of(first.space().front().first_point());
  EXPECT_FALSE(first.memory_up_to(plan_point, Bytes(1)).is_whole);
  EXPECT_FALSE(second.memory_up_to(plan_point, Bytes(2)).is_whole);
  EXPECT_EQ(second.asked().memory, 0);
  EXPECT_TRUE(second.memory_up_to(plan_point, simulator::kWholePrediction).is_whole);
  EXPECT_EQ(second.asked().memory, 1);
  EXPECT_TRUE(third.memory_up_to(plan_point, Bytes(1)).is_whole);
  EXPECT_EQ(third.asked().memory, 0);
}

// A search on predictors that have answered it before has as much to walk as its report.
TEST(KnownPredictions, RepeatedSearchAnswersTheSameForLess) {
  Case c = standard_case(kPlenty);
  c.space.explain = false;
  const auto predictors = std::make_shared<Predictors>();
  const auto once = search(c.spec, c.workload, c.cluster, c.space, {.predictors = predictors});
  const std::int64_t work = predictors->work();
  const auto again = search(c.spec, c.workload, c.cluster, c.space, {.predictors = predictors});
  ASSERT_TRUE(once.has_value() && again.has_value());
  EXPECT_EQ(*again, *once);
  EXPECT_LT(2 * (predictors->work() - work), work);
}

}  // namespace
}  // namespace fsdp::planner
