// The numbers that the models of model_specs/ compute with, against their published configurations.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "core/spec/block_kinds.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

bool is_norm(OpKind kind) {
  return kind == OpKind::RmsNorm || kind == OpKind::LayerNorm || kind == OpKind::GroupNorm || kind == OpKind::BatchNorm;
}

/// The attributes of all ops that satisfy a predicate.
template <class Predicate>
std::vector<OpAttributes> attributes_of(const Model& model, Predicate predicate) {
  std::vector<OpAttributes> found;
  for (const Block& block : model.blocks) {
    for (const Op& op : block.ops) {
      if (predicate(op.kind)) found.push_back(op.attributes);
    }
  }
  return found;
}

std::vector<OpAttributes> attributes_of(const Model& model, OpKind kind) {
  return attributes_of(model, [kind](OpKind other) { return other == kind; });
}

constexpr RotaryFrequencies llama3(double factor) {
  return {.theta = 500000,
          .scaling = RotaryScaling::Llama3,
          .factor = factor,
          .low_freq_factor = 1,
          .high_freq_factor = 4,
          .original_positions = 8192};
}

struct Constants {
  std::string file;
  double eps;  ///< For all its norms.
  RotaryFrequencies rotary = {.theta = 0};
};

// rms_norm_eps, layer_norm_eps or layer_norm_epsilon, rope_theta and rope_scaling of each config.json; of Whisper,
// torchvision's ViT and ResNet what their code gives to torch.nn. Qwen3-TTS: of talker_config and
// code_predictor_config.
const std::vector<Constants> kConstants = {
    {"llama2_7b.json", 1e-5, {.theta = 10000}},
    {"llama3_1_8b.json", 1e-5, llama3(8)},
    {"llama3_1_70b.json", 1e-5, llama3(8)},
    {"llama3_8b.json", 1e-5, {.theta = 500000}},
    {"llama3_70b.json", 1e-5, {.theta = 500000}},
    {"llama3_3_70b.json", 1e-5, llama3(8)},
    {"llama3_1_405b.json", 1e-5, llama3(8)},
    {"llama3_2_1b.json", 1e-5, llama3(32)},
    {"llama3_2_3b.json", 1e-5, llama3(32)},
    {"qwen2_5_0_5b.json", 1e-6, {.theta = 1e6}},
    {"qwen2_5_1_5b.json", 1e-6, {.theta = 1e6}},
    {"qwen2_5_3b.json", 1e-6, {.theta = 1e6}},
    {"qwen2_5_14b.json", 1e-5, {.theta = 1e6}},
    {"qwen2_5_32b.json", 1e-5, {.theta = 1e6}},
    {"qwen2_5_72b.json", 1e-5, {.theta = 1e6}},
    {"qwen2_5_7b.json", 1e-6, {.theta = 1e6}},
    {"qwen3_0_6b.json", 1e-6, {.theta = 1e6}},
    {"qwen3_1_7b.json", 1e-6, {.theta = 1e6}},
    {"qwen3_4b.json", 1e-6, {.theta = 1e6}},
    {"qwen3_8b.json", 1e-6, {.theta = 1e6}},
    {"qwen3_14b.json", 1e-6, {.theta = 1e6}},
    {"qwen3_32b.json", 1e-6, {.theta = 1e6}},
    {"qwen3_30b_a3b.json", 1e-6, {.theta = 1e6}},
    {"qwen3_tts.json", 1e-6, {.theta = 1e6}},
    {"qwen3_tts_0_6b_base.json", 1e-6, {.theta = 1e6}},
    {"qwen3_tts_0_6b_custom_voice.json", 1e-6, {.theta = 1e6}},
    {"qwen3_tts_1_7b_custom_voice.json", 1e-6, {.theta = 1e6}},
    {"mistral_7b_v0_1.json", 1e-5, {.theta = 10000}},
    {"mistral_7b_v0_3.json", 1e-5, {.theta = 1e6}},
    {"mixtral_8x7b.json", 1e-5, {.theta = 1e6}},
    {"gemma2_9b.json", 1e-6, {.theta = 10000}},
    {"gpt2.json", 1e-5},
    {"gpt2_medium.json", 1e-5},
    {"gpt2_large.json", 1e-5},
    {"gpt2_xl.json", 1e-5},
    {"bert_large.json", 1e-12},
    {"t5_3b.json", 1e-6},
    {"whisper_large_v3.json", 1e-5},
    {"vit_b_16.json", 1e-6},
    {"vit_b_32.json", 1e-6},
    {"vit_l_16.json", 1e-6},
    {"vit_l_32.json", 1e-6},
    {"vit_h_14.json", 1e-6},
    {"vit_mnist_779m.json", 1e-6},
    {"resnet18.json", 1e-5},
    {"mlp.json", 0},
};

TEST(ModelConstants, EpsilonsAndFrequenciesAreThePublishedOnes) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("model_specs")) {
    if (entry.path().extension() == ".json") files.insert(entry.path().filename());
  }
  for (const Constants& published : kConstants) {
    EXPECT_EQ(files.erase(published.file), 1u) << published.file;
    const Model model = model_of(published.file);
    const auto norms = attributes_of(model, is_norm);
    EXPECT_EQ(norms.empty(), published.eps == 0) << published.file;
    for (const OpAttributes& norm : norms) EXPECT_EQ(norm.eps, published.eps) << published.file;
    const auto tables = attributes_of(model, OpKind::RotaryTable);
    EXPECT_EQ(tables.empty(), published.rotary.theta == 0) << published.file;
    for (const OpAttributes& table : tables) EXPECT_EQ(table.rotary, published.rotary) << published.file;
  }
  EXPECT_EQ(files, std::set<std::string>{}) << "their constants are not in the table";
}

