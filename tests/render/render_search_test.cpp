#include "render/render_search.h"

#include <gtest/gtest.h>

namespace fsdp::planner {
namespace {

TEST(SearchProgress, SaysHowFarTheSearchIs) {
  const SearchProgress progress{
      .stage = SearchStage::Fastest, .space = 73530, .settled = 12345, .at_least = Seconds(3.9)};
  EXPECT_EQ(text_of(progress), "searching: 12,345 of 73,530 plans ruled out or predicted, at least 3.90 s");
  EXPECT_EQ(text_of({.stage = SearchStage::Remedies}), "pricing changes");
}

}  // namespace
}  // namespace fsdp::planner
