#include "gui/charts/chart_lanes.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "tests/gui/random.h"

namespace fsdp::gui {
namespace {

using test::Random;

const ChartAxis kHundred{{0, 100}, 0, 100};

TEST(LaneRuns, DoNotJoinWideSpans) {
  EXPECT_EQ(runs_of({{10, 20, 7}, {20, 40, 8}}, kHundred),
            (std::vector<LaneRun>{{10, 20, 1, 1, 7, {1}}, {20, 40, 1, 1, 8, {1}}}));
}

TEST(LaneRuns, JoinNarrowSpansAndCountTheirBusyTime) {
  // Four spans of half a pixel, one in each pixel: half of the run is idle.
  const std::vector<LaneRun> runs = runs_of({{10, 10.5, 1}, {11, 11.5, 2}, {12, 12.5, 3}, {13, 13.5, 4}}, kHundred);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].count, 4);
  EXPECT_EQ(runs[0].item, 1);
  EXPECT_DOUBLE_EQ(runs[0].busy, 2 / 3.5);
}

TEST(LaneRuns, KeepGroupsApartAndSumTheirKinds) {
  // Forward, then a backward in which three quarters of the time are of kind 1 and the rest of kind 2.
  const std::vector<LaneRun> runs = runs_of({{10, 10.5, 1, 0, 0},
                                             {10.5, 11, 2, 0, 0},
                                             {11, 11.75, 3, 1, 1},
                                             {11.75, 12, 4, 2, 1},
                                             {12, 12.75, 5, 1, 1},
                                             {12.75, 13, 6, 2, 1}},
                                            kHundred);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].count, 2);
  EXPECT_EQ(runs[1].count, 4);
  EXPECT_EQ(runs[0].shares, (std::array<double, kMostKinds>{1}));
  EXPECT_NEAR(runs[1].shares[1], 0.75, 1e-12);
  EXPECT_NEAR(runs[1].shares[2], 0.25, 1e-12);
}

TEST(LaneRuns, DoNotJoinAcrossAVisibleGap) {
  EXPECT_EQ(runs_of({{10, 10.5, 1}, {12, 12.5, 2}}, kHundred).size(), 2u);
}

TEST(LaneRuns, AreCutAtTheEndsOfTheAxis) {
  const ChartAxis zoomed{{50, 60}, 0, 100};
  EXPECT_EQ(runs_of({{0, 10, 1}, {40, 55, 2}, {58, 80, 3}, {90, 95, 4}}, zoomed),
            (std::vector<LaneRun>{{0, 50, 1, 1, 2, {1}}, {80, 100, 1, 1, 3, {1}}}));
}

RC_GTEST_PROP(LaneRuns, LoseNoSpanAndNoWork, ()) {
  Random random(*rc::gen::inRange(0, 1'000'000));
  std::vector<LaneSpan> spans;
  double now = 0;
  for (int i = 0; i < 5000; ++i) {
    now += (random() % 100) / 50.0;
    const double length = (1 + random() % 100) / 25.0;
    spans.push_back({now, now + length, i});
    now += length;
  }
  const ChartAxis axis{{0, now}, 0, 300};
  double work = 0;
  for (const LaneSpan& span : spans) work += (span.end - span.begin) / now * 300;
  int count = 0;
  double drawn = 0;
  double before = 0;
  for (const LaneRun& run : runs_of(spans, axis)) {
    count += run.count;
    drawn += run.busy * (run.end - run.begin);
    RC_ASSERT(run.begin >= before - 1e-9);
    RC_ASSERT(run.busy >= 0);
    RC_ASSERT(run.busy <= 1);
    before = run.end;
  }
  RC_ASSERT(count == 5000);
  RC_ASSERT(std::abs(drawn - work) < 1e-6 * work + 1e-6);
}

TEST(LaneHit, FindsTheSpanUnderThePointerOrTheNearest) {
  const std::vector<LaneSpan> spans = {{10, 20, 1}, {30, 40, 2}};
  EXPECT_EQ(span_at(spans, 15, 1), 1);
  EXPECT_EQ(span_at(spans, 29, 2), 2);
  EXPECT_EQ(span_at(spans, 21, 2), 1);
  EXPECT_EQ(span_at(spans, 25, 2), -1);
  EXPECT_EQ(span_at(spans, 41, 2), 2) << "behind the last one";
  EXPECT_EQ(span_at({}, 1, 1), -1);
}

TEST(Lanes, TimeCoveredByTwoStreamsCountsOnce) {
  EXPECT_EQ(covered_length({}), 0);
  EXPECT_EQ(covered_length({{0, 4}, {6, 9}}), 7);
  EXPECT_EQ(covered_length({{6, 9}, {0, 8}, {1, 2}}), 9) << "two streams at 90 % are not 180 %";
}

}  // namespace
}  // namespace fsdp::gui