TEST(ModelConstants, ConstantsOfSingleFamiliesAreThePublishedOnes) {
  const Model gemma = model_of("gemma2_9b.json");
  for (const OpAttributes& a : attributes_of(gemma, OpKind::Attention)) EXPECT_EQ(a.score_scale, 1 / std::sqrt(256.0));
  EXPECT_EQ(op_of(gemma, "model.embed_tokens", OpKind::Scale).attributes.scale, std::sqrt(3584.0));
  EXPECT_TRUE(op_of(gemma, "model.embed_tokens", OpKind::Scale).attributes.rounded);
  EXPECT_EQ(op_of(gemma, "model.embed_tokens", OpKind::Embedding).attributes.padding_idx, 0);
  EXPECT_EQ(
      op_of(model_of("bert_large.json"), "bert.embeddings.word_embeddings", OpKind::Embedding).attributes.padding_idx,
      0);
  const Model whisper = model_of("whisper_large_v3.json");
  EXPECT_EQ(op_of(whisper, "model.decoder.embed_tokens", OpKind::Embedding).attributes.padding_idx, 50256);
  for (const std::string file : {"whisper_large_v3.json", "t5_3b.json"}) {
    for (const OpAttributes& a : attributes_of(model_of(file), OpKind::Attention)) EXPECT_EQ(a.score_scale, 1) << file;
  }
  for (const OpAttributes& a : attributes_of(model_of("llama3_1_8b.json"), OpKind::Attention)) {
    EXPECT_EQ(a.score_scale, 0) << "1 / sqrt(head_dim)";
  }
  for (const std::string file : {"mixtral_8x7b.json", "qwen3_30b_a3b.json"}) {
    for (const OpAttributes& a : attributes_of(model_of(file), OpKind::Router)) EXPECT_TRUE(a.norm_topk_prob) << file;
  }
}

TEST(ModelConstants, TensorsOfTheForwardHaveTheirValues) {
  std::vector<OpAttributes> buckets;
  int num_masks = 0;
  for (const OpAttributes& a : attributes_of(model_of("t5_3b.json"), OpKind::Constant)) {
    if (a.fill == ConstantFill::RelativeBuckets) buckets.push_back(a);
    if (a.fill == ConstantFill::CausalMask) ++num_masks;
  }
  ASSERT_EQ(buckets.size(), 2u) << "one for each stack";
  EXPECT_EQ(num_masks, 1) << "the decoder's";
  for (const OpAttributes& a : buckets)
    EXPECT_EQ(std::pair(a.num_buckets, a.max_distance), std::pair(std::int64_t{32}, std::int64_t{128}));
  EXPECT_TRUE(buckets[0].bidirectional);
  EXPECT_FALSE(buckets[1].bidirectional);
  for (const std::string file : {"llama3_1_8b.json", "gpt2.json", "bert_large.json", "whisper_large_v3.json"}) {
    for (const OpAttributes& a : attributes_of(model_of(file), OpKind::Constant)) {
      EXPECT_EQ(a.fill, ConstantFill::Positions) << file;
    }
  }
  // Batch 2, 125 frames, 176 positions: frames lie before the mark of the end, in rows 50 to 174 of each sample.
  const Model tts = model_of("qwen3_tts.json");
  std::set<std::int64_t> strides;
  for (const OpAttributes& a : attributes_of(tts, OpKind::Constant)) {
    if (a.fill != ConstantFill::Rows) continue;
    strides.insert(a.stride);
    EXPECT_EQ(a.length, 125);
    EXPECT_EQ(a.start + a.length + 1, a.stride);
  }
  EXPECT_EQ(strides, (std::set<std::int64_t>{175, 176})) << "of hidden states, and of codes";
}

/// A number that a shipped spec leaves to a default may be one that nobody looked up.
TEST(ModelConstants, EverySpecStatesTheNumbersThatHaveADefault) {
  const std::set<std::string_view> stated = {"eps",        "norm_eps",       "norm_momentum",
                                             "rope_theta", "norm_topk_prob", "relative_attention_max_distance"};
  for (const auto& entry : std::filesystem::directory_iterator("model_specs")) {
    if (entry.path().extension() != ".json") continue;
    const auto spec = read_model_spec(entry.path());
    ASSERT_TRUE(spec) << entry.path();
    for (const SpecModule& module : spec->modules) {
      const BlockKind* kind = find_block_kind(module.block);
      if (kind == nullptr) continue;
      for (const OptionRule& rule : kind->options) {
        if (!stated.contains(rule.name)) continue;
        EXPECT_TRUE(std::any_of(module.options.begin(), module.options.end(),
                                [&](const SpecOption& option) { return option.name == rule.name; }))
            << entry.path() << ": " << module.name << " leaves out " << rule.name;
      }
    }
  }
}

}  // namespace
}  // namespace fsdp
