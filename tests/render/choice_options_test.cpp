#include "render/choice_options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fsdp::render {
namespace {

using Words = std::vector<std::string>;

TEST(ChoiceOptions, AreFoundAnywhereInACommandLine) {
  const auto taken = take_choices(Words{"--theme", "dark", "--gpus", "4", "qwen3_tts", "--mem=16G", "--view", "peak"});
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->texts, (ChoiceTexts{{planner::PlanChoice::Gpus, {"4"}}, {planner::PlanChoice::Memory, {"16G"}}}));
  EXPECT_EQ(taken->rest, (Words{"--theme", "dark", "qwen3_tts", "--view", "peak"}));
}

TEST(ChoiceOptions, AcceptAliasesAndNamesOfThePreviousVersion) {
  const auto taken = take_choices(Words{"--nproc-per-node", "8", "--nnodes=2", "--checkpoint", "full"});
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->texts, (ChoiceTexts{{planner::PlanChoice::Gpus, {"8"}},
                                       {planner::PlanChoice::Nodes, {"2"}},
                                       {planner::PlanChoice::Checkpoint, {"full"}}}));
}

TEST(ChoiceOptions, PatternsTakeAllWordsUpToTheNextOption) {
  const auto taken = take_choices(Words{"mlp", "--freeze", "a.*", "b.*", "--set", "x=1", "--set", "y=2"});
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->texts, (ChoiceTexts{{planner::PlanChoice::SetDimension, {"x=1", "y=2"}},
                                       {planner::PlanChoice::Freeze, {"a.*", "b.*"}}}));
}

TEST(ChoiceOptions, MissingAndRepeatedValuesAreAllReported) {
  const auto taken = take_choices(Words{"mlp", "--gpus", "4", "--gpus", "8", "--mem", "--seq"});
  ASSERT_FALSE(taken);
  ASSERT_EQ(taken.error().size(), 3u);
  EXPECT_EQ(to_string(taken.error()[0]), "--gpus: Given several times. Give it once.");
  EXPECT_EQ(to_string(taken.error()[1]), "--mem: The value is missing. Write --mem SIZE.");
  EXPECT_EQ(to_string(taken.error()[2]), "--seq: The value is missing. Write --seq N.");
}

}  // namespace
}  // namespace fsdp::render
