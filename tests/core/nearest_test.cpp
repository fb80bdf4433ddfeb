#include "core/base/nearest.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {
namespace {

constexpr std::array<std::string_view, 6> kFlags = {"--gpus",    "--nodes",       "--mem",
                                                    "--cluster", "--micro-batch", "--forward-prefetch"};

TEST(NearestName, FindsANameWithOneWrongLetter) {
  EXPECT_EQ(nearest_name("--gpu", kFlags), "--gpus");    // missing
  EXPECT_EQ(nearest_name("--gpuss", kFlags), "--gpus");  // too many
  EXPECT_EQ(nearest_name("--gpis", kFlags), "--gpus");   // wrong
  EXPECT_EQ(nearest_name("--gpsu", kFlags), "--gpus");   // swapped
}

TEST(NearestName, IgnoresCaseAndSeparators) {
  constexpr std::array<std::string_view, 3> gpus = {"RTX 3090", "RTX 4090", "A100 80GB SXM"};
  EXPECT_EQ(nearest_name("rtx-4090", gpus), "RTX 4090");
  EXPECT_EQ(nearest_name("Micro_Batch", kFlags), "--micro-batch");
}

TEST(NearestName, FindsShortenedAndReorderedNames) {
  constexpr std::array<std::string_view, 3> gpus = {"RTX 3090", "H100 SXM", "A100 80GB SXM"};
  EXPECT_EQ(nearest_name("a100", gpus), "A100 80GB SXM");
  EXPECT_EQ(nearest_name("--prefetch-forward", kFlags), "--forward-prefetch");
}

TEST(NearestName, FindsNothingIfAllNamesAreFar) {
  EXPECT_EQ(nearest_name("banana", kFlags), std::nullopt);
  EXPECT_EQ(nearest_name("x", kFlags), std::nullopt);
  EXPECT_EQ(nearest_name("", kFlags), std::nullopt);
  EXPECT_EQ(nearest_name(std::string(1'000'000, 'a'), kFlags), std::nullopt);
  constexpr std::array<std::string_view, 2> short_names = {"ab", "c"};
  EXPECT_EQ(nearest_name("xy", short_names), std::nullopt);
}

TEST(NearestName, TheFirstOfEqualsWins) {
  constexpr std::array<std::string_view, 2> names = {"batch", "patch"};
  EXPECT_EQ(nearest_name("match", names), "batch");
}

TEST(SuggestName, AsksAboutTheNearestNameOrListsAll) {
  constexpr std::array<std::string_view, 3> dtypes = {"float32", "float16", "bfloat16"};
  EXPECT_EQ(suggest_name("bfloat6", dtypes), "Did you mean \"bfloat16\"?");
  EXPECT_EQ(suggest_name("int4", dtypes), "Known are float32, float16 and bfloat16.");
  EXPECT_EQ(suggest_name("int4", std::span<const std::string_view>()), "");
  const std::vector<std::string> many(30, "abc");
  EXPECT_TRUE(suggest_name("xyz", many).ends_with(", abc and 6 more.")) << suggest_name("xyz", many);
}

TEST(JoinNames, ReadsAsASentence) {
  constexpr std::array<std::string_view, 3> names = {"a", "b", "c"};
  EXPECT_EQ(join_names(names), "a, b and c");
  EXPECT_EQ(join_names(names, " or "), "a, b or c");
  EXPECT_EQ(join_names(std::span(names).first(1)), "a");
  EXPECT_EQ(join_names({}), "");
}

RC_GTEST_PROP(NearestName, ANameIsNearestToItself, ()) {
  const auto names = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(
      rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::inRange('a', 'z')))));
  const std::string name = *rc::gen::elementOf(names);
  if (name.size() > 1 && name.size() <= 128) RC_ASSERT(nearest_name(name, names) == name);
}

}  // namespace
}  // namespace fsdp
