#include "core/base/name_ranges.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace fsdp {
namespace {

using NameList = std::vector<std::string>;

TEST(FoldNames, NeighborsThatCountUpBecomeOneRow) {
  EXPECT_EQ(fold_names(NameList{"model.layers.0", "model.layers.1", "model.layers.2"}),
            NameList{"model.layers.{0..2}"});
}

TEST(FoldNames, ANumberInTheMiddleCountsToo) {
  EXPECT_EQ(fold_names(NameList{"h.9.mlp", "h.10.mlp", "h.11.mlp"}), NameList{"h.{9..11}.mlp"});
}

TEST(FoldNames, AStepOtherThanOneNeedsThreeNames) {
  EXPECT_EQ(fold_names(NameList{"a.0", "a.2", "a.4"}), NameList{"a.{0..4..2}"});
  EXPECT_EQ(fold_names(NameList{"a.0", "a.2"}), (NameList{"a.0", "a.2"}));
}

TEST(FoldNames, AGapEndsARow) {
  EXPECT_EQ(fold_names(NameList{"a.0", "a.1", "a.3"}), (NameList{"a.{0..1}", "a.3"}));
}

TEST(FoldNames, NamesThatDoNotCountUpAreUnchanged) {
  const NameList names = {"", "lm_head", "a.1", "a.0", "a.01", "a.2.x", "b.3.x"};
  EXPECT_EQ(fold_names(names), names);
}

TEST(FoldNames, ANumberAfterAnUnderscoreCountsToo) {
  EXPECT_EQ(fold_names(NameList{"encoder.layers.encoder_layer_9", "encoder.layers.encoder_layer_10"}),
            NameList{"encoder.layers.encoder_layer_{9..10}"});
  EXPECT_EQ(fold_names(NameList{"layer_0.mlp", "layer_1.mlp"}), NameList{"layer_{0..1}.mlp"});
}

TEST(FoldNames, OtherNumbersInsideAPartAreUnchanged) {
  const NameList names = {"layer1", "layer2", "layer3", "a_1_b", "a_2_b", "b_1x", "b_2x", "c_01", "c_02"};
  EXPECT_EQ(fold_names(names), names);
}

TEST(UnfoldName, ARangeIsEachOfItsNames) {
  EXPECT_EQ(unfold_name("a.{8..10}.b", "x"), (NameList{"a.8.b", "a.9.b", "a.10.b"}));
  EXPECT_EQ(unfold_name("a.{0..5..2}", "x"), (NameList{"a.0", "a.2", "a.4"}));
  EXPECT_EQ(unfold_name("layer_{1..2}.b", "x"), (NameList{"layer_1.b", "layer_2.b"}));
  EXPECT_EQ(unfold_name("lm_head", "x"), NameList{"lm_head"});
}

TEST(UnfoldName, BracesWithoutARangeAreReported) {
  const std::string hint =
      "Write a row of modules as \"model.layers.{0..27}\", with a step as \"model.layers.{0..26..2}\".";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a.{0-3}", "has braces without a range of numbers"},
      {"a.{3}", "has braces without a range of numbers"},
      {"a.{0..x}", "has braces without a range of numbers"},
      {"a.{0..1..2..3}", "has braces without a range of numbers"},
      {"a.{3..1}", "is a range that does not rise"},
      {"a.{0..4..0}", "is a range that does not rise"},
      {"a.{0..9223372036854775807}", "is a range of more than a million names"},
      {"a.{0..99999999999999999999}", "has braces without a range of numbers"},
      {"a.{0..1}.{0..1}", "does not hold exactly one pair of braces"},
      {"a.}0..1{", "does not hold exactly one pair of braces"},
      {"a.{0..1", "does not hold exactly one pair of braces"},
  };
  for (const auto& [text, problem] : cases) {
    const auto names = unfold_name(text, "plan.json:3:4");
    ASSERT_FALSE(names) << text;
    EXPECT_EQ(names.error(), (Errors{{"plan.json:3:4", "\"" + text + "\" " + problem + ".", hint}}));
  }
}

TEST(UnfoldName, TheLargestStepDoesNotOverflow) {
  EXPECT_EQ(unfold_name("a.{9223372036854775800..9223372036854775807..5}", "x"),
            (NameList{"a.9223372036854775800", "a.9223372036854775805"}));
}

RC_GTEST_PROP(FoldNames, UnfoldingGivesTheSameNamesInTheSameOrder, ()) {
  // Few stems and small numbers, so that rows, breaks and repeated names are all common.
  const auto names = *rc::gen::container<NameList>(
      rc::gen::map(rc::gen::tuple(rc::gen::element<std::string>("a.", "a.b.", ".", "a_", "a_b_"),
                                  rc::gen::inRange(0, 6), rc::gen::element<std::string>("", ".c", ".1", "_1", "_c")),
                   [](const std::tuple<std::string, int, std::string>& parts) {
                     return std::get<0>(parts) + std::to_string(std::get<1>(parts)) + std::get<2>(parts);
                   }));
  NameList unfolded;
  for (const std::string& folded : fold_names(names)) {
    const auto row = unfold_name(folded, "");
    RC_ASSERT(row.has_value());
    unfolded.insert(unfolded.end(), row->begin(), row->end());
  }
  RC_ASSERT(unfolded == names);
  RC_ASSERT(fold_names(names).size() <= names.size());
}

}  // namespace
}  // namespace fsdp
