// Broken model specs and workloads: whatever they hold, the answer is a model or errors that can be printed, never a
// crash and never a machine full of memory.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/model/op_shapes.h"
#include "core/spec/model_spec.h"

namespace fsdp {
namespace {

/// Small specs that use most of the format.
const std::vector<std::string>& seeds() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> all;
    for (const char* file : {"gemma2_9b", "mlp", "gpt2", "bert_large", "vit_b_16", "mixtral_8x7b", "resnet18"}) {
      std::ifstream stream(std::string("model_specs/") + file + ".json");
      std::stringstream text;
      text << stream.rdbuf();
      all.push_back(text.str());
    }
    return all;
  }();
  return texts;
}

/// Values that break readers, to be put in place of a number, a text or a name.
const std::vector<std::string> kPoisonOfSpecs = {"0",
                                                 "-1",
                                                 "1.5",
                                                 "1e999",
                                                 "9223372036854775807",
                                                 "9007199254740993",
                                                 "null",
                                                 "true",
                                                 "\"\"",
                                                 "\"batch\"",
                                                 "\"-batch\"",
                                                 "\"1 / 0\"",
                                                 "\"batch * 1e300 * 1e300\"",
                                                 "\"seq * seq * seq * seq * seq\"",
                                                 "\"((((\"",
                                                 "\"x.{0..9999}\"",
                                                 "\"{0..1}\"",
                                                 "\"hidden\"",
                                                 "\"linear\"",
                                                 "\"moe_layer\"",
                                                 "\"int64\"",
                                                 "[]",
                                                 "{}",
                                                 "[1, 2]",
                                                 "[\"hidden\"]",
                                                 "{\"hidden\": \"labels\"}",
                                                 "[[[]]]",
                                                 "4194304"};

/// Where the values of a JSON text begin and end, found by their separators; good enough to aim.
std::vector<std::pair<std::size_t, std::size_t>> values_of(const std::string& text) {
  std::vector<std::pair<std::size_t, std::size_t>> values;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const std::size_t end = std::min(text.find('"', i + 1), text.size() - 1);
      values.emplace_back(i, end + 1);
      i = end;
    } else if ((c >= '0' && c <= '9') || c == 't' || c == 'f') {
      std::size_t end = i;
      while (end < text.size() && text.find_first_of(",]} \n", end) != end) ++end;
      values.emplace_back(i, end);
      i = end;
    }
  }
  return values;
}

void read_and_build(const std::string& text, const Workload& workload) {
  const auto print = [](const Errors& errors) {
    RC_ASSERT(!errors.empty());
    for (const Error& error : errors) RC_ASSERT(!to_string(error).empty());
  };
  const auto spec = parse_model_spec(text, "hostile.json");
  if (!spec) return print(spec.error());
  const auto model = build_model(*spec, workload);
  if (!model) return print(model.error());
  RC_ASSERT(num_parameters(*model) >= 0);
  for (const Block& block : model->blocks) RC_ASSERT(check_block(block).empty());
}

RC_GTEST_PROP(ModelSpecHostile, PoisonedValuesAreReadOrRefused, ()) {
  std::string text = *rc::gen::elementOf(seeds());
  const int num_changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < num_changes; ++i) {
    const auto values = values_of(text);
    const auto [begin, end] = values[*rc::gen::inRange<std::size_t>(0, values.size())];
    text.replace(begin, end - begin, *rc::gen::elementOf(kPoisonOfSpecs));
  }
  read_and_build(text, {});
}

RC_GTEST_PROP(ModelSpecHostile, CutOrDuplicatedTextIsReadOrRefused, ()) {
  std::string text = *rc::gen::elementOf(seeds());
  const auto begin = *rc::gen::inRange<std::size_t>(0, text.size());
  const auto length = *rc::gen::inRange<std::size_t>(1, 200);
  if (*rc::gen::arbitrary<bool>()) {
    text.erase(begin, length);
  } else {
    text.insert(*rc::gen::inRange<std::size_t>(0, text.size()), text.substr(begin, length));
  }
  read_and_build(text, {});
}

RC_GTEST_PROP(ModelSpecHostile, WorkloadsOfAnySizeAreBuiltOrRefused, ()) {
  const std::string text = *rc::gen::elementOf(seeds());
  Workload workload;
  workload.recipe = *rc::gen::element<std::string>("", "finetune", "nonsense");
  const auto name = *rc::gen::element<std::string>("batch", "seq", "image_size", "");
  const auto value = *rc::gen::element(0.0, -1.0, 0.5, 1.0, 3.0, 1e9, 1e15, 1e300, -1e300, 9007199254740992.0);
  workload.dimensions = {{name, value}};
  workload.trainable = {*rc::gen::element<std::string>("*", "", "?", "****", "model.layers.*", ".", "a*b*c*d*e*f*g*h")};
  read_and_build(text, workload);
}

TEST(ModelSpecHostile, ManyRepetitionsOfManyExpertsAreRefused) {
  std::ifstream stream("model_specs/mixtral_8x7b.json");
  std::stringstream buffer;
  buffer << stream.rdbuf();
  std::string text = buffer.str();
  text.replace(text.find("{0..31}"), 7, "{0..9999}");
  text.replace(text.find("\"num_experts\": 8"), 16, "\"num_experts\": 4096");
  const auto spec = parse_model_spec(text, "hostile.json");
  ASSERT_TRUE(spec.has_value());
  const auto model = build_model(*spec);
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().front().what, "The model has more than half a million modules and parameters.");
}

}  // namespace
}  // namespace fsdp
