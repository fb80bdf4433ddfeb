// How a search ends before it is done, and what it tells on the way.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "planner/advice/explained_search.h"
#include "planner/request/compared_search.h"
#include "planner/request/plan_request.h"
#include "planner/search/search.h"
#include "render/render_search.h"
#include "tests/support/search_cases.h"

namespace fsdp::planner {
namespace {

TEST(Search, EndsAsSoonAsItIsStopped) {
  Case c = standard_case(kPlenty);
  int asked = 0;
  const auto result = search(c.spec, c.workload, c.cluster, c.space, {.should_stop = [&] { return ++asked > 3; }});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().front().what, "The search was stopped.");
  EXPECT_LT(asked, 10);
}

TEST(Search, GivesUpAtItsWorkLimit) {
  // Most plans come near the budget, so that one after the other is walked.
  const Case c = standard_case(Bytes(700 << 20));
  const auto given_up = search(c.spec, c.workload, c.cluster, c.space, {.most_work = 1, .gives_up = true});
  ASSERT_FALSE(given_up.has_value());
  EXPECT_EQ(given_up.error().front().what, "The search was stopped.");
  const auto whole = search(c.spec, c.workload, c.cluster, c.space);
  const auto enough = search(c.spec, c.workload, c.cluster, c.space, {.most_work = kMostWork, .gives_up = true});
  ASSERT_TRUE(enough.has_value());
  EXPECT_TRUE(*enough == *whole);
}

// Whatever the limit, what is named fits, is not better than the best, and the gap reaches as far as the best is.
TEST(Search, WorkLimitGivesAFittingPlanAndATrueGap) {
  for (const int mib : {700, 1000}) {
    const Case c = standard_case(Bytes(std::int64_t{mib} << 20));
    const auto best = search(c.spec, c.workload, c.cluster, c.space, {.most_work = 0});
    ASSERT_TRUE(best.has_value());
    bool is_cut = false;
    for (std::int64_t work = 1; work < 100'000'000; work *= 32) {
      const auto cut = search(c.spec, c.workload, c.cluster, c.space, {.most_work = work});
      ASSERT_TRUE(cut.has_value());
      EXPECT_TRUE(*cut == *search(c.spec, c.workload, c.cluster, c.space, {.most_work = work}));
      is_cut = is_cut || cut->proof.stopped_early;
      if (cut->verdict == Verdict::Fits) {
        EXPECT_EQ(best->verdict, Verdict::Fits);
        const double gap = cut->best.step / best->best.step - 1;
        EXPECT_LE(gap, cut->proof.optimality_gap + 1e-9) << mib << " MiB, " << work;
        EXPECT_EQ(cut->proof.doubt, "");
      } else if (best->verdict == Verdict::Fits) {
        // It did not find it, and does not say that there is none.
        EXPECT_FALSE(no_plan_fits(*cut));
        EXPECT_NE(cut->proof.doubt, "");
      }
    }
    EXPECT_TRUE(is_cut) << mib;
  }
}

// A comparison asks as far as it is told to, and not as far as a search goes that nobody told anything.
TEST(Search, ComparisonIsLimitedByWorkAloneIfRequested) {
  const Case c = standard_case(Bytes(700 << 20));
  ResolvedRequest request{.spec = c.spec, .workload = c.workload, .cluster = c.cluster, .space = c.space};
  request.space.max_predictions = 1;
  const auto proof_of = [&](const SearchOptions& options) {
    const auto found = search_briefly({&request}, options, {});
    EXPECT_TRUE(found.front() && *found.front());
    return (*found.front())->proof;
  };
  EXPECT_TRUE(proof_of({}).stopped_early);
  EXPECT_FALSE(proof_of({.most_work = 0, .counts_work_alone = true}).stopped_early);
  const auto whole = search_in_full(request, false, 0, {.most_work = 0, .counts_work_alone = true});
  ASSERT_TRUE(whole.has_value());
  EXPECT_FALSE(whole->proof.stopped_early);
}

TEST(Search, ReportsTheBestPlanBeforeTheRest) {
  Case c = standard_case(kPlenty);
  std::vector<SearchResult> told;
  const auto result = search(c.spec, c.workload, c.cluster, c.space,
                             {.on_best = [&](const SearchResult& best) { told.push_back(best); }});
  ASSERT_TRUE(result.has_value());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].report == result->report);
  EXPECT_TRUE(told[0].pareto.empty());
  EXPECT_FALSE(result->pareto.empty());
}

TEST(Search, EarlyAnswerIsAPrefixOfTheWholeAnswer) {
  for (const int mib : {64, 500, 700, 1000, 4000}) {
    const Case c = standard_case(Bytes(std::int64_t{mib} << 20));
    std::string told;
    const render::AnswerContext context{.commands = {"--verbose has the rest"}, .may_suggest = true};
    const auto begin_of = [&](const SearchResult& result) {
      const text::Document document = render::document_of(result, render::View{.brief = true}, context);
      EXPECT_GT(render::sections_of_verdict(document), 0U);
      return to_text(document, text::Terminal{}, 0, render::sections_of_verdict(document));
    };
    const auto result = search(c.spec, c.workload, c.cluster, c.space,
                               {.on_best = [&](const SearchResult& best) { told += begin_of(best); }});
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(told, begin_of(*result)) << mib;
  }
}

}  // namespace
}  // namespace fsdp::planner
