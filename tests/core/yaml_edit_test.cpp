#include "core/formats/yaml_edit.h"

#include <gtest/gtest.h>

#include <string>

#include "core/formats/yaml_document.h"

namespace fsdp {
namespace {

/// The text with a key set; the error if that is one.
std::string edited_yaml(const std::string& text, const std::string& key, const std::string& value,
                        const std::string& beside = {}) {
  const Result<JsonDocument> document = parse_yaml(text, "sft.yaml");
  if (!document) return to_string(document.error().front());
  const Result<std::string> edited = with_key(*document, key, value_of(value), beside);
  return edited ? *edited : to_string(edited.error().front());
}

TEST(YamlEdit, ReplacesAValueAndNothingElse) {
  EXPECT_EQ(edited_yaml("a: 1  # one\nb:   2\n", "b", "3"), "a: 1  # one\nb:   3\n");
  EXPECT_EQ(edited_yaml("x:\n    y: true   # why\n    z: no\n", "x.y", "false"),
            "x:\n    y: false   # why\n    z: no\n");
  EXPECT_EQ(edited_yaml("optim: \"adamw_torch\"\n", "optim", "adamw_torch_fused"), "optim: \"adamw_torch_fused\"\n");
  EXPECT_EQ(edited_yaml("c: 'unsloth' # old\n", "c", "true"), "c: true # old\n");
  EXPECT_EQ(edited_yaml("a: 1\r\nb: 2\r\n", "a", "7"), "a: 7\r\nb: 2\r\n");
  EXPECT_EQ(edited_yaml("a: -1\n", "a", "2"), "a: 2\n");
}

TEST(YamlEdit, AddsAKeyToItsObject) {
  EXPECT_EQ(edited_yaml("x:\n  a: 1\n  # last\n  b: 2\nend: 3\n", "x.c", "true"),
            "x:\n  a: 1\n  # last\n  b: 2\n  c: true\nend: 3\n");
  EXPECT_EQ(edited_yaml("a: 1\nb: 2\nc: 3\n", "d", "4", "a"), "a: 1\nd: 4\nb: 2\nc: 3\n") << "beside a";
  EXPECT_EQ(edited_yaml("a: 1\nlist:\n  - x\n", "d", "4"), "a: 1\nd: 4\nlist:\n  - x\n") << "a list ends no line";
  EXPECT_EQ(edited_yaml("list:\n  - x\n", "d", "4"), "d: 4\nlist:\n  - x\n");
  EXPECT_EQ(edited_yaml("a: 1", "b", "2"), "a: 1\nb: 2") << "no line feed at the end, as before";
  EXPECT_EQ(edited_yaml("a: 1\r\n", "b.c", "2"), "a: 1\r\nb:\r\n  c: 2\r\n");
  EXPECT_EQ(edited_yaml("a: 1\n", "b.c.d", "true"), "a: 1\nb:\n  c:\n    d: true\n");
  EXPECT_EQ(edited_yaml("text: |\n  a: 1\n  b\nc: 1\n", "d", "2"), "text: |\n  a: 1\n  b\nc: 1\nd: 2\n");
}

TEST(YamlEdit, FillsAKeyWithoutAValue) {
  EXPECT_EQ(edited_yaml("a:\nb: 1\n", "a", "true"), "a: true\nb: 1\n");
  EXPECT_EQ(edited_yaml("a:  # later\nb: 1\n", "a", "true"), "a: true  # later\nb: 1\n");
  EXPECT_EQ(edited_yaml("a: null\n", "a", "8"), "a: 8\n");
  EXPECT_EQ(edited_yaml("a:\nb: 1\n", "a.x", "8"), "a: {x: 8}\nb: 1\n");
}

TEST(YamlEdit, WritesBetweenBraces) {
  EXPECT_EQ(edited_yaml("x: {a: 1, b: 2}\n", "x.b", "3"), "x: {a: 1, b: 3}\n");
  EXPECT_EQ(edited_yaml("x: {a: 1}\n", "x.c", "true"), "x: {c: true, a: 1}\n");
  EXPECT_EQ(edited_yaml("x: {}\n", "x.c", "true"), "x: {c: true}\n");
  EXPECT_EQ(edited_yaml("{\"a\": 1, \"s\": \"no\"}", "b", "word"), "{\"b\": \"word\", \"a\": 1, \"s\": \"no\"}");
  EXPECT_EQ(edited_yaml("{\n  \"a\": 1\n}\n", "b", "true"), "{\n  \"b\": true,\n  \"a\": 1\n}\n");
}

TEST(YamlEdit, AddsToALists) {
  EXPECT_EQ(edited_yaml("p:\n  - a.B  # first\nq: 1\n", "p", "[a.B, c.D]"), "p:\n  - a.B  # first\n  - c.D\nq: 1\n");
  EXPECT_EQ(edited_yaml("p:\n- a\nq: 1\n", "p", "[a, b]"), "p:\n- a\n- b\nq: 1\n");
  EXPECT_EQ(edited_yaml("p: [a, b]\n", "p", "[a, b, c]"), "p: [a, b, c]\n");
  EXPECT_EQ(edited_yaml("p: []\n", "p", "[a]"), "p: [a]\n");
  EXPECT_EQ(edited_yaml("q: 1\n", "p", "[a, b]"), "q: 1\np:\n  - a\n  - b\n");
}

// An anchor is one text for two objects: a changed line would change both.
TEST(YamlEdit, RefusesWhatWouldChangeMore) {
  EXPECT_NE(edited_yaml("base: &b\n  a: 1\nx: *b\n", "x.a", "2").find("cannot be changed"), std::string::npos);
  EXPECT_NE(edited_yaml("p: [a, b]\n", "p", "[c]").find("cannot be changed"), std::string::npos);
  EXPECT_NE(edited_yaml("t: |\n  x\n", "t", "1").find("cannot be changed"), std::string::npos);
}

}  // namespace
}  // namespace fsdp
