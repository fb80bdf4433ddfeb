#include "core/base/json_document.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace fsdp {
namespace {

/// The messages of a text, one a line; "good" when there are none.
std::string messages(std::string text) {
  const Result<JsonDocument> document = parse_json(std::move(text), "spec.json");
  if (document) return "good";
  std::string lines;
  for (const Error& error : document.error()) lines += (lines.empty() ? "" : "\n") + to_string(error);
  return lines;
}

TEST(ParseJson, KeepsOrderTypesAndNumbers) {
  const auto document = parse_json(R"({"b": [1, -2.5e3, "x"], "a": {"t": true, "n": null}})", "spec.json");
  ASSERT_TRUE(document);
  const JsonValue& root = document->root;
  ASSERT_EQ(root.members.size(), 2U);
  EXPECT_EQ(root.members[0].key, "b");
  const JsonValue& list = root.members[0].value;
  EXPECT_TRUE(list.elements[0].is_integer);
  EXPECT_EQ(list.elements[0].integer, 1);
  EXPECT_FALSE(list.elements[1].is_integer);
  EXPECT_EQ(list.elements[1].real, -2500);
  EXPECT_EQ(list.elements[1].text, "-2.5e3");
  EXPECT_EQ(list.elements[2].text, "x");
  ASSERT_NE(root.find("a"), nullptr);
  EXPECT_TRUE(root.find("a")->find("t")->boolean);
  EXPECT_EQ(root.find("a")->find("n")->type, JsonType::Null);
  EXPECT_EQ(root.find("c"), nullptr);
}

TEST(ParseJson, IntegersOf64BitsAreExactAndLargerOnesAreReal) {
  const auto document = parse_json("[9223372036854775807, -9223372036854775808, 9223372036854775808]", "spec.json");
  ASSERT_TRUE(document);
  EXPECT_EQ(document->root.elements[0].integer, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(document->root.elements[1].integer, std::numeric_limits<std::int64_t>::min());
  EXPECT_FALSE(document->root.elements[2].is_integer);
  EXPECT_EQ(document->root.elements[2].real, 9223372036854775808.0);
}

TEST(ParseJson, DecodesEscapesAndKeepsUtf8) {
  const auto document = parse_json(R"(["\"\\\/\b\f\n\r\t", "\u00e9\u20ac\ud83d\ude42", "é€🙂"])", "spec.json");
  ASSERT_TRUE(document);
  EXPECT_EQ(document->root.elements[0].text, "\"\\/\b\f\n\r\t");
  EXPECT_EQ(document->root.elements[1].text, "é€🙂");
  EXPECT_EQ(document->root.elements[2].text, "é€🙂");
}

TEST(ParseJson, AByteOrderMarkIsSkipped) {
  const auto document = parse_json("\xEF\xBB\xBF{\"a\": 1}", "spec.json");
  ASSERT_TRUE(document);
  EXPECT_EQ(document->position(document->root.find("a")->offset), "spec.json:1:7");
}

TEST(JsonDocument, KnowsThePlaceOfEveryValue) {
  const auto document =
      parse_json("{\n  \"é\": 1,\n  \"layers\": [\n    {\"a/b~c\": \"é\", \"shape\": 7}\n  ]\n}\n", "spec.json");
  ASSERT_TRUE(document);
  const JsonValue& layer = document->root.find("layers")->elements[0];
  EXPECT_EQ(document->where(document->root.offset), "spec.json:1:1");
  EXPECT_EQ(document->where(layer.offset), "spec.json:4:5: /layers/0");
  EXPECT_EQ(document->where(layer.members[0].key_offset), "spec.json:4:6: /layers/0/a~1b~0c");
  EXPECT_EQ(document->where(layer.members[0].value.offset), "spec.json:4:15: /layers/0/a~1b~0c");
  // A column is a character: the é before it counts once.
  EXPECT_EQ(document->where(layer.members[1].value.offset), "spec.json:4:29: /layers/0/shape");
}

/// By counting from the begin: lines, and characters in the line.
std::string counted(const std::string& text, std::size_t offset) {
  std::size_t line = 1;
  std::size_t column = 1;
  for (std::size_t i = 0; i < offset; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) ++column;
    if (text[i] == '\n') ++line, column = 1;
  }
  return "f:" + std::to_string(line) + ":" + std::to_string(column);
}

