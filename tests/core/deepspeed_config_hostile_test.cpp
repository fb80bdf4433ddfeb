// Whatever a ds_config.json holds: it is read, or refused with a place, and the answer is one that a plan can hold.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_writer.h"
#include "core/formats/deepspeed_config.h"
#include "core/formats/deepspeed_keys.h"

namespace fsdp {
namespace {

constexpr const char* kOddValues[] = {"null",
                                      "true",
                                      "false",
                                      "0",
                                      "-1",
                                      "1",
                                      "2",
                                      "3",
                                      "8",
                                      "1.5",
                                      "5e8",
                                      "1e18",
                                      "1e308",
                                      "9223372036854775807",
                                      "-0.0",
                                      "\"auto\"",
                                      "\"none\"",
                                      "\"cpu\"",
                                      "\"AdamW\"",
                                      "\"SGD\"",
                                      "\"\"",
                                      "[]",
                                      "[1]",
                                      "{}",
                                      R"({"enabled": true})",
                                      R"({"enabled": "auto"})",
                                      R"({"enabled": 7})",
                                      R"({"stage": 3})",
                                      R"({"device": "nvme"})",
                                      R"({"device": 4})",
                                      R"({"type": "Adam", "params": 3})",
                                      R"({"type": "SGD", "params": {"momentum": "fast"}})",
                                      R"({"type": []})",
                                      R"({"type": "Adam", "params": {"torch_adam": "yes"}})"};

std::string drawn_members(std::span<const DeepSpeedKey> keys, const std::string& first) {
  std::vector<std::string> unused;
  for (const DeepSpeedKey& key : keys) unused.emplace_back(key.name);
  unused.emplace_back("no key of it");
  std::string text = first;
  for (int i = *rc::gen::inRange(0, 6); i > 0; --i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, unused.size());
    const std::string key = unused[at];
    unused.erase(unused.begin() + static_cast<std::ptrdiff_t>(at));
    if (first.find(json_quoted(key)) != std::string::npos) continue;
    text += (text.empty() ? "" : ", ") + json_quoted(key) + ": " +
            *rc::gen::elementOf(std::vector<const char*>(std::begin(kOddValues), std::end(kOddValues)));
  }
  return text;
}

/// What holds of every answer.
std::string wrong_with(const std::string& text) {
  const auto document = parse_json(text, "ds.json");
  if (!document) return "no JSON: " + text;
  const auto config = read_deepspeed_config(*document);
  if (!config) {
    for (const Error& error : config.error()) {
      if (error.where.rfind("ds.json:", 0) != 0) return "no place: " + text;
    }
    return "";
  }
  const ZeroOptions& zero = config->zero;
  if (zero.reduce_bucket_size < 1 || zero.sub_group_size < 1 || zero.max_live_parameters < 0) return "a size: " + text;
  for (const std::int64_t world : {std::int64_t{1}, std::int64_t{8}, std::int64_t{1} << 30}) {
    const auto batch = batch_of(*config, world, "ds.json");
    if (batch && (batch->micro_batch.value_or(1) < 1 || batch->accumulation.value_or(1) < 1)) return "a batch: " + text;
  }
  return "";
}

TEST(DeepSpeedConfigHostile, EachOddValueOfEachKeyIsReadOrRefused) {
  for (const char* value : kOddValues) {
    for (const int stage : {2, 3}) {
      const std::string zero = R"("zero_optimization": {"stage": )" + std::to_string(stage);
      for (const DeepSpeedKey& key : deepspeed_zero_keys()) {
        if (key.name == "stage") continue;
        EXPECT_EQ(wrong_with("{" + zero + ", " + json_quoted(key.name) + ": " + value + "}}"), "");
      }
      for (const DeepSpeedKey& key : deepspeed_keys()) {
        if (key.name == "zero_optimization") continue;
        EXPECT_EQ(wrong_with("{" + zero + "}, " + json_quoted(key.name) + ": " + value + "}"), "");
      }
    }
  }
}

RC_GTEST_PROP(DeepSpeedConfigHostile, AnyMembersTogetherAreReadOrRefused, ()) {
  const std::string stage =
      *rc::gen::element<std::string>("", R"("stage": 1)", R"("stage": 2)", R"("stage": 3)", R"("stage": 3.5)");
  const std::string zero = R"("zero_optimization": {)" + drawn_members(deepspeed_zero_keys(), stage) + "}";
  const std::string text = "{" + drawn_members(deepspeed_keys(), *rc::gen::element(zero, std::string())) + "}";
  RC_ASSERT(wrong_with(text).empty());
}

}  // namespace
}  // namespace fsdp
