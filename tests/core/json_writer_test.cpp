#include "core/base/json_writer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "core/base/json_document.h"

namespace fsdp {
namespace {

TEST(JsonWriter, WritesKeysInTheOrderGivenTwoBlanksPerLevel) {
  JsonWriter json;
  json.begin_object();
  json.member("zebra", 1);
  json.member("apple", "b");
  json.key("inner");
  json.begin_object();
  json.member("yes", true);
  json.member("none", nullptr);
  json.end_object();
  json.end_object();
  EXPECT_EQ(std::move(json).take(),
            "{\n"
            "  \"zebra\": 1,\n"
            "  \"apple\": \"b\",\n"
            "  \"inner\": {\n"
            "    \"yes\": true,\n"
            "    \"none\": null\n"
            "  }\n"
            "}\n");
}

TEST(JsonWriter, ShortListsStayOnALineAndLongOnesDoNot) {
  JsonWriter json;
  json.begin_object();
  json.member("shape", std::vector<int>{1024, 10});
  json.member("none", std::vector<int>{});
  json.member("long", std::vector<std::string>(3, std::string(40, 'x')));
  json.end_object();
  const std::string x = "    \"" + std::string(40, 'x') + "\"";
  EXPECT_EQ(std::move(json).take(),
            "{\n  \"shape\": [1024, 10],\n  \"none\": [],\n  \"long\": [\n" + x + ",\n" + x + ",\n" + x + "\n  ]\n}\n");
}

TEST(JsonWriter, AListOfExactlyTheLineWidthStaysOnIt) {
  // Brackets and quotes are four characters: 96 + 4 = 100 fit, 97 + 4 do not.
  const auto list_of = [](std::size_t length) {
    JsonWriter json;
    json.value(std::vector<std::string>{std::string(length, 'x')});
    return std::move(json).take();
  };
  EXPECT_EQ(list_of(96), "[\"" + std::string(96, 'x') + "\"]\n");
  EXPECT_EQ(list_of(97), "[\n  \"" + std::string(97, 'x') + "\"\n]\n");
}

TEST(JsonWriter, ListOfObjectsBreaksItsLine) {
  JsonWriter json;
  json.begin_array();
  json.value(1);
  json.value(2);
  json.begin_array();
  json.value(3);
  json.end_array();
  json.begin_object();
  json.end_object();
  json.end_array();
  EXPECT_EQ(std::move(json).take(), "[\n  1,\n  2,\n  [3],\n  {}\n]\n");
}

TEST(JsonWriter, ObjectCanStayOnOneLine) {
  JsonWriter json;
  json.begin_array();
  for (int i = 0; i < 2; ++i) {
    json.begin_object(JsonLayout::OneLine);
    json.member("kind", "all_gather");
    json.member("shape", std::vector<int>{i, 2});
    json.key("group");
    json.begin_object();
    json.member("size", 4);
    json.end_object();
    json.end_object();
  }
  json.end_array();
  EXPECT_EQ(std::move(json).take(),
            "[\n"
            "  {\"kind\": \"all_gather\", \"shape\": [0, 2], \"group\": {\"size\": 4}},\n"
            "  {\"kind\": \"all_gather\", \"shape\": [1, 2], \"group\": {\"size\": 4}}\n"
            "]\n");
}

TEST(JsonWriter, NumbersAreExact) {
  const auto text_of = [](auto number) {
    JsonWriter json;
    json.value(number);
    return std::move(json).take();
  };
  EXPECT_EQ(text_of(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808\n");
  EXPECT_EQ(text_of(std::numeric_limits<std::int64_t>::max()), "9223372036854775807\n");
  EXPECT_EQ(text_of(0.1), "0.1\n");
  EXPECT_EQ(text_of(1.0 / 3), "0.3333333333333333\n");
  EXPECT_EQ(text_of(std::numeric_limits<double>::infinity()), "null\n");
  EXPECT_EQ(text_of(std::numeric_limits<double>::quiet_NaN()), "null\n");
}

TEST(JsonQuoted, EscapesWhatJsonOrATerminalWouldMisread) {
  EXPECT_EQ(json_quoted("a\"b\\c\n\t\x01\x7f"), R"("a\"b\\c\n\t\u0001\u007f")");
  EXPECT_EQ(json_quoted("Grüße 🙂"), "\"Grüße 🙂\"");
  // A lone continuation byte, an overlong slash, half of a surrogate pair, a character cut off.
  EXPECT_EQ(json_quoted("\x80"), "\"\uFFFD\"");
  EXPECT_EQ(json_quoted("\xC0\xAF"), "\"\uFFFD\uFFFD\"");
  EXPECT_EQ(json_quoted("\xED\xA0\x80"), "\"\uFFFD\uFFFD\uFFFD\"");
  EXPECT_EQ(json_quoted("\xF0\x9F\x99"), "\"\uFFFD\uFFFD\uFFFD\"");
}

RC_GTEST_PROP(Shortest, ReadsBackTheSame, ()) {
  const double mantissa = static_cast<double>(*rc::gen::arbitrary<std::int64_t>());
  const double real = std::ldexp(mantissa, *rc::gen::inRange(-1000, 900));
  RC_ASSERT(std::strtod(shortest(real).c_str(), nullptr) == real);
}

/// Writes any tree of values, and reads it back with the parser.
void write_any(JsonWriter& json, int depth) {
  switch (*rc::gen::inRange(0, depth > 0 ? 6 : 4)) {
    case 0:
      return json.value(*rc::gen::arbitrary<std::int64_t>());
    case 1:
      return json.value(*rc::gen::arbitrary<bool>());
    case 2:
      return json.value(*rc::gen::arbitrary<std::string>());
    case 3:
      return json.value(*rc::gen::arbitrary<double>());
    case 4: {
      json.begin_array(*rc::gen::element(JsonLayout::Lines, JsonLayout::OneLine));
      for (int i = *rc::gen::inRange(0, 8); i > 0; --i) write_any(json, depth - 1);
      return json.end_array();
    }
    default: {
      json.begin_object(*rc::gen::element(JsonLayout::Lines, JsonLayout::OneLine));
      for (int i = *rc::gen::inRange(0, 8); i > 0; --i) {
        json.key("key " + std::to_string(i) + *rc::gen::arbitrary<std::string>());
        write_any(json, depth - 1);
      }
      return json.end_object();
    }
  }
}

void rewrite(const JsonValue& value, JsonWriter& json) {
  switch (value.type) {
    case JsonType::Null:
      return json.value(nullptr);
    case JsonType::Bool:
      return json.value(value.boolean);
    case JsonType::Number:
      return value.is_integer ? json.value(value.integer) : json.value(value.real);
    case JsonType::String:
      return json.value(value.text);
    case JsonType::Array:
      json.begin_array();
      for (const JsonValue& element : value.elements) rewrite(element, json);
      return json.end_array();
    case JsonType::Object:
      json.begin_object();
      for (const JsonMember& member : value.members) {
        json.key(member.key);
        rewrite(member.value, json);
      }
      return json.end_object();
  }
}

RC_GTEST_PROP(JsonWriter, OutputIsJsonAndRoundTrips, ()) {
  JsonWriter json;
  write_any(json, 4);
  const auto document = parse_json(std::move(json).take(), "any");
  RC_ASSERT(document.has_value());
  JsonWriter once;
  rewrite(document->root, once);
  const std::string text = std::move(once).take();
  const auto again = parse_json(text, "again");
  RC_ASSERT(again.has_value());
  JsonWriter twice;
  rewrite(again->root, twice);
  RC_ASSERT(std::move(twice).take() == text);
}

}  // namespace
}  // namespace fsdp
