// The search against brute force, on spaces and costs drawn at random.

#include "planner/search/branch_and_bound.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

namespace fsdp::planner {
namespace {

using Point = std::tuple<int, int, int>;  // Family, then two coordinates.

/// Costs from a table. A box is bounded by the true minimum of its points, weakened by what the table says.
class TableModel : public CostModel {
 public:
  std::vector<Box> boxes;
  std::map<Point, Bound> costs;
  double weakness = 0;  ///< How much level 0 stays below the truth; level 1 is half as weak.

  std::vector<Box> space() const override { return boxes; }
  int num_levels() const override { return 3; }
  std::string level_name(int level) const override { return std::to_string(level); }

  Bound bound(const Box& box, int level) override {
    Bound least{1e300, INT64_MAX};
    for (const auto& [point, cost] : costs) {
      if (!is_in(point, box)) continue;
      least.time = std::min(least.time, cost.time);
      least.memory = std::min(least.memory, cost.memory);
    }
    if (level == 2) ++num_exact;
    const double slack = level == 0 ? weakness : level == 1 ? weakness / 2 : 0;
    if (level == 2 && least.memory > enough) least.memory = enough + 1;
    return {least.time - slack, least.memory - static_cast<std::int64_t>(slack)};
  }
  void care_up_to(std::int64_t memory) override { enough = memory; }

  static Point point_of(const Box& box) { return {box.family, box.ranges[0].first, box.ranges[1].first}; }
  int num_exact = 0;
  std::int64_t enough = INT64_MAX;

