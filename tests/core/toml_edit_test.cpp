#include "core/formats/toml_edit.h"

#include <gtest/gtest.h>

#include <string>

#include "core/formats/toml_document.h"
#include "core/formats/yaml_edit.h"

namespace fsdp {
namespace {

/// The text with a key set; the error if that is one.
std::string edited_toml(const std::string& text, const std::string& key, const std::string& value,
                        const std::string& beside = {}) {
  const Result<JsonDocument> document = parse_toml(text, "llama3.toml");
  if (!document) return to_string(document.error().front());
  const Result<std::string> edited = with_toml_key(*document, key, value_of(value), beside);
  return edited ? *edited : to_string(edited.error().front());
}

TEST(TomlEdit, ReplacesAValueAndNothingElse) {
  EXPECT_EQ(edited_toml("[a]\nx = 1  # one\ny =   2\n", "a.y", "3"), "[a]\nx = 1  # one\ny =   3\n");
  EXPECT_EQ(edited_toml("[a]\nmode = \"full\" # or none\n", "a.mode", "none"), "[a]\nmode = \"none\" # or none\n");
  EXPECT_EQ(edited_toml("[a]\nmode = 'full'\n", "a.mode", "op"), "[a]\nmode = \"op\"\n");
  EXPECT_EQ(edited_toml("a.x = 1\r\nb = true\r\n", "b", "false"), "a.x = 1\r\nb = false\r\n");
  EXPECT_EQ(edited_toml("[a]\nx = -1", "a.x", "8"), "[a]\nx = 8");
}

TEST(TomlEdit, AddsAKeyToItsTable) {
  EXPECT_EQ(edited_toml("[a]\nx = 1\ny = 2\n\n[b]\nz = 3\n", "a.w", "true"),
            "[a]\nx = 1\ny = 2\nw = true\n\n[b]\nz = 3\n");
  EXPECT_EQ(edited_toml("[a]\nx = 1\ny = 2\n", "a.w", "4", "x"), "[a]\nx = 1\nw = 4\ny = 2\n") << "beside x";
  EXPECT_EQ(edited_toml("[a]\nx = 1\nlist = [\n  1,\n]\n", "a.w", "4"), "[a]\nx = 1\nw = 4\nlist = [\n  1,\n]\n")
      << "a value of several lines is no neighbor";
  EXPECT_EQ(edited_toml("[a]\n[b]\nz = 3\n", "a.w", "4"), "[a]\nw = 4\n[b]\nz = 3\n") << "an empty table";
  EXPECT_EQ(edited_toml("[a]\nx = 1\n", "b.w", "op"), "[a]\nx = 1\n\n[b]\nw = \"op\"\n") << "a new table";
  EXPECT_EQ(edited_toml("[a]\nx = 1", "b.w", "4"), "[a]\nx = 1\n\n[b]\nw = 4") << "no line feed at the end, as before";
  EXPECT_EQ(edited_toml("a = {x = 1, y = 2}\n", "a.y", "3"), "a = {x = 1, y = 3}\n");
}

TEST(TomlEdit, RefusesWhatWouldRewriteMore) {
  EXPECT_NE(edited_toml("a = {x = 1}\n", "a.y", "3").find("a.y cannot be changed without rewriting more"),
            std::string::npos);
  EXPECT_NE(edited_toml("x = \"\"\"\nlong\n\"\"\"\n", "x", "3").find("x cannot be changed"), std::string::npos);
}

}  // namespace
}  // namespace fsdp