// Stretches of a large text are counted once; what is answered is the same as of a small one.
TEST(JsonDocument, KnowsThePlaceOfEveryValueInLargeTexts) {
  std::string lines = "[";
  for (int i = 0; i < 6000; ++i)
    lines += (i == 0 ? "" : i % 7 == 0 ? ",\n" : ", ") + ("\"käse " + std::to_string(i)) + "\"";
  lines += "]";
  std::string one_line = lines;
  std::replace(one_line.begin(), one_line.end(), '\n', ' ');
  const auto first = parse_json(lines, "f");
  const auto second = parse_json(one_line, "f");
  ASSERT_TRUE(first && second);
  ASSERT_GT(lines.size(), 65536U);
  for (std::size_t i = 0; i < 6000; i += 61) {
    const std::size_t back = 5999 - i;
    const std::uint32_t here = first->root.elements[i].offset;
    const std::uint32_t there = second->root.elements[back].offset;
    ASSERT_EQ(first->position(here), counted(lines, here));
    ASSERT_EQ(second->position(there), counted(one_line, there));
  }
}

// Each of 200,000 values of one line is asked for its place, as readers do: counted from the begin that is 200 billion
// bytes.
TEST(JsonDocument, FindsPlacesInALongLineQuickly) {
  std::string text = "[1";
  for (int i = 1; i < 200'000; ++i) text += ",        1";
  const auto document = parse_json(text + "]", "f");
  ASSERT_TRUE(document);
  std::size_t characters = 0;
  for (const JsonValue& value : document->root.elements) characters += document->where(value.offset).size();
  EXPECT_GT(characters, 200'000U * 10);
}

TEST(ParseJson, AnEmptyTextIsNoJson) {
  EXPECT_EQ(messages(""), "spec.json:1:1: The text is empty. JSON starts with a value, such as {}.");
  EXPECT_EQ(messages(" \n "), "spec.json:2:2: The text is empty. JSON starts with a value, such as {}.");
}

TEST(ParseJson, TruncatedTextErrorNamesTheOpenValue) {
  const std::string cut = " is never closed: the text ends inside it. The file seems to be truncated.";
  EXPECT_EQ(messages("{\n  \"a\": [1, 2"), "spec.json:2:8: This list" + cut);
  EXPECT_EQ(messages("{\n  \"a\": [1, 2],"), "spec.json:1:1: This object" + cut);
  EXPECT_EQ(messages("{\"a\""), "spec.json:1:1: This object" + cut);
  EXPECT_EQ(messages("{\"a\":"), "spec.json:1:1: This object" + cut);
  EXPECT_EQ(messages("{\"a\": \"xyz"), "spec.json:1:7: Invalid string: missing closing quote.");
  EXPECT_EQ(messages("{\"a\": \"xyz\\"), "spec.json:1:7: Invalid string: forbidden character after backslash.");
}

TEST(ParseJson, CommonMistakesHaveTheirOwnMessages) {
  EXPECT_EQ(messages("[1, 2,]"),
            "spec.json:1:7: Found a comma before ]. Remove the comma: JSON has none after the last element.");
  EXPECT_EQ(messages("{\"a\": 1,}"),
            "spec.json:1:9: Found a comma before }. Remove the comma: JSON has none after the last member.");
  EXPECT_EQ(messages("{'a': 1}"), "spec.json:1:2: Expected a key, found '''. Keys are strings in double quotes.");
  EXPECT_EQ(messages("{a: 1}"), "spec.json:1:2: Expected a key, found 'a'. Keys are strings in double quotes.");
  EXPECT_EQ(messages("{\"a\" 1}"), "spec.json:1:6: Expected a colon after the key \"a\", found '1'.");
  EXPECT_EQ(messages("{\"a\": 1 \"b\": 2}"),
            "spec.json:1:9: Expected a comma or } after the value of \"a\", found '\"'.");
  EXPECT_EQ(messages("[1}"), "spec.json:1:3: Expected a comma or ] after an element, found '}'.");
  EXPECT_EQ(messages(std::string("[1]\0[", 5)),
            "spec.json:1:4: Found the byte 0x00 after the end of the value. Remove it, or the bracket that closes too "
            "early.");
  EXPECT_EQ(messages("\xEF\xBB\xBF\xEF\xBB\xBF{}"), "spec.json:1:1: Expected a value, found '\uFEFF'.");
  EXPECT_EQ(messages("[1 2]"), "spec.json:1:4: Expected a comma or ] after an element, found '2'.");
  EXPECT_EQ(messages("[1] // one"),
            "spec.json:1:5: Found '/' after the end of the value. Remove it, or the bracket that closes too early.");
  EXPECT_EQ(messages("[1, // one\n2]"), "spec.json:1:5: Expected a value, found '/'. JSON has no comments.");
  EXPECT_EQ(messages("[1 # one\n]"),
            "spec.json:1:4: Expected a comma or ] after an element, found '#'. JSON has no comments.");
  EXPECT_EQ(messages("['x']"), "spec.json:1:2: Expected a value, found '''. Strings have double quotes.");
  EXPECT_EQ(messages("[True]"), "spec.json:1:2: \"True\" is not a JSON value. JSON writes true, false and null.");
  EXPECT_EQ(messages("[bf16]"), "spec.json:1:2: \"bf16\" is not a JSON value. A string needs double quotes.");
  EXPECT_EQ(messages("{\"a\": }"), "spec.json:1:7: Expected a value, found '}'.");
}

TEST(ParseJson, NumbersFollowTheGrammar) {
  EXPECT_EQ(messages("[NaN]"), "spec.json:1:2: \"NaN\" is not a JSON value. JSON has no NaN and no infinity.");
  EXPECT_EQ(messages("[Infinity]"),
            "spec.json:1:2: \"Infinity\" is not a JSON value. JSON has no NaN and no infinity.");
  EXPECT_EQ(messages("[-Infinity]"), "spec.json:1:2: Invalid number; expected digit after '-'.");
  EXPECT_EQ(messages("[007]"), "spec.json:1:2: \"007\" is not a JSON number. Remove the leading zero.");
  EXPECT_EQ(messages("[1.]"), "spec.json:1:2: Invalid number; expected digit after '.'.");
  EXPECT_EQ(messages("[1e]"), "spec.json:1:2: Invalid number; expected '+', '-', or digit after exponent.");
  EXPECT_EQ(messages("[16GiB]"),
            "spec.json:1:2: \"16GiB\" is not a JSON number. A value with a unit is a string: put it in quotes.");
  EXPECT_EQ(messages("[1e999]"), "spec.json:1:2: Number overflow parsing '1e999'.");
  EXPECT_EQ(messages("[1e-999, 0.0e99, -0]"), "good");
}

TEST(ParseJson, StringsAreUtf8WithoutControlCharacters) {
  EXPECT_EQ(messages("[\"a\nb\"]"),
            "spec.json:1:4: Invalid string: control character U+000A (LF) must be escaped to \\u000A or \\n.");
  EXPECT_EQ(messages(std::string("[\"a\0b\"]", 7)),
            "spec.json:1:4: Invalid string: control character U+0000 (NUL) must be escaped to \\u0000.");
  EXPECT_EQ(messages("[\"\xFF\"]"), "spec.json:1:3: Invalid string: ill-formed UTF-8 byte.");
  EXPECT_EQ(messages("[\"\\x\"]"), "spec.json:1:4: Invalid string: forbidden character after backslash.");
  EXPECT_EQ(messages("[\"\\u12g4\"]"), "spec.json:1:7: Invalid string: '\\u' must be followed by 4 hex digits.");
  EXPECT_EQ(messages("[\"\\ud800\"]"),
            "spec.json:1:9: Invalid string: surrogate U+D800..U+DBFF must be followed by U+DC00..U+DFFF.");
  EXPECT_EQ(messages("\xFF\xFE{"), "spec.json:1:1: The text is UTF-16. Save it as UTF-8.");
}

TEST(ParseJson, EveryDuplicateKeyIsReported) {
  EXPECT_EQ(messages("{\"a\": 1, \"b\": {\"c\": 1, \"c\": 2},\n \"a\": 3}"),
            "spec.json:1:24: The key \"c\" appears twice. Remove one of the two.\nspec.json:2:2: The key \"a\" appears "
            "twice. Remove one of the two.");
}

TEST(ParseJson, DepthIsLimited) {
  EXPECT_EQ(messages(std::string(100, '[') + std::string(100, ']')), "good");
  EXPECT_EQ(messages(std::string(101, '[') + std::string(101, ']')),
            "spec.json:1:101: The text is nested deeper than 100 levels.");
  std::string objects;
  for (int i = 0; i < 101; ++i) objects += "{\"a\":";
  EXPECT_EQ(messages(objects), "spec.json:1:501: The text is nested deeper than 100 levels.");
  EXPECT_EQ(messages(std::string(1'000'000, '[')), "spec.json:1:101: The text is nested deeper than 100 levels.");
}

TEST(ParseJson, TheNumberOfValuesIsLimited) {
  std::string text = "[0";
  for (std::size_t i = 0; i < kMostJsonValues; ++i) text += ",0";
  // The list itself counts, too: of the zeros one fits less.
  EXPECT_EQ(messages(text + "]"), "spec.json:1:8388608: The text has more than 4194304 values.");
}

}  // namespace
}  // namespace fsdp
