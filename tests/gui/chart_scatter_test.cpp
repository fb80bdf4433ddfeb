#include "gui/charts/chart_scatter.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

namespace fsdp::gui {
namespace {

std::vector<ScatterPoint> any_points(unsigned seed, std::size_t count) {
  std::mt19937 random(seed);
  std::vector<ScatterPoint> points;
  for (std::size_t i = 0; i < count; ++i) {
    points.push_back({static_cast<double>(random() % 1000), static_cast<double>(random() % 500)});
  }
  return points;
}

RC_GTEST_PROP(ScatterGrid, FindsTheNearestPointAsBruteForceDoes, ()) {
  const auto seed = static_cast<unsigned>(*rc::gen::inRange(0, 1'000'000));
  const std::vector<ScatterPoint> points = any_points(seed, 1 + seed % 300);
  const double x = *rc::gen::inRange(-50, 1050);
  const double y = *rc::gen::inRange(-50, 550);
  const double reach = *rc::gen::inRange(1, 80);
  std::int32_t expected = -1;
  double least = reach * reach;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double distance = (points[i].x - x) * (points[i].x - x) + (points[i].y - y) * (points[i].y - y);
    if (distance > least || (distance == least && expected >= 0)) continue;
    expected = static_cast<std::int32_t>(i);
    least = distance;
  }
  RC_ASSERT(ScatterGrid(points, 16).nearest(x, y, reach) == expected);
}

TEST(ScatterGrid, HandlesFarOutliersAndNoPoints) {
  EXPECT_EQ(ScatterGrid({{0, 0}, {1e9, 1e9}}, 16).nearest(1e9 - 1, 1e9, 5), 1);
  EXPECT_EQ(ScatterGrid({}, 16).nearest(0, 0, 5), -1);
}

TEST(ParetoFront, ContainsThePointsThatNoOtherDominates) {
  // (1, 9) and (3, 4) and (6, 2) stay; (4, 4) is no better than (3, 4); (6, 3) is beaten.
  EXPECT_EQ(pareto_front({{4, 4}, {1, 9}, {6, 3}, {6, 2}, {3, 4}, {3, 4}}), (std::vector<std::int32_t>{1, 4, 3}));
  EXPECT_TRUE(pareto_front({}).empty());
}

TEST(ScatterKeys, LeadToTheNextPointInTheirDirection) {
  const std::vector<ScatterPoint> points = {{0, 0}, {10, 0}, {20, 3}, {10, -8}};
  EXPECT_EQ(neighbor(points, 0, Direction::Right), 1);
  EXPECT_EQ(neighbor(points, 1, Direction::Right), 2);
  EXPECT_EQ(neighbor(points, 1, Direction::Up), 3) << "up is toward smaller y";
  EXPECT_EQ(neighbor(points, 0, Direction::Left), -1);
  EXPECT_EQ(neighbor(points, 3, Direction::Down), 1);
}

}  // namespace
}  // namespace fsdp::gui
