#include "planner/search/search_stages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/files.h"
#include "planner/search/expandable_segments.h"
#include "planner/search/search.h"
#include "tests/support/search_cases.h"

namespace fsdp::planner {
namespace {

TEST(SearchStages, MatchTheArchitecturePage) {
  const auto page = read_text_file("docs/architecture.md");
  ASSERT_TRUE(page.has_value());
  const std::string table = describe_stages();
  EXPECT_NE(page->find(table), std::string::npos) << table;
}

TEST(SearchStages, EitherRunAStepOrCompareAnotherSpace) {
  for (const Stage& stage : search_stages()) {
    EXPECT_NE(stage.step == nullptr, stage.next == nullptr) << stage.name;
    EXPECT_EQ(stage.next == nullptr, stage.is_better == nullptr) << stage.name;
    EXPECT_EQ(stage.next == nullptr, stage.wins.empty()) << stage.name;
  }
}

/// The answer on devices with so much memory, by the stages.
FoundPlan found_with(const Case& c, const SearchOptions& options) {
  return find_by_stages(c.spec, c.workload, c.cluster, c.space, options).value();
}

TEST(SearchStages, PreferSpacesWithUsualValuesIfTheyFit) {
  const SearchOptions options;
  bool is_other_space = false;
  for (const std::int64_t mebibytes : {400, 500, 560, 600, 620, 660, 700}) {
    Case c = standard_case(Bytes(mebibytes << 20));
    c.space.may_expand_segments = true;
    const FoundPlan found = found_with(c, options);
    const SearchResult plan = find_plan(c.spec, c.workload, c.cluster, c.space).value();
    EXPECT_EQ(found.searched->result.best, plan.best);
    // A plan with the setting comes from a space that has it, and says so.
    const bool has_setting = !plan.best.plan.runtime.allocator_settings.empty();
    EXPECT_EQ(found.searched->space.base.runtime.allocator_settings, has_setting ? kExpandableSegments : "");
    EXPECT_EQ(found.searched->answer, nullptr);
    is_other_space = is_other_space || has_setting;
  }
  EXPECT_TRUE(is_other_space);
}

}  // namespace
}  // namespace fsdp::planner
