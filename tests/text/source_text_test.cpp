// Words of others in source text: nothing of them gets out of the comment or the literal in which they stand.

#include "text/source_text.h"

#include <gtest/gtest.h>

namespace fsdp::text {
namespace {

TEST(SourceText, ACommentEndsWithItsLine) {
  EXPECT_EQ(as_comments({"Llama by plan.json", "", "M\nuse_cpu: true\x1b]0;x\x07\t\xe2\x80\xae"}),
            (std::vector<std::string>{"# Llama by plan.json", "#", "# M\\nuse_cpu: true\\x1b]0;x\\x07\\t\\u202e"}));
}

TEST(SourceText, DocstringCannotEndEarly) {
  EXPECT_EQ(python_docstring({"f({\"a\": 1})", ""}), "\"\"\"f({\"a\": 1})\n\"\"\"");
  EXPECT_EQ(python_docstring({R"(M""")", "import os"}), "\"\"\"M\\\"\\\"\"\nimport os\"\"\"");
  EXPECT_EQ(python_docstring({R"(ends in \)"}), R"("""ends in \\""")");
  EXPECT_EQ(python_docstring({R"(ends in \")"}), R"("""ends in \\\"""")");
  EXPECT_EQ(python_docstring({"a\n\"\"\"b"}), R"("""a\\n\"\""b""")");
}

TEST(SourceText, ALiteralHasTheTextAsItsValue) {
  EXPECT_EQ(quoted_text("model.layers.0"), R"("model.layers.0")");
  EXPECT_EQ(quoted_text("a\"b\\c\nd\te\x1b\xc2\x9b\xe2\x80\xae"), R"("a\"b\\c\nd\te\u001b\u009b\u202e")");
  EXPECT_EQ(quoted_text("\xff"), R"("\ufffd")");
}

TEST(SourceText, BracesInANameAreEscapedInAnFString) {
  EXPECT_EQ(python_f_string("model.layers.", "i", ""), R"(f"model.layers.{i}")");
  EXPECT_EQ(python_f_string("a{exit()}.", "i", ".b}\""), R"(f"a{{exit()}}.{i}.b}}\"")");
}

TEST(SourceText, YamlReadsATextAsText) {
  EXPECT_EQ(yaml_text("Embedding,LlamaDecoderLayer"), "Embedding,LlamaDecoderLayer");
  for (const char* word : {"No", "true", "null", "y", "N", "OFF", "", "1", ".5", "a: b", "a #b", "a b", "&a", "-"}) {
    EXPECT_EQ(yaml_text(word), "\"" + std::string(word) + "\"");
  }
}

}  // namespace
}  // namespace fsdp::text
