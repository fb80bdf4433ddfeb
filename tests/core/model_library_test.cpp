// Every model of model_specs/ against published totals and the names of its checkpoint.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/model/op_shapes.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

struct Total {
  std::string file;
  std::int64_t parameters;
  std::size_t tensors;  ///< Distinct ones: tied parameters once.
  std::string root_class;
  std::string stack;
  std::string stack_class;
  std::size_t num_layers;
};

// Totals are what the checkpoints' indices state (total_size over two bytes), what the papers or the Hub publish, or
// for torchvision `num_params`. Tensors: per layer times layers, plus the rest; Llama has 9 in a layer, Qwen2 3 biases
// more, Qwen3 2 norms more, GPT-2 12, BERT 16, a ViT 12, and a mixture 3 per expert and a gate in place of the MLP's 3.
const std::vector<Total> kTotals = {
    {"llama2_7b.json", 6'738'415'616, 32 * 9 + 3, "LlamaForCausalLM", "model.layers", "LlamaDecoderLayer", 32},
    {"llama3_1_8b.json", 8'030'261'248, 32 * 9 + 3, "LlamaForCausalLM", "model.layers", "LlamaDecoderLayer", 32},
    {"llama3_1_70b.json", 70'553'706'496, 80 * 9 + 3, "LlamaForCausalLM", "model.layers", "LlamaDecoderLayer", 80},
    {"llama3_8b.json", 8'030'261'248, 32 * 9 + 3, "LlamaForCausalLM", "model.layers", "LlamaDecoderLayer", 32},
    {"llama3_70b.json", 70'553'706'496, 80 * 9 + 3, "LlamaForCausalLM", "model.layers", "LlamaDecoderLayer", 80},
    {"llama3_3_70b.json", 70'553'706'496, 80 * 9 + 3, "LlamaForCausalLM", "model.layers", "LlamaDecoderLayer", 80},
    {"llama3_1_405b.json", 405'853'388'800, 126 * 9 + 3, "LlamaForCausalLM", "model.layers", "LlamaDecoderLayer", 126},
    {"llama3_2_1b.json", 1'235'814'400, 16 * 9 + 2, "LlamaForCausalLM", "model.layers", "LlamaDecoderLayer", 16},
    {"llama3_2_3b.json", 3'212'749'824, 28 * 9 + 2, "LlamaForCausalLM", "model.layers", "LlamaDecoderLayer", 28},
    {"qwen2_5_0_5b.json", 494'032'768, 24 * 12 + 2, "Qwen2ForCausalLM", "model.layers", "Qwen2DecoderLayer", 24},
    {"qwen2_5_1_5b.json", 1'543'714'304, 28 * 12 + 2, "Qwen2ForCausalLM", "model.layers", "Qwen2DecoderLayer", 28},
    {"qwen2_5_3b.json", 3'085'938'688, 36 * 12 + 2, "Qwen2ForCausalLM", "model.layers", "Qwen2DecoderLayer", 36},
    {"qwen2_5_14b.json", 14'770'033'664, 48 * 12 + 3, "Qwen2ForCausalLM", "model.layers", "Qwen2DecoderLayer", 48},
    {"qwen2_5_32b.json", 32'763'876'352, 64 * 12 + 3, "Qwen2ForCausalLM", "model.layers", "Qwen2DecoderLayer", 64},
    {"qwen2_5_72b.json", 72'706'203'648, 80 * 12 + 3, "Qwen2ForCausalLM", "model.layers", "Qwen2DecoderLayer", 80},
    {"qwen2_5_7b.json", 7'615'616'512, 339, "Qwen2ForCausalLM", "model.layers", "Qwen2DecoderLayer", 28},
    {"qwen3_0_6b.json", 596'049'920, 310, "Qwen3ForCausalLM", "model.layers", "Qwen3DecoderLayer", 28},
    {"qwen3_1_7b.json", 1'720'574'976, 310, "Qwen3ForCausalLM", "model.layers", "Qwen3DecoderLayer", 28},
    {"qwen3_4b.json", 4'022'468'096, 36 * 11 + 2, "Qwen3ForCausalLM", "model.layers", "Qwen3DecoderLayer", 36},
    {"qwen3_8b.json", 8'190'735'360, 36 * 11 + 3, "Qwen3ForCausalLM", "model.layers", "Qwen3DecoderLayer", 36},
    {"qwen3_14b.json", 14'768'307'200, 40 * 11 + 3, "Qwen3ForCausalLM", "model.layers", "Qwen3DecoderLayer", 40},
    {"qwen3_32b.json", 32'762'123'264, 64 * 11 + 3, "Qwen3ForCausalLM", "model.layers", "Qwen3DecoderLayer", 64},
    {"qwen3_30b_a3b.json", 30'532'122'624, 48 * (9 + 3 * 128) + 3, "Qwen3MoeForCausalLM", "model.layers",
     "Qwen3MoeDecoderLayer", 48},
    {"mistral_7b_v0_1.json", 7'241'732'096, 291, "MistralForCausalLM", "model.layers", "MistralDecoderLayer", 32},
    {"mistral_7b_v0_3.json", 7'248'023'552, 291, "MistralForCausalLM", "model.layers", "MistralDecoderLayer", 32},
    {"mixtral_8x7b.json", 46'702'792'704, 32 * (7 + 3 * 8) + 3, "MixtralForCausalLM", "model.layers",
     "MixtralDecoderLayer", 32},
    {"gemma2_9b.json", 9'241'705'984, 42 * 11 + 2, "Gemma2ForCausalLM", "model.layers", "Gemma2DecoderLayer", 42},
    {"gpt2.json", 124'439'808, 12 * 12 + 4, "GPT2LMHeadModel", "transformer.h", "GPT2Block", 12},
    {"gpt2_medium.json", 354'823'168, 24 * 12 + 4, "GPT2LMHeadModel", "transformer.h", "GPT2Block", 24},
    {"gpt2_large.json", 774'030'080, 36 * 12 + 4, "GPT2LMHeadModel", "transformer.h", "GPT2Block", 36},
    {"gpt2_xl.json", 1'557'611'200, 48 * 12 + 4, "GPT2LMHeadModel", "transformer.h", "GPT2Block", 48},
    {"bert_large.json", 336'226'108, 398, "BertForPreTraining", "bert.encoder.layer", "BertLayer", 24},
    {"vit_b_16.json", 86'567'656, 152, "VisionTransformer", "encoder.layers", "EncoderBlock", 12},
    {"vit_b_32.json", 88'224'232, 152, "VisionTransformer", "encoder.layers", "EncoderBlock", 12},
    {"vit_l_16.json", 304'326'632, 296, "VisionTransformer", "encoder.layers", "EncoderBlock", 24},
    {"vit_l_32.json", 306'535'400, 296, "VisionTransformer", "encoder.layers", "EncoderBlock", 24},
    {"vit_h_14.json", 632'045'800, 392, "VisionTransformer", "encoder.layers", "EncoderBlock", 32},
    {"vit_mnist_779m.json", 779'298'826, 152, "VisionTransformer", "encoder.layers", "EncoderBlock", 12},
    {"mlp.json", 1'059'850, 4, "Sequential", "", "", 0},
};

TEST(ModelLibrary, EveryTotalIsThePublishedOne) {
  for (const Total& total : kTotals) {
    const Model model = model_of(total.file);
    EXPECT_EQ(num_parameters(model), total.parameters) << total.file;
    EXPECT_EQ(model.parameters.size(), total.tensors) << total.file;
    EXPECT_EQ(num_gradient_parameters(model), total.parameters) << total.file << ": all of it is trained";
    EXPECT_EQ(model.modules.front().class_name, total.root_class) << total.file;
    if (total.num_layers == 0) continue;
    ASSERT_EQ(model.stacks.size(), 1u) << total.file;
    EXPECT_EQ(model.stacks[0].name, total.stack) << total.file;
    EXPECT_EQ(model.stacks[0].class_name, total.stack_class) << total.file;
    EXPECT_EQ(model.stacks[0].calls.size(), total.num_layers) << total.file;
  }
}

TEST(ModelLibrary, ActiveParametersCountTheExpertsOfAToken) {
  EXPECT_EQ(num_active_parameters(model_of("mixtral_8x7b.json")), 12'879'925'248);
  EXPECT_EQ(num_active_parameters(model_of("qwen3_30b_a3b.json")), 3'353'032'704);
  EXPECT_EQ(num_active_parameters(model_of("llama3_1_8b.json")), 8'030'261'248);
}

/// What holds for every file of the library, whoever wrote it.
TEST(ModelLibrary, EveryModelIsSound) {
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("model_specs")) {
    if (entry.path().extension() != ".json") continue;
    ++num_files;
    const std::string file = entry.path().filename();
    const Model model = model_of(file);
    for (const Block& block : model.blocks) {
      for (const Error& error : check_block(block))
        ADD_FAILURE() << file << " " << block.kind << " " << to_string(error);
    }
    std::set<std::string> names;
    for (std::size_t i = 0; i < model.modules.size(); ++i) {
      const Module& module = model.modules[i];
      EXPECT_TRUE(names.insert(module.name).second) << file << ": two modules " << module.name;
      EXPECT_LT(module.parent, static_cast<int>(i)) << file << ": parents come first";
      EXPECT_NE(module.class_name, "Module") << file << ": " << module.name << " has no class";
    }
    names.clear();
    for (const Parameter& parameter : model.parameters) {
      EXPECT_TRUE(names.insert(parameter.name).second) << file << ": two parameters " << parameter.name;
    }
    EXPECT_FALSE(model.source.empty()) << file;
    EXPECT_GT(model.tokens_per_step, 0) << file;
    EXPECT_GT(num_gradient_parameters(model), 0) << file;
  }
  EXPECT_GE(num_files, 35);
}

TEST(ModelLibrary, ParametersComeInTheOrderOfNamedParameters) {
  const Model model = model_of("llama3_2_1b.json");
  const std::vector<std::string> expected = {
      "model.embed_tokens.weight",
      "model.layers.0.self_attn.q_proj.weight",
      "model.layers.0.self_attn.k_proj.weight",
      "model.layers.0.self_attn.v_proj.weight",
      "model.layers.0.self_attn.o_proj.weight",
      "model.layers.0.mlp.gate_proj.weight",
      "model.layers.0.mlp.up_proj.weight",
      "model.layers.0.mlp.down_proj.weight",
      "model.layers.0.input_layernorm.weight",
      "model.layers.0.post_attention_layernorm.weight",
      "model.layers.1.self_attn.q_proj.weight",
  };
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(model.parameters[i].name, expected[i]);
  EXPECT_EQ(model.parameters.back().name, "model.norm.weight");
  EXPECT_EQ(model.parameters[0].tied_names, std::vector<std::string>{"lm_head.weight"});
}

/// A parameter of each family, with its shape.
TEST(ModelLibrary, NamesAndShapesAreThoseOfTheCheckpoints) {
  struct Case {
    std::string file;
    std::string name;
    Shape shape;
  };
  const std::vector<Case> cases = {
      {"llama3_1_405b.json", "model.layers.125.self_attn.k_proj.weight", {1024, 16384}},
      {"llama3_1_405b.json", "lm_head.weight", {128256, 16384}},
      {"qwen2_5_7b.json", "model.layers.27.self_attn.q_proj.bias", {3584}},
      {"qwen3_0_6b.json", "model.layers.3.self_attn.q_norm.weight", {128}},
      {"qwen3_0_6b.json", "model.layers.3.self_attn.q_proj.weight", {2048, 1024}},
      {"qwen3_30b_a3b.json", "model.layers.47.mlp.experts.127.down_proj.weight", {2048, 768}},
      {"qwen3_30b_a3b.json", "model.layers.0.mlp.gate.weight", {128, 2048}},
      {"mixtral_8x7b.json", "model.layers.31.block_sparse_moe.experts.7.w2.weight", {4096, 14336}},
      {"gemma2_9b.json", "model.layers.0.pre_feedforward_layernorm.weight", {3584}},
      {"gemma2_9b.json", "model.layers.0.self_attn.o_proj.weight", {3584, 4096}},
      {"gpt2_xl.json", "transformer.h.47.attn.c_attn.weight", {1600, 4800}},
      {"gpt2_xl.json", "transformer.wpe.weight", {1024, 1600}},
      {"bert_large.json", "bert.encoder.layer.23.attention.output.LayerNorm.weight", {1024}},
      {"bert_large.json", "bert.embeddings.token_type_embeddings.weight", {2, 1024}},
      {"bert_large.json", "cls.seq_relationship.weight", {2, 1024}},
      {"vit_h_14.json", "encoder.layers.encoder_layer_31.self_attention.in_proj_weight", {3840, 1280}},
      {"vit_h_14.json", "encoder.pos_embedding", {1, 257, 1280}},
      {"vit_h_14.json", "class_token", {1, 1, 1280}},
      {"vit_h_14.json", "heads.head.weight", {1000, 1280}},
      {"mlp.json", "2.weight", {10, 1024}},
  };
  for (const Case& c : cases) {
    const Model model = model_of(c.file);
    const Parameter* parameter = find_parameter(model, c.name);
    ASSERT_NE(parameter, nullptr) << c.file << " has no " << c.name;
    EXPECT_EQ(parameter->shape, c.shape) << c.name;
  }
}

// The base model with its pooler, as the Hub counts it, is what starts with "bert."; the tied decoder is not counted.
TEST(ModelLibrary, TheBaseOfBertHasItsOwnTotal) {
  EXPECT_EQ(elements_below(model_of("bert_large.json"), "bert."), 335'141'888);
}

TEST(ModelLibrary, RotaryFrequenciesAreNonPersistentBuffers) {
  const Model model = model_of("llama3_1_8b.json");
  ASSERT_EQ(model.buffers.size(), 1u);
  EXPECT_EQ(model.buffers[0], (Buffer{"model.rotary_emb.inv_freq", {64}, Dtype::Float32, false}));
}

TEST(ModelLibrary, LayersOfOneKindShareOneBlock) {
  const Model llama = model_of("llama3_1_405b.json");
  std::set<int> blocks;
  for (const int call : llama.stacks[0].calls) blocks.insert(llama.calls[call].block);
  EXPECT_EQ(blocks.size(), 1u);

  // Gemma-2 alternates: layer 0 looks back 4096 tokens, layer 1 at all of them.
  const Model gemma = model_of("gemma2_9b.json");
  EXPECT_EQ(op_of(gemma, "model.layers.0.self_attn", OpKind::Attention).attributes.window, 4096);
  EXPECT_EQ(op_of(gemma, "model.layers.1.self_attn", OpKind::Attention).attributes.window, 0);
  EXPECT_EQ(op_of(gemma, "model.layers.41.self_attn", OpKind::Attention).attributes.softcap, 50);
  blocks.clear();
  for (const int call : gemma.stacks[0].calls) blocks.insert(gemma.calls[call].block);
  EXPECT_EQ(blocks.size(), 2u);
}

TEST(ModelLibrary, ALayerRunsItsOpsInTheOrderOfItsForward) {
  const Model model = model_of("qwen3_1_7b.json", Workload{.dimensions = {{"batch", 2}, {"seq", 512}}});
  const auto kinds_of = [&](const std::string& module) {
    std::vector<std::string> kinds;
    for (const PlacedOp& op : ops_of(model, module)) kinds.emplace_back(name_of(op.kind));
    return kinds;
  };
  EXPECT_EQ(kinds_of("model.layers.5.self_attn"),
            (std::vector<std::string>{"reshape", "reshape", "reshape", "rotary", "attention"}));
  EXPECT_EQ(kinds_of("model.layers.5.mlp"), std::vector<std::string>{"mul"});
  EXPECT_EQ(kinds_of("model.layers.5"), (std::vector<std::string>{"add", "add"}));
  const PlacedOp attention = op_of(model, "model.layers.5.self_attn", OpKind::Attention);
  EXPECT_EQ(attention.inputs, (std::vector<Shape>{{2, 512, 16, 128}, {2, 512, 8, 128}, {2, 512, 8, 128}}));
  EXPECT_TRUE(attention.attributes.causal);
  EXPECT_EQ(op_of(model, "", OpKind::CrossEntropy).inputs, (std::vector<Shape>{{2, 512, 151936}, {2, 512}}));
}

TEST(ModelLibrary, OnlyModulesWithACalledForwardCanBeUnits) {
  const Model mixtral = model_of("mixtral_8x7b.json");
  EXPECT_TRUE(find_module(mixtral, "model")->called);
  EXPECT_FALSE(find_module(mixtral, "model.layers")->called);
  EXPECT_EQ(find_module(mixtral, "model.layers")->class_name, "ModuleList");
  EXPECT_TRUE(find_module(mixtral, "model.layers.0.block_sparse_moe.experts.0")->called);
  // nn.MultiheadAttention uses its output projection's weight without calling it.
  const Model vit = model_of("vit_b_16.json");
  EXPECT_FALSE(find_module(vit, "encoder.layers.encoder_layer_0.self_attention.out_proj")->called);
}

TEST(ModelLibrary, AnotherImageSizeNeedsOtherPositions) {
  // 518 / 14 = 37, 37 * 37 + 1 = 1370 positions: 1,113 more of width 1280 than at 224.
  const Model model = model_of("vit_h_14.json", Workload{.dimensions = {{"image_size", 518}}});
  EXPECT_EQ(num_parameters(model), 633'470'440);
  EXPECT_EQ(num_parameters(model), 632'045'800 + 1'113 * 1280);
}

}  // namespace
}  // namespace fsdp
