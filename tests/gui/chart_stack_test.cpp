#include "gui/charts/chart_stack.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/gui/random.h"

namespace fsdp::gui {
namespace {

using test::Random;

std::vector<double> one_after_the_other(std::size_t count) {
  std::vector<double> positions(count);
  std::iota(positions.begin(), positions.end(), 0.0);
  return positions;
}

RC_GTEST_PROP(StackPyramid, FindsTheFirstHighestOfAnyRange, (std::vector<std::int8_t> heights)) {
  RC_PRE(!heights.empty());
  const int repeats = *rc::gen::inRange(1, 40);
  std::vector<std::int64_t> totals;
  for (int i = 0; i < repeats; ++i) totals.insert(totals.end(), heights.begin(), heights.end());
  const StackPyramid pyramid(totals);
  const auto size = static_cast<int>(totals.size());
  const int begin = *rc::gen::inRange(0, size);
  const int end = *rc::gen::inRange(begin + 1, size + 1);
  const auto expected = std::max_element(totals.begin() + begin, totals.begin() + end) - totals.begin();
  RC_ASSERT(pyramid.highest(static_cast<std::size_t>(begin), static_cast<std::size_t>(end)) ==
            static_cast<std::size_t>(expected));
}

TEST(StackColumns, ShowAPeakOfOneEventInAHundredThousand) {
  constexpr std::size_t kMoments = 100'000;
  std::vector<std::int64_t> totals(kMoments, 100);
  totals[54'321] = 1000;
  const StackPyramid pyramid(totals);
  const std::vector<double> positions = one_after_the_other(kMoments);
  const ChartAxis axis{{0, kMoments}, 0, 1200};
  const std::vector<StackColumn> columns = decimate(pyramid, positions, axis, 1200);
  const auto peak =
      std::find_if(columns.begin(), columns.end(), [](const StackColumn& column) { return column.moment == 54'321; });
  ASSERT_NE(peak, columns.end());
  EXPECT_EQ(peak->begin, 651) << "54321 of 100000 on 1200 pixels is 651.9";
  EXPECT_EQ(peak->end, 652);
}

RC_GTEST_PROP(StackColumns, CoverThePixelsOnceAndHoldTheHighestOfEach, ()) {
  Random random(*rc::gen::inRange(0, 1'000'000));
  const std::size_t count = 1 + static_cast<std::size_t>(random() % 3000);
  std::vector<double> positions(count);
  std::vector<std::int64_t> totals(count);
  double position = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (random() % 3 != 0) position += static_cast<double>(random() % 100);
    positions[i] = position;
    totals[i] = random() % 1000;
  }
  const double end = position + 1;
  const int pixels = 1 + random() % 300;
  const ValueRange range{end * (random() % 5) / 10.0, end * (5 + random() % 6) / 10.0};
  const ChartAxis axis{range, 50, 2.0 * pixels};
  const StackPyramid pyramid(totals);
  const std::vector<StackColumn> columns = decimate(pyramid, positions, axis, pixels);
  RC_ASSERT(columns.front().begin == 50);
  RC_ASSERT(std::abs(columns.back().end - (50 + 2.0 * pixels)) < 1e-9);
  for (std::size_t c = 1; c < columns.size(); ++c) RC_ASSERT(columns[c].begin == columns[c - 1].end);
  // Every moment strictly inside of the range is no higher than the column over it.
  for (std::size_t i = 0; i < count; ++i) {
    if (positions[i] <= range.begin || positions[i] >= range.end) continue;
    const double pixel = axis.to_pixel(positions[i]);
    const auto column = std::find_if(columns.begin(), columns.end(), [&](const StackColumn& c) {
      return c.begin <= pixel + 1e-7 && pixel < c.end + 1e-7;
    });
    RC_ASSERT(column != columns.end());
    RC_ASSERT(totals[column->moment] >= totals[i] ||
              (std::next(column) != columns.end() && totals[std::next(column)->moment] >= totals[i]));
  }
}

TEST(StackColumns, StackTheValuesOfOneMoment) {
  // One category dies as the other is born: 10 and 10, never 20.
  const std::vector<std::int64_t> first = {10, 0, 10, 0};
  const std::vector<std::int64_t> second = {0, 10, 0, 10};
  std::vector<std::int64_t> totals(4);
  for (std::size_t i = 0; i < 4; ++i) totals[i] = first[i] + second[i];
  const StackPyramid pyramid(totals);
  const std::vector<StackColumn> columns = decimate(pyramid, one_after_the_other(4), {{0, 4}, 0, 1}, 1);
  ASSERT_EQ(columns.size(), 1u);
  EXPECT_EQ(first[columns[0].moment] + second[columns[0].moment], 10);
}

TEST(StackColumns, ExtendAMomentToTheNext) {
  const std::vector<std::int64_t> totals = {5, 1, 7};
  const StackPyramid pyramid(totals);
  const std::vector<StackColumn> columns = decimate(pyramid, {0, 10, 20}, {{0, 30}, 0, 30}, 30);
  EXPECT_EQ(columns, (std::vector<StackColumn>{{0, 10, 0}, {10, 20, 1}, {20, 30, 2}}));
}

TEST(StackColumns, SeeAllMomentsOfOneInstant) {
  const std::vector<std::int64_t> totals = {1, 9, 2};
  const StackPyramid pyramid(totals);
  const std::vector<StackColumn> columns = decimate(pyramid, {0, 0, 0}, {{0, 10}, 0, 10}, 10);
  EXPECT_EQ(columns, (std::vector<StackColumn>{{0, 1, 1}, {1, 10, 2}})) << "the peak is seen, and is over at once";
}

TEST(StackColumns, AreEmptyWithoutData) {
  const std::vector<std::int64_t> none;
  EXPECT_TRUE(decimate(StackPyramid(none), {}, {{0, 1}, 0, 10}, 10).empty());
  EXPECT_TRUE(decimate(StackPyramid(), {}, {{0, 1}, 0, 10}, 10).empty());
}

}  // namespace
}  // namespace fsdp::gui
