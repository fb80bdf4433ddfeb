#include "core/base/name_pattern.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace fsdp {
namespace {

TEST(NamePattern, WildcardsMatchDotsToo) {
  EXPECT_TRUE(matches("model.layers.*.mlp.*", "model.layers.12.mlp.up_proj.weight"));
  EXPECT_TRUE(matches("*.bias", "model.layers.0.self_attn.q_proj.bias"));
  EXPECT_TRUE(matches("model.layers.?.norm.weight", "model.layers.3.norm.weight"));
  EXPECT_FALSE(matches("model.layers.?.norm.weight", "model.layers.13.norm.weight"));
  EXPECT_FALSE(matches("*.bias", "model.norm.weight"));
  EXPECT_TRUE(matches("*", "x"));
}

TEST(NamePattern, ModuleMatchesItsDescendants) {
  EXPECT_TRUE(matches("talker", "talker.model.norm.weight"));
  EXPECT_TRUE(matches("model.layers.*.mlp", "model.layers.3.mlp.up_proj.weight"));
  EXPECT_FALSE(matches("talk", "talker.model.norm.weight"));
  EXPECT_FALSE(matches("model.norm", "talker.model.norm.weight"));
  EXPECT_FALSE(matches_exactly("talker", "talker.model.norm.weight"));
  EXPECT_FALSE(matches("", "a.b"));
}

/// The plain definition, by recursion.
bool naive(const std::string& pattern, const std::string& name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return naive(pattern.substr(1), name) || (!name.empty() && naive(pattern, name.substr(1)));
  }
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) && naive(pattern.substr(1), name.substr(1));
}

bool naive_module(const std::string& pattern, const std::string& name) {
  for (std::size_t i = 1; i < name.size(); ++i) {
    if (name[i] == '.' && naive(pattern, name.substr(0, i))) return true;
  }
  return naive(pattern, name);
}

RC_GTEST_PROP(NamePattern, AgreesWithItsDefinition, ()) {
  const auto pattern = *rc::gen::resize(10, rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab.*?"))));
  const auto name = *rc::gen::resize(10, rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab."))));
  RC_ASSERT(matches_exactly(pattern, name) == naive(pattern, name));
  RC_ASSERT(matches(pattern, name) == naive_module(pattern, name));
}

TEST(MatchesModule, StarMatchesWithinOnePart) {
  EXPECT_TRUE(matches_module("model.layers.*", "model.layers.12"));
  EXPECT_FALSE(matches_module("model.layers.*", "model.layers.12.mlp"));
  EXPECT_TRUE(matches_module("model.layers.*.mlp", "model.layers.12.mlp"));
  EXPECT_TRUE(matches_module("*.layers.?", "model.layers.3"));
  EXPECT_FALSE(matches_module("model?layers.3", "model.layers.3"));
  EXPECT_FALSE(matches_module("model", "model.layers"));
}

TEST(WithoutNumbers, OnlyWholePartsAreNumbers) {
  EXPECT_EQ(without_numbers("model.layers.12.mlp"), "model.layers.*.mlp");
  EXPECT_EQ(without_numbers("0.conv1.3"), "*.conv1.*");
  EXPECT_EQ(without_numbers(""), "");
}

}  // namespace
}  // namespace fsdp
