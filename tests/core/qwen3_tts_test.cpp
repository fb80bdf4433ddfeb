// The four released Qwen3-TTS models: tensors, sums, gradients, recipes and the shape of the training step.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

constexpr const char* kLargeBase = "qwen3_tts.json";
constexpr const char* kLargeCustomVoice = "qwen3_tts_1_7b_custom_voice.json";
constexpr const char* kSmallBase = "qwen3_tts_0_6b_base.json";
constexpr const char* kSmallCustomVoice = "qwen3_tts_0_6b_custom_voice.json";

struct Tensor {
  std::string name;
  Shape shape;

  bool operator==(const Tensor&) const = default;
};

void PrintTo(const Tensor& tensor, std::ostream* out) {
  *out << tensor.name << " [";
  for (const std::int64_t size : tensor.shape) *out << size << " ";
  *out << "]";
}

/// "512x128x5".
Shape parse_shape(const std::string& text) {
  Shape shape;
  std::istringstream stream(text);
  for (std::string size; std::getline(stream, size, 'x');) shape.push_back(std::stoll(size));
  return shape;
}

/// The released tensors of one size, in the order of named_parameters().
std::vector<Tensor> released_tensors(bool large, bool with_speaker_encoder) {
  std::ifstream file("tests/golden/qwen3_tts_tensors.tsv");
  std::vector<Tensor> tensors;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream fields(line);
    std::string name, large_shape, small_shape;
    fields >> name >> large_shape >> small_shape;
    const std::string& shape = large ? large_shape : small_shape;
    if (shape == "-" || (!with_speaker_encoder && name.starts_with("speaker_encoder."))) continue;
    tensors.push_back({name, parse_shape(shape)});
  }
  return tensors;
}

std::vector<Tensor> tensors_of(const Model& model) {
  std::vector<Tensor> tensors;
  for (const Parameter& parameter : model.parameters) tensors.push_back({parameter.name, parameter.shape});
  return tensors;
}

TEST(Qwen3Tts, HasEveryTensorOfTheReleasedCheckpointsAndNoOther) {
  EXPECT_EQ(released_tensors(true, true).size(), 480U);
  EXPECT_EQ(tensors_of(model_of(kLargeBase)), released_tensors(true, true));
  EXPECT_EQ(released_tensors(true, false).size(), 404U);
  EXPECT_EQ(tensors_of(model_of(kLargeCustomVoice)), released_tensors(true, false));
  EXPECT_EQ(released_tensors(false, true).size(), 478U);
  EXPECT_EQ(tensors_of(model_of(kSmallBase)), released_tensors(false, true));
  EXPECT_EQ(released_tensors(false, false).size(), 402U);
  EXPECT_EQ(tensors_of(model_of(kSmallCustomVoice)), released_tensors(false, false));
}

TEST(Qwen3Tts, StoresEveryTensorInBFloat16) {
  for (const char* file : {kLargeBase, kLargeCustomVoice, kSmallBase, kSmallCustomVoice}) {
    const Model model = model_of(file);
    for (const Parameter& parameter : model.parameters) EXPECT_EQ(parameter.dtype, Dtype::BFloat16) << parameter.name;
  }
}