 private:
  static bool is_in(const Point& point, const Box& box) {
    const auto [family, x, y] = point;
    return family == box.family && box.ranges[0].first <= x && x <= box.ranges[0].last && box.ranges[1].first <= y &&
           y <= box.ranges[1].last;
  }
};

TableModel random_model() {
  TableModel model;
  const int num_families = *rc::gen::inRange(1, 4);
  for (int family = 0; family < num_families; ++family) {
    Box box;
    box.family = family;
    box.num_coordinates = 2;
    box.ranges[0] = {*rc::gen::inRange(0, 2), *rc::gen::inRange(2, 6)};
    box.ranges[1] = {0, *rc::gen::inRange(0, 5)};
    model.boxes.push_back(box);
    for (int x = box.ranges[0].first; x <= box.ranges[0].last; ++x) {
      for (int y = box.ranges[1].first; y <= box.ranges[1].last; ++y) {
        // Few values, so that ties are the rule.
        model.costs[{family, x, y}] = {static_cast<double>(*rc::gen::inRange(0, 12)), *rc::gen::inRange(0, 12)};
      }
    }
  }
  model.weakness = *rc::gen::inRange(0, 8);
  return model;
}

/// The first of the best in the order of the space.
std::optional<Point> brute_force(const TableModel& model, Objective objective, std::int64_t budget) {
  std::optional<Point> best;
  double best_key = 0;
  for (const auto& [point, cost] : model.costs) {
    const double key = objective == Objective::Time ? cost.time : static_cast<double>(cost.memory);
    if (cost.memory <= budget && (!best || key < best_key)) std::tie(best, best_key) = std::tuple(point, key);
  }
  return best;
}

std::int64_t counted_boxes(const LevelCounts& counts) {
  return counts.evaluated + std::accumulate(counts.too_large.begin(), counts.too_large.end(), std::int64_t{0}) +
         std::accumulate(counts.too_slow.begin(), counts.too_slow.end(), std::int64_t{0});
}

void expect_brute_force(Objective objective) {
  TableModel model = random_model();
  const std::int64_t budget = *rc::gen::inRange(0, 13);
  BranchAndBound search(model, objective);
  const auto found = search.next(budget);
  const auto best = brute_force(model, objective, budget);
  RC_ASSERT(found.has_value() == best.has_value());
  if (best) {
    RC_ASSERT(TableModel::point_of(found->point) == *best);
    RC_ASSERT(found->cost == model.costs.at(*best));
  }
  RC_ASSERT(search.gap() == 0);
  RC_ASSERT(search.num_broken_bounds() == 0);
  const LevelCounts counts = search.counts();
  RC_ASSERT(counts.space == static_cast<std::int64_t>(model.costs.size()));
  RC_ASSERT(counted_boxes(counts) == counts.space);
  RC_ASSERT(counts.evaluated == model.num_exact);
}

RC_GTEST_PROP(BranchAndBound, TheFastestPointIsThatOfBruteForceTiesIncluded, ()) {
  expect_brute_force(Objective::Time);
}

RC_GTEST_PROP(BranchAndBound, TheSmallestPointIsThatOfBruteForceTiesIncluded, ()) {
  expect_brute_force(Objective::Memory);
}

RC_GTEST_PROP(BranchAndBound, LimitedSearchFindsAFittingPointAndATrueGap, ()) {
  TableModel model = random_model();
  const std::int64_t budget = *rc::gen::inRange(0, 13);
  for (auto& [point, cost] : model.costs) cost.time += 1;  // A gap is relative.
  model.weakness = std::min(model.weakness, 0.5);
  const int most = *rc::gen::inRange(0, 6);
  BranchAndBound search(model, Objective::Time);
  search.settle_when([&] { return model.num_exact >= most; });
  const auto found = search.next(budget);
  const auto best = brute_force(model, Objective::Time, budget);
  if (!found) {
    RC_ASSERT(!best || search.is_spent());
    return;
  }
  RC_ASSERT(best.has_value());
  RC_ASSERT(found->cost.memory <= budget);
  RC_ASSERT(found->cost.time <= model.costs.at(*best).time * (1 + search.gap()) + 1e-9);
  RC_ASSERT(counted_boxes(search.counts()) == search.counts().space);
}

RC_GTEST_PROP(BranchAndBound, SmallerAndSmallerBudgetsGiveTheWholeParetoFront, ()) {
  TableModel model = random_model();
  std::set<std::pair<std::int64_t, double>> front;
  for (const auto& priced : model.costs) {
    const Bound& cost = priced.second;
    const bool is_dominated = std::any_of(model.costs.begin(), model.costs.end(), [&](const auto& other) {
      const Bound& o = other.second;
      return o.time <= cost.time && o.memory <= cost.memory && (o.time < cost.time || o.memory < cost.memory);
    });
    if (!is_dominated) front.insert({cost.memory, cost.time});
  }
  BranchAndBound search(model, Objective::Time);
  std::set<std::pair<std::int64_t, double>> found;
  std::vector<std::pair<std::int64_t, double>> in_order;
  for (std::optional<EvaluatedPoint> point = search.next(100); point; point = search.next(point->cost.memory - 1)) {
    in_order.push_back({point->cost.memory, point->cost.time});
  }
  // Among equally fast points the search gives the first of the space, which need not be the smallest: those are
  // dominated by a later one of the same time.
  for (const auto& point : in_order) {
    const bool has_smaller = std::any_of(in_order.begin(), in_order.end(), [&](const auto& o) {
      return o.second == point.second && o.first < point.first;
    });
    if (!has_smaller) found.insert(point);
  }
  RC_ASSERT(found == front);
  RC_ASSERT(counted_boxes(search.counts()) == search.counts().space);
}

RC_GTEST_PROP(BranchAndBound, GapOfALimitedSearchBoundsItsError, ()) {
  TableModel model = random_model();
  for (auto& [point, cost] : model.costs) cost.time += 10;  // The gap is relative: away from zero.
  const std::int64_t budget = *rc::gen::inRange(0, 13);
  BranchAndBound search(model, Objective::Time);
  const auto found = search.next(budget, *rc::gen::inRange(1, 10));
  const auto best = brute_force(model, Objective::Time, budget);
  RC_ASSERT(found.has_value() == best.has_value());
  if (best) {
    const double least = model.costs.at(*best).time;
    RC_ASSERT(found->cost.time >= least);
    RC_ASSERT(found->cost.time <= least * (1 + search.gap()) + 1e-9);
    if (search.gap() == 0) RC_ASSERT(found->cost.time == least);
  }
}

RC_GTEST_PROP(BranchAndBound, PausedSearchResumesUnchanged, ()) {
  TableModel model = random_model();
  const std::int64_t budget = *rc::gen::inRange(0, 13);
  const std::int64_t limit = *rc::gen::inRange(0, 10);
  BranchAndBound straight(model, Objective::Time);
  const auto expected = straight.next(budget, limit);
  BranchAndBound paused(model, Objective::Time);
  paused.pause_after(*rc::gen::inRange(1, 10));
  auto found = paused.next(budget, limit);
  if (paused.is_paused()) {
    RC_ASSERT(!found);
    found = paused.next(budget, limit);
  }
  RC_ASSERT(!paused.is_paused());
  RC_ASSERT(found == expected);
  RC_ASSERT(paused.counts() == straight.counts());
  RC_ASSERT(paused.gap() == straight.gap());
}

RC_GTEST_PROP(BranchAndBound, PausesIfNothingIsBelowTheLimit, ()) {
  TableModel model = random_model();
  const std::int64_t budget = *rc::gen::inRange(0, 13);
  const auto least = static_cast<double>(*rc::gen::inRange(0, 13));
  BranchAndBound straight(model, Objective::Time);
  const auto expected = straight.next(budget);
  BranchAndBound paused(model, Objective::Time);
  paused.pause_at(least);
  auto found = paused.next(budget);
  if (paused.is_paused_at_least()) {
    RC_ASSERT(!found);
    RC_ASSERT(!expected || expected->cost.time >= least);
    paused.pause_at(std::nullopt);
    found = paused.next(budget);
  } else {
    RC_ASSERT(!found || found->cost.time < least);
  }
  RC_ASSERT(!paused.is_paused_at_least());
  RC_ASSERT(found == expected);
  RC_ASSERT(paused.counts() == straight.counts());
}

TEST(BranchAndBound, LimitedSearchVisitsEveryFamily) {
  TableModel model;
  for (int family = 0; family < 3; ++family) {
    Box box;
    box.family = family;
    box.num_coordinates = 2;
    box.ranges[0] = {0, 9};
    box.ranges[1] = {0, 9};
    model.boxes.push_back(box);
    for (int x = 0; x <= 9; ++x) {
      for (int y = 0; y <= 9; ++y) {
        // The first family is slow and small, the second nearly fills the budget, the third never fits.
        const Bound costs[] = {{50, 10}, {20.0 + x, 95}, {10, 103}};
        model.costs[{family, x, y}] = costs[family];
      }
    }
  }
  model.weakness = 8;
  BranchAndBound search(model, Objective::Time);
  const auto found = search.next(100, 4);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cost.time, 20);
  EXPECT_GT(search.gap(), 0);
  EXPECT_EQ(counted_boxes(search.counts()), search.counts().space);
}

TEST(BranchAndBound, MostOfALargeSpaceIsNeverVisited) {
  // A plane of 40 x 40: time grows with y and falls with x, memory does the opposite.
  TableModel model;
  Box box;
  box.num_coordinates = 2;
  box.ranges[0] = box.ranges[1] = {0, 39};
  model.boxes = {box};
  for (int x = 0; x < 40; ++x) {
    for (int y = 0; y < 40; ++y) model.costs[{0, x, y}] = {1000.0 + 10 * y - x, 1000 + 10 * x - 20 * y};
  }
  BranchAndBound search(model, Objective::Time);
  // Within 600: 10 x + 400 <= 20 y. With x = 0, y = 20: 1200. With x = 39, y = 39.5: out of the plane.
  const auto found = search.next(600);
  EXPECT_EQ(TableModel::point_of(found->point), Point(0, 0, 20));
  EXPECT_EQ(search.counts().space, 1600);
  EXPECT_LT(model.num_exact, 40);
}

TEST(BranchAndBound, BoundThatIsTooHighIsDetected) {
  TableModel model;
  Box box;
  box.num_coordinates = 2;
  box.ranges[0] = {0, 1};
  model.boxes = {box};
  model.costs = {{{0, 0, 0}, {5, 1}}, {{0, 1, 0}, {7, 1}}};
  model.weakness = -3;  // "Bounds" of 8 and 6.5.
  BranchAndBound search(model, Objective::Time);
  search.next(10);
  EXPECT_GT(search.num_broken_bounds(), 0);
}

}  // namespace
}  // namespace fsdp::planner
