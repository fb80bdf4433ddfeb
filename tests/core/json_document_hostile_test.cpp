// Broken input of all readers of this folder: whatever it is, the answer is a value or errors that can be printed,
// never a crash. Meant for a build with sanitizers.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/parse_units.h"
#include "core/cluster/cluster_library.h"
#include "core/cluster/cluster_reader.h"

namespace fsdp {
namespace {

/// Pieces that break parsers.
const std::vector<std::string> kPoison = {"{",
                                          "}",
                                          "[",
                                          "]",
                                          ",",
                                          ":",
                                          "\"",
                                          "\\",
                                          "\\u",
                                          "\\ud800",
                                          "null",
                                          "NaN",
                                          "-",
                                          "1e999",
                                          "-0",
                                          "1e-999",
                                          "0x10",
                                          "Infinity",
                                          "\xFF",
                                          "\xC0\xAF",
                                          "\x80",
                                          "/*",
                                          "//",
                                          "true",
                                          "\n",
                                          "\t",
                                          " ",
                                          "{}",
                                          "[[[[[",
                                          "\"a\":",
                                          "1.5",
                                          "-1",
                                          "\"\"",
                                          "\"16\"",
                                          "16G",
                                          "\"-16G\"",
                                          "1e18",
                                          "1e19",
                                          "\"8.\"",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "-9223372036854775809",
                                          "\"99999999999T\""};

std::string mutated(std::string text) {
  for (int i = *rc::gen::inRange(1, 6); i > 0; --i) {
    const auto at =
        static_cast<std::size_t>(*rc::gen::inRange<std::int64_t>(0, static_cast<std::int64_t>(text.size()) + 1));
    const auto length = static_cast<std::size_t>(*rc::gen::inRange(0, 40));
    switch (*rc::gen::inRange(0, 5)) {
      case 0:
        text.insert(at, *rc::gen::elementOf(kPoison));
        break;
      case 1:
        text.replace(at, length, *rc::gen::elementOf(kPoison));
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

/// Every message can be printed: one line, valid UTF-8 (an invalid byte would have become U+FFFD).
void check_messages(const Errors& errors) {
  RC_ASSERT(!errors.empty());
  for (const Error& error : errors) {
    RC_ASSERT(!error.what.empty());
    RC_ASSERT(error.where.starts_with("bad.json"));
    RC_ASSERT(to_string(error).find('\n') == std::string::npos);
  }
}

void read_card(std::string text) {
  const auto document = parse_json(std::move(text), "bad.json");
  if (!document) return check_messages(document.error());
  const auto gpu = read_gpu(*document);
  if (!gpu) check_messages(gpu.error());
  const auto cluster = read_cluster(*document, {});
  if (!cluster) check_messages(cluster.error());
}

std::string file(const std::string& name) {
  const auto document = read_json_file("model_specs/clusters/" + name);
  return document ? document->text : std::string();
}

RC_GTEST_PROP(HostileJson, AnyBytesAreReadOrRefused, ()) {
  read_card(*rc::gen::arbitrary<std::string>());
}

RC_GTEST_PROP(HostileJson, AnyMixOfTokensIsReadOrRefused, ()) {
  std::string text;
  for (int i = *rc::gen::inRange(0, 60); i > 0; --i) text += *rc::gen::elementOf(kPoison);
  read_card(std::move(text));
}

RC_GTEST_PROP(HostileJson, ABrokenGpuCardIsReadOrRefused, ()) {
  static const std::string card = file("gpus/a100_80gb_sxm.json");
  RC_ASSERT(!card.empty());
  for (int i = 0; i < 20; ++i) read_card(mutated(card));
}

RC_GTEST_PROP(HostileJson, ABrokenClusterIsReadOrRefused, ()) {
  static const std::string text = file("aws_p4d_24xlarge.json");
  RC_ASSERT(!text.empty());
  for (int i = 0; i < 20; ++i) read_card(mutated(text));
}

// A small change of one value keeps the text JSON, so that the reader above the parser sees it.
RC_GTEST_PROP(HostileJson, ACardWithOneWrongValueNamesItsLine, ()) {
  static const std::string card = file("gpus/a100_80gb_sxm.json");
  std::vector<std::size_t> lines;
  for (std::size_t at = 0; (at = card.find("\": ", at)) != std::string::npos; ++at) lines.push_back(at + 3);
  const std::size_t at = *rc::gen::elementOf(lines);
  const std::size_t end = card.find_first_of(",}\n", at);
  std::string text = card;
  text.replace(at, end - at, *rc::gen::element<std::string>("null", "[]", "-1", "true", "\"\\u0000\"", "1e308"));
  const auto document = parse_json(text, "bad.json");
  RC_PRE(document.has_value());
  const auto gpu = read_gpu(*document);
  // Names and sources may be any text; all else is wrong.
  if (gpu) return;
  check_messages(gpu.error());
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  const std::string prefix = "bad.json:" + std::to_string(line) + ":";
  const bool is_named = std::any_of(gpu.error().begin(), gpu.error().end(),
                                    [&](const Error& error) { return error.where.starts_with(prefix); });
  RC_ASSERT(is_named);
}

RC_GTEST_PROP(HostileUnits, AnyTextIsReadOrRefused, ()) {
  std::string text =
      *rc::gen::element<std::string>("", "1", "16", "0.5", "1e9", "9223372036854775807", "-3", "nan", "inf");
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i)
    text +=
        *rc::gen::element<std::string>("G", "GiB", "Gb", " ", "/s", "FLOPS", "us", "\0", "\xFF", "e", "e400", ".", ",");
  const auto size = parse_size(text, "--mem");
  if (size) RC_ASSERT(*size >= Bytes(0) && *size <= kLargestSize);
  const auto bandwidth = parse_bandwidth(text, "");
  if (bandwidth) RC_ASSERT(bandwidth->count() > 0 && bandwidth->count() < 1e308);
  const auto rate = parse_flops_rate(text, "");
  if (rate) RC_ASSERT(rate->count() > 0 && rate->count() < 1e308);
  const auto time = parse_time(text, "");
  if (time) RC_ASSERT(time->count() >= 0 && time->count() < 1e308);
}

// 64 MiB of the worst shapes end in seconds at most, and in a limit.
TEST(HostileJson, HugeTextsEndInALimit) {
  const std::size_t size = kLargestJsonText;
  EXPECT_FALSE(parse_json(std::string(size, '['), "bad.json"));
  EXPECT_FALSE(parse_json(std::string(size, '"'), "bad.json"));
  EXPECT_FALSE(parse_json(std::string(size, '1'), "bad.json"));
  EXPECT_FALSE(parse_json(std::string(size + 1, ' '), "bad.json"));
  std::string many_keys = "{";
  for (int i = 0; i < 500'000; ++i) many_keys += "\"" + std::to_string(i % 1000) + "\":1,";
  many_keys.back() = '}';
  const auto duplicates = parse_json(many_keys, "bad.json");
  ASSERT_FALSE(duplicates);
  EXPECT_EQ(duplicates.error().size(), 50U);
}

TEST(HostileJson, AnObjectOfManyUnknownKeysIsReadQuickly) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += "\"key" + std::to_string(i) + "\":1,";
  text.back() = '}';
  const auto document = parse_json(std::move(text), "bad.json");
  ASSERT_TRUE(document);
  const auto gpu = read_gpu(*document);
  ASSERT_FALSE(gpu);
  EXPECT_EQ(gpu.error().size(), 51U);
}

}  // namespace
}  // namespace fsdp
