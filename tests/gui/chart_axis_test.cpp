#include "gui/charts/chart_axis.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace fsdp::gui {
namespace {

std::vector<std::string> labels(const std::vector<Tick>& ticks) {
  std::vector<std::string> texts;
  for (const Tick& tick : ticks) texts.push_back(tick.label);
  return texts;
}

TEST(ChartAxis, MapsValuesToPixelsAndBack) {
  const ChartAxis axis{{10, 20}, 100, 500};
  EXPECT_DOUBLE_EQ(axis.to_pixel(10), 100);
  EXPECT_DOUBLE_EQ(axis.to_pixel(15), 350);
  EXPECT_DOUBLE_EQ(axis.to_value(600), 20);
  const ChartAxis upwards{{0, 4}, 300, -300};
  EXPECT_DOUBLE_EQ(upwards.to_pixel(4), 0) << "a vertical axis rises to the top";
  EXPECT_DOUBLE_EQ(upwards.to_value(150), 2);
}

TEST(ChartAxis, HandlesAnEmptyRange) {
  const ChartAxis axis{{5, 5}, 7, 100};
  EXPECT_DOUBLE_EQ(axis.to_pixel(5), 7);
  EXPECT_TRUE(count_ticks({5, 5}, 4).empty());
}

RC_GTEST_PROP(ChartZoom, KeepsThePointUnderThePointer, ()) {
  const double share = *rc::gen::inRange(0, 101) / 100.0;
  const double factor = *rc::gen::inRange(11, 40) / 10.0;
  const ValueRange now{40, 60};
  const double at = now.begin + share * now.width();
  const ValueRange next = zoomed(now, factor, at, {0, 100}, 1e-3);
  RC_ASSERT(std::abs((at - next.begin) / next.width() - share) < 1e-9);
  RC_ASSERT(std::abs(next.width() - now.width() / factor) < 1e-9);
}

TEST(ChartZoom, StaysInsideTheWholeRange) {
  EXPECT_EQ(zoomed({40, 60}, 0.01, 50, {0, 100}, 1), (ValueRange{0, 100}));
  EXPECT_EQ(zoomed({0, 10}, 0.5, 9, {0, 100}, 1), (ValueRange{0, 20})) << "pushed back to the begin";
  EXPECT_EQ(panned({40, 60}, 90, {0, 100}), (ValueRange{80, 100}));
  EXPECT_EQ(panned({40, 60}, -90, {0, 100}), (ValueRange{0, 20}));
}

TEST(ChartZoom, EndsAtTheNarrowestRange) {
  EXPECT_EQ(zoomed({40, 60}, 1000, 50, {0, 100}, 2), (ValueRange{49, 51}));
  EXPECT_EQ(clamped({50, 50}, {0, 100}, 2), (ValueRange{49, 51}));
}

TEST(ChartTicks, CountBytesInOneBinaryUnit) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  EXPECT_EQ(labels(byte_ticks({0, 16 * kGiB}, 5)), (std::vector<std::string>{"0 GiB", "5 GiB", "10 GiB", "15 GiB"}));
  EXPECT_EQ(labels(byte_ticks({0, 1.2 * kGiB}, 4)), (std::vector<std::string>{"0 GiB", "0.5 GiB", "1.0 GiB"}));
  EXPECT_EQ(byte_ticks({0, 16 * kGiB}, 5)[1].value, 5 * kGiB);
  EXPECT_EQ(labels(byte_ticks({0, 3}, 10)), (std::vector<std::string>{"0 B", "1 B", "2 B", "3 B"}))
      << "half a byte is none";
}

TEST(ChartTicks, HaveTheDecimalsThatTheirDistanceNeeds) {
  EXPECT_EQ(labels(time_ticks({0.0120, 0.0125}, 6)),
            (std::vector<std::string>{"12.0 ms", "12.1 ms", "12.2 ms", "12.3 ms", "12.4 ms", "12.5 ms"}));
  EXPECT_EQ(labels(time_ticks({0, 2.5e-6}, 3)), (std::vector<std::string>{"0 us", "1 us", "2 us"}));
}

RC_GTEST_PROP(ChartTicks, AreRoundInsideTheRangeAndLimited, ()) {
  const double begin = *rc::gen::inRange(0, 100000) / 7.0;
  const double width = std::pow(10, *rc::gen::inRange(-6, 9)) * *rc::gen::inRange(1, 1000);
  const int most = *rc::gen::inRange(2, 12);
  const ValueRange range{begin, begin + width};
  const std::vector<Tick> ticks = time_ticks(range, most);
  RC_ASSERT(ticks.size() <= static_cast<std::size_t>(most) + 1);
  RC_ASSERT(ticks.size() >= static_cast<std::size_t>(most) / 3);
  for (const Tick& tick : ticks) {
    RC_ASSERT(tick.value >= range.begin - 1e-6 * width);
    RC_ASSERT(tick.value <= range.end + 1e-6 * width);
  }
}

}  // namespace
}  // namespace fsdp::gui
