#include "planner/search/widening_search.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

#include "planner/search/predictors.h"
#include "tests/support/search_cases.h"

namespace fsdp::planner {
namespace {

/// Near the edge of its memory, where one plan after the other is walked.
Case case_near_the_edge(std::int64_t mebibytes) {
  Case c = standard_case(Bytes(mebibytes << 20));
  c.space = whole(c.space);
  return c;
}

struct Asked {
  Engine engine;
  SearchOptions options;
  WideningSearch widening_search;
  bool is_long;

  Asked(const Case& c, std::optional<Seconds> other)
      : engine(c),
        widening_search(*WideningSearch::make(
            c.space, engine.predictors->of(0).index(), c.cluster,
            [this](std::int64_t m) -> simulator::Predictor& { return engine.predictors->of(m); }, options, 0)) {
    widening_search.start();
    is_long = widening_search.is_long();
    EXPECT_TRUE(widening_search.search(other));
  }
};

TEST(WideningSearch, PauseIfAnotherWayIsBetterAndCanResume) {
  bool was_long = false;
  for (const std::int64_t mebibytes : {620, 660, 700, 740, 780, 860, 1000}) {
    const Case c = case_near_the_edge(mebibytes);
    Asked without(c, std::nullopt);
    EXPECT_FALSE(without.widening_search.is_open());
    EXPECT_FALSE(without.widening_search.slower_than());
    if (!without.is_long) continue;
    was_long = true;
    const auto& fitting = without.widening_search.answer().fitting;
    Asked better(c, Seconds(0));
    EXPECT_TRUE(better.widening_search.is_open());
    ASSERT_TRUE(better.widening_search.slower_than()) << mebibytes;
    if (fitting) {
      EXPECT_LE(better.widening_search.slower_than()->count() * 1e9, fitting->cost.time);
      // One that is no better than the fastest plan ends nothing.
      Asked same(c, Seconds((fitting->cost.time + 1) * 1e-9));
      EXPECT_EQ(same.widening_search.answer().fitting, fitting) << mebibytes;
    }
    better.widening_search.go_on();
    EXPECT_FALSE(better.widening_search.is_open());
    EXPECT_FALSE(better.widening_search.slower_than());
    EXPECT_EQ(better.widening_search.answer().fitting, fitting) << mebibytes;
  }
  EXPECT_TRUE(was_long);
}

}  // namespace
}  // namespace fsdp::planner
