#include "core/plan/framework_traits.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace fsdp {
namespace {

TEST(FrameworkTraits, EachFrameworkHasOneRowInItsPlace) {
  for (std::size_t f = 0; f < kFrameworkTraits.size(); ++f) {
    EXPECT_EQ(static_cast<std::size_t>(kFrameworkTraits[f].framework), f) << kFrameworkTraits[f].title;
  }
  std::set<std::string_view> names;
  for (const FrameworkTraits& each : kFrameworkTraits) {
    for (const std::string_view name : {each.plan_name, each.option, each.title})
      EXPECT_TRUE(names.insert(name).second);
    EXPECT_EQ(&traits_of(each.framework), &each);
    EXPECT_FALSE(each.sentence.empty());
  }
}

TEST(FrameworkTraits, PinnedReleasesAreThoseOfTheRuntime) {
  for (const FrameworkTraits& each : kFrameworkTraits) {
    const std::string_view release = each.zero_stage > 0      ? kDeepSpeedVersion
                                     : each.gathers_each_read ? kTorchtitanVersion
                                                              : "";
    EXPECT_NE(each.pinned.find(release), std::string_view::npos) << each.title;
  }
}

TEST(FrameworkTraits, AStageOfZeroNamesItsFramework) {
  for (int stage = 1; stage <= 3; ++stage) EXPECT_EQ(traits_of(framework_of_stage(stage)).zero_stage, stage);
}

// A parameter is gathered in one way, and a flat one belongs to a unit.
TEST(FrameworkTraits, FactsDoNotContradictEachOther) {
  for (const FrameworkTraits& each : kFrameworkTraits) {
    const int ways = (each.wraps_units ? 1 : 0) + (each.gathers_each_read ? 1 : 0) + (each.zero_stage > 0 ? 1 : 0);
    EXPECT_LE(ways, 1) << each.title;
    EXPECT_TRUE(each.wraps_units || !each.has_flat_parameters) << each.title;
    EXPECT_EQ(each.precision == PrecisionRule::MasterCopy, each.zero_stage > 0) << each.title;
    EXPECT_EQ(each.options == OptionsMember::Zero, each.zero_stage > 0) << each.title;
  }
}

}  // namespace
}  // namespace fsdp