TEST(Qwen3Tts, TotalsMatchTheHub) {
  EXPECT_EQ(num_parameters(model_of(kLargeBase)), 1'928'677'440);
  EXPECT_EQ(num_parameters(model_of(kLargeCustomVoice)), 1'916'676'352);
  EXPECT_EQ(num_parameters(model_of(kSmallBase)), 914'643'008);
  EXPECT_EQ(num_parameters(model_of(kSmallCustomVoice)), 905'788'672);
}

TEST(Qwen3Tts, PartsOfTheLargeModelAddUp) {
  const Model model = model_of(kLargeBase);
  const auto below = [&](std::string_view prefix) { return elements_below(model, prefix); };
  EXPECT_EQ(below("talker.model.text_embedding."), 311'164'928);  // 151936 * 2048
  EXPECT_EQ(below("talker.model.codec_embedding."), 6'291'456);   // 3072 * 2048
  EXPECT_EQ(below("talker.text_projection."), 8'392'704);         // 2 * (2048 * 2048 + 2048)
  EXPECT_EQ(below("talker.model.layers.0."), 50'336'000);         // 12582912 + 256 + 37748736 + 4096
  EXPECT_EQ(below("talker.model.layers."), 1'409'408'000);        // 28 of them
  EXPECT_EQ(below("talker.model.norm."), 2'048);
  EXPECT_EQ(below("talker.codec_head."), 6'291'456);
  EXPECT_EQ(below("talker.code_predictor.model.codec_embedding."), 62'914'560);  // 15 * 2048 * 2048
  EXPECT_EQ(below("talker.code_predictor.model.layers."), 78'654'720);           // 5 * 15730944
  EXPECT_EQ(below("talker.code_predictor.model.norm."), 1'024);
  EXPECT_EQ(below("talker.code_predictor.lm_head."), 31'457'280);                 // 15 * 2048 * 1024
  EXPECT_EQ(below("talker.code_predictor.small_to_mtp_projection."), 2'098'176);  // 2048 * 1024 + 1024
  EXPECT_EQ(below("talker.code_predictor."), 175'125'760);
  EXPECT_EQ(below("talker.") - below("talker.code_predictor."), 1'741'550'592);
  EXPECT_EQ(below("talker."), 1'916'676'352);
  EXPECT_EQ(below("talker.model."), 1'726'866'432);
  EXPECT_EQ(below("speaker_encoder."), 12'001'088);
}

TEST(Qwen3Tts, PartsOfTheSmallModelAddUp) {
  const Model model = model_of(kSmallBase);
  const auto below = [&](std::string_view prefix) { return elements_below(model, prefix); };
  EXPECT_EQ(below("talker.model.text_embedding."), 311'164'928);
  EXPECT_EQ(below("talker.model.codec_embedding."), 3'145'728);
  EXPECT_EQ(below("talker.text_projection."), 6'294'528);  // 2048 * 2048 + 2048 + 1024 * 2048 + 1024
  EXPECT_EQ(below("talker.model.layers."), 440'466'432);   // 28 * 15730944: queries are 2048 wide here too
  EXPECT_EQ(below("talker.codec_head."), 3'145'728);
  EXPECT_EQ(below("talker.code_predictor.model.codec_embedding."), 31'457'280);
  EXPECT_EQ(below("talker.code_predictor.model.layers."), 78'654'720);
  EXPECT_EQ(below("talker.code_predictor.small_to_mtp_projection."), 0);  // An identity.
  EXPECT_EQ(below("talker.code_predictor."), 141'570'304);
  EXPECT_EQ(below("talker.") - below("talker.code_predictor."), 764'218'368);
  EXPECT_EQ(below("talker.model."), 754'778'112);
  EXPECT_EQ(below("speaker_encoder."), 8'854'336);
}

// ---- Gradients and recipes.

std::set<std::string> without_gradient(const Model& model) {
  std::set<std::string> names;
  for (const Parameter& parameter : model.parameters) {
    if (!parameter.receives_gradient) names.insert(parameter.name);
  }
  return names;
}

TEST(Qwen3Tts, OfficialRecipeLeavesEightyTensorsWithoutGradient) {
  const Model model = model_of(kLargeBase, {.recipe = "sft"});
  EXPECT_EQ(num_trainable_parameters(model), 1'928'677'440);
  // Less the text projection, which is never called, and the speaker encoder, whose output is detached.
  EXPECT_EQ(num_gradient_parameters(model), 1'928'677'440 - 8'392'704 - 12'001'088);
  EXPECT_EQ(num_gradient_parameters(model), 1'908'283'648);
  const std::set<std::string> idle = without_gradient(model);
  EXPECT_EQ(idle.size(), 80U);
  EXPECT_TRUE(std::all_of(idle.begin(), idle.end(), [](const std::string& name) {
    return name.starts_with("speaker_encoder.") || name.starts_with("talker.text_projection.");
  }));
}

TEST(Qwen3Tts, WithoutASpeakerEncoderTheSameParametersGetAGradient) {
  const Model model = model_of(kLargeCustomVoice);
  EXPECT_EQ(num_gradient_parameters(model), 1'908'283'648);
  EXPECT_EQ(without_gradient(model).size(), 4U);
}

TEST(Qwen3Tts, SmallModelsTrainTheTextProjection) {
  for (const char* file : {kSmallBase, kSmallCustomVoice}) {
    const Model model = model_of(file);
    EXPECT_EQ(num_gradient_parameters(model), 905'788'672) << file;
    EXPECT_EQ(elements_where(model,
                             [](const Parameter& parameter) {
                               return parameter.receives_gradient &&
                                      !parameter.name.starts_with("talker.text_projection.");
                             }),
              899'494'144)
        << file;
  }
}

TEST(Qwen3Tts, TrainingTheTalkerOnlyFreezesTheSpeakerEncoder) {
  const Model model = model_of(kLargeBase, {.recipe = "talker_only"});
  EXPECT_EQ(num_trainable_parameters(model), 1'916'676'352);
  EXPECT_EQ(num_gradient_parameters(model), 1'908'283'648);
  EXPECT_FALSE(find_parameter(model, "speaker_encoder.fc.weight")->trainable);
  EXPECT_TRUE(find_parameter(model, "talker.text_projection.linear_fc1.weight")->trainable);
}

TEST(Qwen3Tts, RecipesDescribeTheirTraining) {
  const auto spec = read_model_spec(std::string("model_specs/") + kLargeBase);
  ASSERT_TRUE(spec.has_value());
  const auto official = find_recipe(*spec, "");
  ASSERT_TRUE(official.has_value());
  EXPECT_EQ(official->name, "sft");
  EXPECT_EQ(official->parameter_dtype, std::nullopt);  // As in the checkpoint: bfloat16.
  EXPECT_EQ(official->mixed_precision.reduce_dtype, std::nullopt);
  EXPECT_EQ(official->accumulation, 4);
  EXPECT_EQ(official->optimizer.weight_decay, 0.01);
  EXPECT_EQ(official->optimizer.clip_grad_norm, 1.0);

  const auto talker = find_recipe(*spec, "talker_only");
  ASSERT_TRUE(talker.has_value());
  EXPECT_EQ(talker->parameter_dtype, Dtype::Float32);
  EXPECT_EQ(talker->mixed_precision.param_dtype, Dtype::BFloat16);
  EXPECT_EQ(talker->mixed_precision.reduce_dtype, Dtype::Float32);
}

TEST(Qwen3Tts, UserPatternsDecideTrainedParameters) {
  const Model layers = model_of(kLargeBase, {.trainable = {"talker.model.layers.*"}});
  EXPECT_EQ(num_trainable_parameters(layers), 1'409'408'000);
  EXPECT_EQ(num_gradient_parameters(layers), 1'409'408'000);
  const Model all_but_text = model_of(kLargeBase, {.frozen = {"talker.model.text_embedding.*"}});
  EXPECT_EQ(num_gradient_parameters(all_but_text), 1'908'283'648 - 311'164'928);
}

TEST(Qwen3Tts, NotesNameTheFigureThatMatchesNoPart) {
  const Model model = model_of(kLargeBase);
  EXPECT_TRUE(std::any_of(model.notes.begin(), model.notes.end(),
                          [](const std::string& note) { return note.find("847,234,560") != std::string::npos; }));
}

// ---- The step.

TEST(Qwen3Tts, TokensFollowTheLengthOfTheClip) {
  struct Clip {
    double seconds, text_tokens;
    std::int64_t talker_tokens, predictor_tokens;
  };
  // 3 + n + floor(12.5 s) + 8 - 1 talker positions, 16 tokens for each frame.
  for (const Clip& clip :
       {Clip{3, 12, 59, 592}, Clip{10, 40, 175, 2000}, Clip{15, 60, 257, 2992}, Clip{30, 120, 505, 6000}}) {
    const Workload workload = {.dimensions = {{"clip_seconds", clip.seconds}, {"text_tokens", clip.text_tokens}}};
    const Model model = model_of(kLargeBase, workload);
    const Shape talker = op_of(model, "talker.model.norm", OpKind::RmsNorm).outputs[0];
    EXPECT_EQ(talker, (Shape{2, clip.talker_tokens, 2048}));
    EXPECT_EQ(model.tokens_per_step, 2 * clip.talker_tokens);
    const Shape predictor = op_of(model, "talker.code_predictor.model.norm", OpKind::RmsNorm).outputs[0];
    EXPECT_EQ(predictor, (Shape{2 * clip.predictor_tokens / 16, 16, 1024}));
  }
}

TEST(Qwen3Tts, ReadsNineHundredAndThirtySevenMelFramesOfTenSeconds) {
  // A hop of 256 samples at 24 kHz, frames padded by 384 at both ends: floor(93.75 s).
  const Model model = model_of(kLargeBase);
  EXPECT_EQ(op_of(model, "speaker_encoder.blocks.0.conv", OpKind::Conv1d).outputs[0], (Shape{2, 512, 937}));
  EXPECT_EQ(op_of(model, "speaker_encoder.asp.tdnn.conv", OpKind::Conv1d).inputs[0], (Shape{2, 4608, 937}));
  EXPECT_EQ(op_of(model, "speaker_encoder.fc", OpKind::Conv1d).outputs[0], (Shape{2, 2048, 1}));
}

TEST(Qwen3Tts, AttentionHasSixteenQueryAndEightKeyHeads) {
  for (const char* file : {kLargeBase, kSmallBase}) {
    const Model model = model_of(file);
    for (const char* layer : {"talker.model.layers.27", "talker.code_predictor.model.layers.4"}) {
      const PlacedOp attention = op_of(model, std::string(layer) + ".self_attn", OpKind::Attention);
      EXPECT_EQ(attention.attributes.heads, 16);
      EXPECT_EQ(attention.attributes.kv_heads, 8);
      EXPECT_EQ(attention.attributes.head_dim, 128);
      EXPECT_TRUE(attention.attributes.causal);
      EXPECT_EQ(attention.inputs.size(), 3U);  // No mask.
      EXPECT_EQ(op_of(model, std::string(layer) + ".self_attn.q_norm", OpKind::RmsNorm).outputs[0].back(), 128);
    }
  }
}

TEST(Qwen3Tts, StacksShareRotaryTablesAndTheTalkersHasThreeChannels) {
  const Model model = model_of(kLargeBase);
  int in_talker = 0, in_predictor = 0;
  for (const Module& module : model.modules) {
    for (const PlacedOp& op : ops_of(model, module.name)) {
      if (op.kind != OpKind::RotaryTable) continue;
      if (module.name.starts_with("talker.code_predictor.")) {
        ++in_predictor;
        EXPECT_EQ(op.outputs[0], (Shape{1, 16, 128}));
      } else {
        ++in_talker;
        EXPECT_EQ(op.outputs[0], (Shape{3, 2, 175, 128}));
      }
    }
  }
  EXPECT_EQ(in_talker, 1);
  EXPECT_EQ(in_predictor, 1);
}

TEST(Qwen3Tts, LossesReadTheTalkersLogitsAndFifteenHeadsOfEachFrame) {
  const Model model = model_of(kLargeBase);
  EXPECT_EQ(op_of(model, "talker.codec_head", OpKind::Linear).outputs[0], (Shape{2, 175, 3072}));
  EXPECT_EQ(op_of(model, "talker.code_predictor.lm_head.14", OpKind::Linear).outputs[0], (Shape{250, 2048}));
  std::vector<Shape> logits;
  double weight = 0;
  for (const PlacedOp& op : ops_of(model, "")) {
    if (op.kind == OpKind::CrossEntropy) {
      logits.push_back(op.inputs[0]);
      EXPECT_TRUE(op.attributes.shift);
    }
    if (op.kind == OpKind::Scale) weight = op.attributes.scale;
  }
  EXPECT_EQ(logits, (std::vector<Shape>{{2, 175, 3072}, {250, 15, 2048}}));
  EXPECT_EQ(weight, 0.3);
}

TEST(Qwen3Tts, LastCodecTableIsUsedOnceAndOthersTwice) {
  const Model model = model_of(kLargeBase);
  EXPECT_EQ(ops_of(model, "talker.model.codec_embedding").size(), 2U);
  EXPECT_EQ(ops_of(model, "talker.code_predictor.model.codec_embedding.13").size(), 2U);
  EXPECT_EQ(ops_of(model, "talker.code_predictor.model.codec_embedding.14").size(), 1U);
  EXPECT_EQ(ops_of(model, "talker.text_projection.linear_fc1").size(), 0U);
  EXPECT_TRUE(find_parameter(model, "talker.code_predictor.model.codec_embedding.14.weight")->receives_gradient);
}

TEST(Qwen3Tts, ModulesWhoseForwardIsBypassedCannotBeUnits) {
  const Model model = model_of(kLargeBase);
  for (const char* name : {"talker", "talker.model", "talker.model.layers", "talker.text_projection",
                           "talker.code_predictor", "talker.code_predictor.model", "talker.code_predictor.lm_head"}) {
    ASSERT_NE(find_module(model, name), nullptr) << name;
    EXPECT_FALSE(find_module(model, name)->called) << name;
  }
  for (const char* name : {"", "talker.model.layers.0", "talker.model.text_embedding", "talker.model.codec_embedding",
                           "talker.code_predictor.model.codec_embedding.14", "talker.codec_head", "speaker_encoder"}) {
    ASSERT_NE(find_module(model, name), nullptr) << name;
    EXPECT_TRUE(find_module(model, name)->called) << name;
  }
}

TEST(Qwen3Tts, ClassNamesMisleadTheAutoWrapPolicy) {
  const Model model = model_of(kLargeBase);
  const auto in_class = [&](std::string_view class_name) {
    std::int64_t total = 0;
    for (const Module& module : model.modules) {
      if (module.class_name == class_name) total += elements_below(model, module.name + ".");
    }
    return total;
  };
  // _no_split_modules names only the first of the two.
  EXPECT_EQ(num_parameters(model) - in_class("Qwen3TTSDecoderLayer"), 1'850'022'720);
  EXPECT_EQ(in_class("Qwen3TTSTalkerDecoderLayer"), 1'409'408'000);
}

TEST(Qwen3Tts, RootUnitGathersParametersThatNeverTrain) {
  // Layers, the text embedding and the codec embedding as units of their own; the rest is the root's. A run of the
  // published code under FSDP2 gathers 246316672 bytes for it in bfloat16 and reduces 205529088.
  const Model model = model_of(kLargeBase);
  const auto in_root = [](const Parameter& parameter) {
    return parameter.name.find(".layers.") == std::string::npos &&
           !parameter.name.starts_with("talker.model.text_embedding.") &&
           !parameter.name.starts_with("talker.model.codec_embedding.");
  };
  EXPECT_EQ(2 * elements_where(model, in_root), 246'316'672);
  EXPECT_EQ(2 * elements_where(model, [&](const Parameter& p) { return in_root(p) && p.receives_gradient; }),
            205'529'088);
}

TEST(Qwen3Tts, TheSpeakerEncoderPadsByReflectionBeforeEveryConvolution) {
  const Model model = model_of(kLargeBase);
  // Dilations 2, 3 and 4 of kernel 3 need 4, 6 and 8 more frames; a kernel of 1 copies its input.
  const std::string block = "speaker_encoder.blocks.3.res2net_block.blocks.0";
  EXPECT_EQ(op_of(model, block, OpKind::Pad).outputs[0], (Shape{2, 64, 945}));
  EXPECT_EQ(op_of(model, block + ".conv", OpKind::Conv1d).outputs[0], (Shape{2, 64, 937}));
  int pads = 0, convolutions = 0;
  for (const Module& module : model.modules) {
    if (!module.name.starts_with("speaker_encoder")) continue;
    for (const PlacedOp& op : ops_of(model, module.name)) {
      pads += op.kind == OpKind::Pad ? 1 : 0;
      convolutions += op.kind == OpKind::Conv1d ? 1 : 0;
    }
  }
  EXPECT_EQ(convolutions, 38);  // 76 tensors, a weight and a bias each.
  EXPECT_EQ(pads, 38);
}

TEST(Qwen3Tts, BothRotaryEmbeddingsKeepTheirFrequenciesAsABuffer) {
  const Model model = model_of(kLargeBase);
  ASSERT_EQ(model.buffers.size(), 2U);
  for (const Buffer& buffer : model.buffers) {
    EXPECT_TRUE(buffer.name.ends_with("model.rotary_emb.inv_freq")) << buffer.name;
    EXPECT_EQ(buffer.shape, Shape{64});
    EXPECT_FALSE(buffer.persistent);
  }
}

TEST(Qwen3Tts, StepKeepsHiddenStatesLogitsAndCacheUntilItReturns) {
  const Model model = model_of(kLargeBase);
  const auto count = [&](std::string_view ending, bool if_cached, std::string_view below = "") {
    return std::count_if(model.held.begin(), model.held.end(), [&](const HeldValue& held) {
      const std::string& name = model.values[held.value].name;
      return held.if_cached == if_cached && name.ends_with(ending) && name.starts_with(below);
    });
  };
  // What enters the layers after the first, and what leaves the norm; logits of the talker and of the predictor.
  EXPECT_EQ(count(".hidden", false, "talker.model."), 27 + 1);
  EXPECT_EQ(count("logits", false), 2);
  EXPECT_EQ(count("keys", true), 28 + 5);
  EXPECT_EQ(count("values", true), 28 + 5);
}

TEST(Qwen3Tts, StacksAreTheTwentyEightAndTheFiveLayers) {
  const Model model = model_of(kLargeBase);
  ASSERT_EQ(model.stacks.size(), 2U);
  EXPECT_EQ(model.stacks[0].name, "talker.model.layers");
  EXPECT_EQ(model.stacks[0].calls.size(), 28U);
  EXPECT_EQ(model.stacks[1].name, "talker.code_predictor.model.layers");
  EXPECT_EQ(model.stacks[1].calls.size(), 5U);
}

}  // namespace
}  // namespace fsdp
