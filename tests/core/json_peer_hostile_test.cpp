// Our JSON reader against Python's: what one accepts the other accepts, with the same values in the same order, on
// documents that were generated and then damaged.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/json_writer.h"

namespace fsdp {
namespace {

constexpr int kTextsOfACase = 20;

void write_any(JsonWriter& json, int depth) {
  const int kind = *rc::gen::inRange(0, depth > 0 ? 8 : 6);
  if (kind == 0) return json.value(nullptr);
  if (kind == 1) return json.value(*rc::gen::arbitrary<bool>());
  if (kind == 2) return json.value(*rc::gen::arbitrary<std::int64_t>());
  if (kind == 3) return json.value(*rc::gen::arbitrary<int>() / 1024.0);
  if (kind < 6) return json.value(*rc::gen::string<std::string>());
  const auto layout = *rc::gen::element(JsonLayout::Lines, JsonLayout::OneLine);
  const int count = *rc::gen::inRange(0, 5);
  kind == 6 ? json.begin_array(layout) : json.begin_object(layout);
  for (int i = 0; i < count; ++i) {
    if (kind == 7)
      json.key(*rc::gen::element<std::string>("a", "b", "é", "k", "\n") + std::to_string(*rc::gen::inRange(0, 30)));
    write_any(json, depth - 1);
  }
  kind == 6 ? json.end_array() : json.end_object();
}

std::string any_text(int depth) {
  JsonWriter json;
  write_any(json, depth);
  return std::move(json).take();
}

std::string with_damage(std::string text) {
  static const std::vector<std::string> kBytes = {"{", "}",    "[",  "]",   "\"", ",",    ":",     "0",       "-",
                                                  "e", "1.5",  ".",  "+",   "t",  "null", "\\",    "\\ud83d", "\\u00e9",
                                                  "/", "\xFF", "\n", "1e9", "é",  "'",    "1e999", "-1e-999", "NaN"};
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size() + 1);
    const auto length = *rc::gen::inRange<std::size_t>(0, 3);
    text.replace(at, length, *rc::gen::inRange(0, 3) == 0 ? "" : *rc::gen::elementOf(kBytes));
  }
  return text;
}

std::string hexadecimal(std::string_view bytes) {
  std::string digits;
  for (const char c : bytes) digits += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return digits;
}

/// As tests/core/json_peer.py writes values.
std::string values(const JsonValue& value) {
  std::string out;
  switch (value.type) {
    case JsonType::Null:
      return "null";
    case JsonType::Bool:
      return value.boolean ? "true" : "false";
    case JsonType::Number:
      if (value.is_integer) return fmt::format("i{}", value.integer);
      return fmt::format("r{:016x}", std::bit_cast<std::uint64_t>(value.real));
    case JsonType::String:
      return "s" + hexadecimal(value.text);
    case JsonType::Array:
      for (const JsonValue& element : value.elements) out += (out.empty() ? "" : ",") + values(element);
      return "[" + out + "]";
    case JsonType::Object:
      for (const JsonMember& member : value.members)
        out += fmt::format("{}s{}:{}", out.empty() ? "" : ",", hexadecimal(member.key), values(member.value));
      return "{" + out + "}";
  }
  return out;
}

std::vector<std::string> by_python(const std::vector<std::string>& texts) {
  const std::string in = fmt::format("{}/json_peer_{}", testing::TempDir(), getpid());
  const std::string out = in + ".values";
  {
    std::ofstream file(in);
    for (const std::string& text : texts) file << hexadecimal(text) << '\n';
  }
  const std::string command = fmt::format("python3 -B tests/core/json_peer.py < '{}' > '{}'", in, out);
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::vector<std::string> lines;
  std::ifstream file(out);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  std::remove(in.c_str());
  std::remove(out.c_str());
  return lines;
}

TEST(JsonAndPython, ReadTheSameValuesAndRefuseTheSameTexts) {
  std::vector<std::string> texts;
  rc::check("texts are made", [&] {
    for (int i = 0; i < kTextsOfACase; ++i) texts.push_back(i % 2 == 0 ? any_text(4) : with_damage(any_text(3)));
  });
  const std::vector<std::string> theirs = by_python(texts);
  ASSERT_EQ(theirs.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto ours = parse_json(texts[i], "x.json");
    EXPECT_EQ(ours ? values(ours->root) : "no", theirs[i]) << texts[i];
  }
  const auto refused = std::count(theirs.begin(), theirs.end(), "no");
  EXPECT_GT(refused, 100);
  EXPECT_GT(std::ssize(texts) - refused, 100);
}

}  // namespace
}  // namespace fsdp
