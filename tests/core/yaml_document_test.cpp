#include "core/formats/yaml_document.h"

#include <gtest/gtest.h>

#include <string>

#include "core/base/json_document.h"

namespace fsdp {
namespace {

/// Whether both are the same values; places and the writing of numbers do not count.
bool are_equal(const JsonValue& a, const JsonValue& b) {
  if (a.type != b.type || a.boolean != b.boolean || a.elements.size() != b.elements.size()) return false;
  if (a.members.size() != b.members.size()) return false;
  if (a.type == JsonType::Number && a.real != b.real) return false;
  if (a.type == JsonType::String && a.text != b.text) return false;
  for (std::size_t i = 0; i < a.elements.size(); ++i) {
    if (!are_equal(a.elements[i], b.elements[i])) return false;
  }
  for (const JsonMember& member : a.members) {
    const JsonValue* other = b.find(member.key);
    if (other == nullptr || !are_equal(member.value, *other)) return false;
  }
  return true;
}

std::string first_error(const std::string& text) {
  const Result<JsonDocument> read = parse_yaml(text, "sft.yaml");
  return read ? "" : to_string(read.error().front());
}

// words.json is what PyYAML makes of words.yaml; tests/rehearsal/trl_job_test.py holds it to that.
TEST(YamlDocument, ReadsWordsAsPyYamlDoes) {
  const std::string folder = "tests/golden/yaml/";
  const Result<JsonDocument> yaml = read_yaml_file(folder + "words.yaml");
  const Result<JsonDocument> json = read_json_file(folder + "words.json");
  ASSERT_TRUE(yaml && json);
  ASSERT_EQ(yaml->root.members.size(), json->root.members.size());
  for (const JsonMember& member : json->root.members) {
    const JsonValue* found = yaml->root.find(member.key);
    ASSERT_NE(found, nullptr) << member.key;
    EXPECT_TRUE(are_equal(*found, member.value)) << member.key;
  }
}

TEST(YamlDocument, KnowsThePlaceOfEachValue) {
  const Result<JsonDocument> read =
      parse_yaml("a: 1\nfsdp:\n  offload: yes\n  # A comment.\n  list: [x, 2]\n", "f.yaml");
  ASSERT_TRUE(read);
  const JsonValue* fsdp = read->root.find("fsdp");
  ASSERT_NE(fsdp, nullptr);
  EXPECT_EQ(read->where(fsdp->find("offload")->offset), "f.yaml:3:12: /fsdp/offload");
  EXPECT_EQ(read->where(fsdp->find("list")->elements[1].offset), "f.yaml:5:13: /fsdp/list/1");
}

TEST(YamlDocument, ReportsWhatPyYamlPassesOver) {
  EXPECT_EQ(first_error("a: 1\nb: 2\na: 3\n"),
            "sft.yaml:3:1: The key \"a\" appears twice, and only the last one counts. Remove one.");
  EXPECT_NE(first_error("a: [1, 2\nb: 3\n").find("sft.yaml:"), std::string::npos);
  EXPECT_EQ(first_error("a: 1\n---\nb: 2\n"), "sft.yaml: It has 2 documents. Leave one.");
  EXPECT_NE(first_error("[a, b]: 1\n").find("A key must be one word."), std::string::npos);
}

TEST(YamlDocument, EndsAtItsLimits) {
  // Each alias doubles the values of the last: two to the power of forty.
  std::string text = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 40; ++i) {
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + ", *a" +
            std::to_string(i - 1) + "]\n";
  }
  EXPECT_NE(first_error(text).find("too large"), std::string::npos);
  EXPECT_FALSE(parse_yaml(std::string(100'000, '['), "deep.yaml"));
}

}  // namespace
}  // namespace fsdp
