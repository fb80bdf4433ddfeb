#include "core/formats/toml_document.h"

#include <gtest/gtest.h>

#include <string>

#include "core/base/json_document.h"

namespace fsdp {
namespace {

std::string toml_error(const std::string& text) {
  const Result<JsonDocument> read = parse_toml(text, "train.toml");
  return read ? "" : to_string(read.error().front());
}

TEST(TomlDocument, ReadsTablesValuesAndTheirPlaces) {
  const Result<JsonDocument> read = parse_toml(
      "# A comment.\n[training]\nseq_len = 8_192\nmax_norm = 1.0\n\n[model]\nname = \"llama3\"\nconverters = [\"a\", "
      "\"b\"]\n[quantize.linear.float8]\nemulate = true\nday = 2026-02-20\n",
      "train.toml");
  ASSERT_TRUE(read);
  ASSERT_EQ(read->root.members.size(), 3);
  EXPECT_EQ(read->root.members[0].key, "training");  // In the order of the text.
  EXPECT_EQ(read->root.members[2].key, "quantize");
  const JsonValue* training = read->root.find("training");
  EXPECT_EQ(training->find("seq_len")->integer, 8192);
  EXPECT_EQ(training->find("max_norm")->real, 1.0);
  EXPECT_EQ(read->where(training->find("seq_len")->offset), "train.toml:3:11: /training/seq_len");
  const JsonValue* model = read->root.find("model");
  EXPECT_EQ(model->find("name")->text, "llama3");
  EXPECT_EQ(read->where(model->find("converters")->elements[1].offset), "train.toml:8:20: /model/converters/1");
  const JsonValue* float8 = read->root.find("quantize")->find("linear")->find("float8");
  EXPECT_TRUE(float8->find("emulate")->boolean);
  EXPECT_EQ(float8->find("day")->text, "2026-02-20");
}

TEST(TomlDocument, CountsCharactersAndNotBytes) {
  const Result<JsonDocument> read = parse_toml("job = { description = \"äöü\", dump_folder = \"x\" }\n", "train.toml");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->where(read->root.find("job")->find("dump_folder")->offset), "train.toml:1:44: /job/dump_folder");
}

TEST(TomlDocument, ReportsTheFirstMistake) {
  EXPECT_NE(toml_error("[model]\nname = llama3\n").find("train.toml:2:"), std::string::npos);
  EXPECT_NE(toml_error("[model]\nname = \"a\"\nname = \"b\"\n").find("train.toml:3:"), std::string::npos);
}

}  // namespace
}  // namespace fsdp
