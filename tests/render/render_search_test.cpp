#include "render/render_search.h"

#include <gtest/gtest.h>

namespace fsdp::render {
namespace {

TEST(SearchProgress, DescribesTheProgressOfTheSearch) {
  const planner::SearchProgress fastest{
      .stage = planner::SearchStage::Fastest, .space = 73530, .looked_at = 345, .at_least = Seconds(3.9)};
  EXPECT_EQ(text_of(fastest), "searching 73,530 plans: none that fits is faster than 3.90 s (345 looked at)");
  const planner::SearchProgress smallest{
      .stage = planner::SearchStage::Smallest, .space = 73530, .looked_at = 345, .needs = Bytes(3LL << 30)};
  EXPECT_EQ(text_of(smallest),
            "searching 73,530 plans for the smallest: none needs less than 3.00 GiB (345 looked at)");
  EXPECT_EQ(text_of({.stage = planner::SearchStage::Front, .space = 10, .looked_at = 2}),
            "searching 10 plans for smaller ones: 2 looked at");
  EXPECT_EQ(text_of({.stage = planner::SearchStage::Remedies}), "pricing changes");
}

}  // namespace
}  // namespace fsdp::render
