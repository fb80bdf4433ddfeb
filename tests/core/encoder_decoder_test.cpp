// T5-3B and Whisper-large-v3: totals, names in order of registration, ties, and how the two halves are joined.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "core/frameworks/layout.h"
#include "core/plan/sharding.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

std::vector<std::string> names_of_parameters(const Model& model) {
  std::vector<std::string> names;
  for (const Parameter& parameter : model.parameters) names.push_back(parameter.name);
  return names;
}

// ---- T5

TEST(T5, HasTheTotalOfThePublishedModel) {
  const Model model = model_of("t5_3b.json");
  // 32128 * 1024 + encoder 24 * (4 * 1024 * 4096 + 2 * 1024 * 16384 + 2 * 1024) + 32 * 32 + 1024
  //              + decoder 24 * (8 * 1024 * 4096 + 2 * 1024 * 16384 + 3 * 1024) + 32 * 32 + 1024.
  EXPECT_EQ(num_parameters(model), 2'851'598'336);
  EXPECT_EQ(elements_below(model, "encoder."), 24 * (16'777'216 + 33'554'432 + 2'048) + 2'048);
  EXPECT_EQ(elements_below(model, "decoder."), 24 * (33'554'432 + 33'554'432 + 3'072) + 2'048);
  EXPECT_EQ(num_gradient_parameters(model), 2'851'598'336);
}

/// In the order of named_parameters() of T5ForConditionalGeneration.
std::vector<std::string> published_t5_names() {
  std::vector<std::string> names = {"shared.weight"};
  for (const std::string half : {"encoder", "decoder"}) {
    for (int i = 0; i < 24; ++i) {
      const std::string block = fmt::format("{}.block.{}.layer", half, i);
      for (const char* projection : {"q", "k", "v", "o"}) {
        names.push_back(fmt::format("{}.0.SelfAttention.{}.weight", block, projection));
      }
      if (i == 0) names.push_back(block + ".0.SelfAttention.relative_attention_bias.weight");
      names.push_back(block + ".0.layer_norm.weight");
      if (half == "decoder") {
        for (const char* projection : {"q", "k", "v", "o"}) {
          names.push_back(fmt::format("{}.1.EncDecAttention.{}.weight", block, projection));
        }
        names.push_back(block + ".1.layer_norm.weight");
      }
      const std::string mlp = fmt::format("{}.{}", block, half == "decoder" ? 2 : 1);
      for (const char* name : {"DenseReluDense.wi", "DenseReluDense.wo", "layer_norm"}) {
        names.push_back(fmt::format("{}.{}.weight", mlp, name));
      }
    }
    names.push_back(half + ".final_layer_norm.weight");
  }
  return names;
}

TEST(T5, HasThePublishedNamesInOrderAndOneEmbedding) {
  const Model model = model_of("t5_3b.json");
  EXPECT_EQ(published_t5_names().size(), 509U);
  EXPECT_EQ(names_of_parameters(model), published_t5_names());
  const auto& tied = find_parameter(model, "shared.weight")->tied_names;
  EXPECT_NE(std::find(tied.begin(), tied.end(), "lm_head.weight"), tied.end());
  EXPECT_EQ(ops_of(model, "shared").size(), 2U);  // The encoder's and the decoder's tokens.
}

TEST(T5, FirstBlockOfEachStackHasTheBiasTableThatAllRead) {
  const Model model = model_of("t5_3b.json", {.dimensions = {{"batch", 3}, {"seq", 64}, {"target_seq", 16}}});
  EXPECT_EQ(find_parameter(model, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight")->shape,
            (Shape{32, 32}));
  EXPECT_EQ(op_of(model, "encoder.block.23.layer.0.SelfAttention", OpKind::Attention).inputs[3],
            (Shape{3, 32, 64, 64}));
  EXPECT_EQ(op_of(model, "decoder.block.23.layer.0.SelfAttention", OpKind::Attention).inputs[3],
            (Shape{3, 32, 16, 16}));
  EXPECT_EQ(op_of(model, "decoder.block.23.layer.1.EncDecAttention", OpKind::Attention).inputs[3],
            (Shape{3, 32, 16, 64}));
}

TEST(T5, EveryDecoderBlockReadsTheEncodersOutput) {
  const Model model = model_of("t5_3b.json", {.dimensions = {{"batch", 3}, {"seq", 64}, {"target_seq", 16}}});
  for (int i = 0; i < 24; ++i) {
    const std::string attention = fmt::format("decoder.block.{}.layer.1.EncDecAttention", i);
    EXPECT_EQ(op_of(model, attention + ".k", OpKind::Linear).inputs[0], (Shape{3, 64, 1024})) << attention;
    EXPECT_EQ(op_of(model, attention + ".q", OpKind::Linear).inputs[0], (Shape{3, 16, 1024})) << attention;
  }
}

TEST(T5, StacksAreTwentyFourBlocksEach) {
  const Model model = model_of("t5_3b.json");
  ASSERT_EQ(model.stacks.size(), 2U);
  EXPECT_EQ(model.stacks[0].name, "encoder.block");
  EXPECT_EQ(model.stacks[0].class_name, "T5Block");
  EXPECT_EQ(model.stacks[0].calls.size(), 24U);
  EXPECT_EQ(model.stacks[1].calls.size(), 24U);
}

TEST(T5, AGatedBlockHasTwoInputProjections) {
  const auto spec = parse_model_spec(R"({
    "format_version": "1.0", "name": "one block", "source": "test", "dtype": "float32",
    "dimensions": {"batch": 2, "seq": 8},
    "inputs": {"hidden": {"shape": ["batch", "seq", 16]}, "target": {"shape": ["batch", "seq", 16]}},
    "modules": [
      {"name": "block", "block": "t5_block", "num_attention_heads": 2, "head_dim": 4, "intermediate_size": 32, "gated": true,
       "relative_attention_buckets": 32},
      {"name": "", "class": "Root", "ops": [{"op": "mse_loss", "inputs": ["hidden", "target"], "outputs": ["loss"]}]}
    ]})",
                                     "gated.json");
  ASSERT_TRUE(spec.has_value());
  const auto model = build_model(*spec);
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(elements_below(*model, "block.layer.1.DenseReluDense."), 3 * 16 * 32);
  EXPECT_EQ(find_parameter(*model, "block.layer.1.DenseReluDense.wi_1.weight")->shape, (Shape{32, 16}));
}

// ---- Whisper

TEST(Whisper, HasTheTotalsOfThePublishedModel) {
  const Model model = model_of("whisper_large_v3.json");
  EXPECT_EQ(num_parameters(model), 1'543'490'560);
  EXPECT_EQ(elements_below(model, "model.encoder."), 636'968'960);
  // The fixed sinusoids, 1500 * 1280, are a parameter that is not trained.
  EXPECT_EQ(num_trainable_parameters(model), 1'543'490'560 - 1'920'000);
  EXPECT_EQ(num_gradient_parameters(model), 1'541'570'560);
  EXPECT_FALSE(find_parameter(model, "model.encoder.embed_positions.weight")->trainable);
}

void add_layer(std::vector<std::string>& names, const std::string& name) {
  names.push_back(name + ".weight");
  names.push_back(name + ".bias");
}

void add_attention(std::vector<std::string>& names, const std::string& name) {
  names.push_back(name + ".k_proj.weight");  // No bias.
  for (const char* projection : {"v_proj", "q_proj", "out_proj"}) add_layer(names, name + "." + projection);
  add_layer(names, name + "_layer_norm");
}

/// In the order of named_parameters() of WhisperForConditionalGeneration.
std::vector<std::string> published_whisper_names() {
  std::vector<std::string> names;
  for (const std::string half : {"model.encoder", "model.decoder"}) {
    const bool decoder = half == "model.decoder";
    if (decoder) {
      names.push_back(half + ".embed_tokens.weight");
    } else {
      add_layer(names, half + ".conv1");
      add_layer(names, half + ".conv2");
    }
    names.push_back(half + ".embed_positions.weight");
    for (int i = 0; i < 32; ++i) {
      const std::string layer = fmt::format("{}.layers.{}", half, i);
      add_attention(names, layer + ".self_attn");
      if (decoder) add_attention(names, layer + ".encoder_attn");
      for (const char* name : {"fc1", "fc2", "final_layer_norm"}) add_layer(names, layer + "." + name);
    }
    add_layer(names, half + ".layer_norm");
  }
  return names;
}

TEST(Whisper, HasThePublishedNamesInOrderAndATiedHead) {
  const Model model = model_of("whisper_large_v3.json");
  EXPECT_EQ(published_whisper_names().size(), 1259U);
  EXPECT_EQ(names_of_parameters(model), published_whisper_names());
  EXPECT_EQ(find_parameter(model, "model.decoder.embed_tokens.weight")->tied_names,
            std::vector<std::string>{"proj_out.weight"});
}

TEST(Whisper, TheSecondConvolutionHalvesTheFrames) {
  const Model model = model_of("whisper_large_v3.json", {.dimensions = {{"batch", 2}, {"target_seq", 100}}});
  EXPECT_EQ(op_of(model, "model.encoder.conv1", OpKind::Conv1d).outputs[0], (Shape{2, 1280, 3000}));
  EXPECT_EQ(op_of(model, "model.encoder.conv2", OpKind::Conv1d).outputs[0], (Shape{2, 1280, 1500}));
  EXPECT_EQ(op_of(model, "model.encoder.layer_norm", OpKind::LayerNorm).outputs[0], (Shape{2, 1500, 1280}));
  EXPECT_EQ(op_of(model, "proj_out", OpKind::Linear).outputs[0], (Shape{2, 100, 51866}));
}

// FSDP2 hangs its pre-backward hook on each output of a module; the bias that block 0 makes for all blocks is one.
TEST(T5, UnitOfTheBiasRunsOncePerOutput) {
  const Model model = model_of("t5_3b.json", {.dimensions = {{"batch", 1}, {"seq", 16}, {"target_seq", 8}}});
  const ModelIndex index = index_of(model);
  Plan plan;
  plan.mesh = {1, 4};
  for (const int block : {0, 1}) {
    plan.units.push_back({{fmt::format("encoder.block.{}.layer.0.SelfAttention", block)}, {}});
  }
  plan.units.push_back({{""}, {}});
  const auto layout = make_layout(index, plan);
  ASSERT_TRUE(layout) << to_string(layout.error().front());
  const auto further = [&](std::size_t unit) { return layout->units[unit].windows.at(0).further_pre_backwards; };
  ASSERT_EQ(further(0).size(), 1U);
  EXPECT_LT(further(0).front(), layout->units[0].windows[0].pre_backward);
  EXPECT_EQ(index.last_read[further(0).front()] >= layout->units[0].windows[0].end, true);
  EXPECT_TRUE(further(1).empty());
  EXPECT_TRUE(further(2).empty());
}

TEST(Whisper, TheDecoderIsCausalAndLooksAtAllOfTheEncoder) {
  const Model model = model_of("whisper_large_v3.json", {.dimensions = {{"batch", 2}, {"target_seq", 100}}});
  EXPECT_FALSE(op_of(model, "model.encoder.layers.0.self_attn", OpKind::Attention).attributes.causal);
  EXPECT_TRUE(op_of(model, "model.decoder.layers.31.self_attn", OpKind::Attention).attributes.causal);
  const PlacedOp cross = op_of(model, "model.decoder.layers.31.encoder_attn", OpKind::Attention);
  EXPECT_FALSE(cross.attributes.causal);
  EXPECT_EQ(cross.inputs[0], (Shape{2, 100, 20, 64}));
  EXPECT_EQ(cross.inputs[1], (Shape{2, 1500, 20, 64}));
}

}  // namespace
}  // namespace fsdp
