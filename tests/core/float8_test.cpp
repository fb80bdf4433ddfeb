// Float8 layers of torchao: the text of the option, the layers that are converted, what FSDP2 gathers of them, and what
// is refused.

#include "core/plan/float8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/frameworks/layout.h"
#include "core/plan/plan.h"
#include "core/spec/model_spec.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

const Float8Training kTensorwise;
const Float8Training kGathered = {.all_gather = true};

std::string mistakes_in_recipe(std::string_view text) {
  const auto read = parse_float8(text, "--fp8");
  if (read) return "it is read";
  std::string all;
  for (const Error& error : read.error()) all += to_string(error) + "\n";
  return all;
}

std::int64_t converted(const std::string& spec, const Float8Training& float8) {
  const Model model = model_of(spec, {.float8 = float8});
  std::int64_t count = 0;
  for (const Call& call : model.calls) {
    const std::vector<Op>& ops = model.blocks[call.block].ops;
    count += std::count_if(ops.begin(), ops.end(), [](const Op& op) { return op.attributes.float8.has_value(); });
  }
  return count;
}

std::string not_built(const std::string& spec, const Float8Training& float8) {
  const auto model = build_model(*read_model_spec("model_specs/" + spec), {.float8 = float8});
  return model ? "it is built" : to_string(model.error().front());
}

/// One unit for each of the blocks, and the root, in bf16 with fp32 weights.
Plan plan_of_blocks(const Model& model, const Float8Training& float8, std::int64_t shard) {
  Plan plan;
  plan.float8 = float8;
  plan.mesh = Mesh(1, shard);
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  for (const Stack& stack : model.stacks) {
    for (const int call : stack.calls)
      plan.units.push_back({.modules = {model.modules[model.calls[call].module].name}});
  }
  plan.units.push_back({.modules = {""}});
  return plan;
}

std::string refused_under(const Plan& plan, const Model& model) {
  const auto error = float8_misfit(plan, model);
  return error ? error->what : "it is predicted";
}

TEST(Float8Layers, TextIsReadAsItIsWritten) {
  EXPECT_EQ(parse_float8("tensorwise", "--fp8"), kTensorwise);
  EXPECT_EQ(parse_float8("precompute,tensorwise,all_gather", "--fp8"),
            (Float8Training{.all_gather = true, .precompute = true}));
  EXPECT_EQ(parse_float8("rowwise,skip=output+auto_filter_small_kn", "--fp8"),
            (Float8Training{.recipe = Float8Recipe::Rowwise, .skips_small = true, .skip = {"output"}}));
  for (const std::string_view text :
       {"tensorwise", "rowwise", "rowwise_with_gw_hp", "tensorwise,all_gather,precompute", "rowwise,skip=wk+wv",
        "tensorwise,skip=auto_filter_small_kn", "tensorwise,skip=none+auto_filter_small_kn"}) {
    EXPECT_EQ(to_text(*parse_float8(text, "--fp8")), text);
  }
  EXPECT_EQ(sentence_of(kGathered), "float8 linear layers (tensorwise, gathered in float8)");
}

TEST(Float8Layers, PythonConvertsTheSameLayers) {
  EXPECT_EQ(
      python_of({.recipe = Float8Recipe::Rowwise}, "lm_head"),
      "torchao.float8.convert_to_float8_training(model, "
      "config=torchao.float8.Float8LinearConfig.from_recipe_name(\"rowwise\"), module_filter_fn=lambda module, name: "
      "module.in_features % 16 == 0 and module.out_features % 16 == 0 and \"lm_head\" not in name)");
  EXPECT_NE(python_of(kGathered, "").find("Float8LinearConfig(enable_fsdp_float8_all_gather=True)"), std::string::npos);
}

TEST(Float8Layers, MistakesInTheTextAreNamed) {
  EXPECT_EQ(mistakes_in_recipe("rowise"), "--fp8: Unknown word \"rowise\". Did you mean \"rowwise\"?\n");
  EXPECT_NE(mistakes_in_recipe("all_gather").find("\"all_gather\" names no recipe."), std::string::npos);
  EXPECT_NE(mistakes_in_recipe("tensorwise,rowwise").find("names two recipes."), std::string::npos);
  EXPECT_NE(mistakes_in_recipe("rowwise,all_gather").find("only supports tensorwise scaling, not rowwise."),
            std::string::npos);
  EXPECT_NE(mistakes_in_recipe("tensorwise,precompute").find("Scales are computed ahead for weights that are gathered"),
            std::string::npos);
  EXPECT_NE(mistakes_in_recipe("rowwise_with_gw_hp,skip=auto_filter_small_kn").find("torchao has no"),
            std::string::npos);
  EXPECT_NE(mistakes_in_recipe("mxfp8").find("MXFP8 is not predicted"), std::string::npos);
  EXPECT_NE(mistakes_in_recipe("tensorwise,skip=none+wk").find("\"none\" beside names"), std::string::npos);
  EXPECT_NE(mistakes_in_recipe("tensorwise,skip=wk+").find("has an empty name"), std::string::npos);
}

// Llama 3.1 8B has 32 blocks of seven layers; k_proj and v_proj are [1024, 4096], which torchao's filter calls small.
TEST(Float8Layers, AreThoseThatTheFilterTakes) {
  EXPECT_EQ(converted("llama3_1_8b.json", kTensorwise), 32 * 7);
  EXPECT_EQ(converted("llama3_1_8b.json", {.skips_small = true}), 32 * 5);
  EXPECT_EQ(converted("llama3_1_8b.json", {.skip = {"q_proj", "gate_proj"}}), 32 * 5 + 1) << "and the head";
  EXPECT_EQ(converted("llama3_1_8b.json", {.skip = {"lm_head"}}), 32 * 7);
  EXPECT_EQ(converted("llama3_1_8b.json", {.skips_none = true}), 32 * 7 + 1);
  EXPECT_NE(not_built("gpt2.json", kTensorwise).find("GPT-2 has no linear layer that is converted."), std::string::npos)
      << "Conv1D is another class";
  EXPECT_NE(not_built("llama3_1_8b.json", {.skip = {"wq"}}).find("No linear layer of Llama-3.1-8B has \"wq\""),
            std::string::npos);
  EXPECT_NE(not_built("llama3_1_8b.json", {.skip = {"layers.3."}}).find("in 31 of 32 blocks"), std::string::npos);
}

// A block: q and o 4096 x 4096, k and v 1024 x 4096, three of 14336 x 4096, a byte each, and two norms of 4096 in bf16.
TEST(Float8Layers, AreGatheredAsBytes) {
  const Model model = model_of("llama3_1_8b.json", {.float8 = kGathered});
  const ModelIndex index = index_of(model);
  const auto layout = make_layout(index, plan_of_blocks(model, kGathered, 8), 0);
  ASSERT_TRUE(layout.has_value());
  const ShardedUnit& block = layout->units.front();
  EXPECT_EQ(8 * block.gather_shard_bytes.count(), 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336) + 2 * 2 * 4096);
  EXPECT_TRUE(block.mixed_gather);
  EXPECT_EQ(block.num_in_float8(), 7);
  EXPECT_EQ(layout->units.back().num_in_float8(), 0) << "embedding, norm and head";
}

TEST(Float8Layers, WhatIsNotPredictedIsRefused) {
  const Model model = model_of("llama3_1_8b.json", {.float8 = kGathered});
  Plan plan = plan_of_blocks(model, kGathered, 8);
  EXPECT_EQ(refused_under(plan, model), "it is predicted");
  plan.mesh = Mesh(1, 6);
  EXPECT_NE(refused_under(plan, model).find("6 GPUs do not divide the 4096 rows of \"model.layers.0.self_attn.q_proj"),
            std::string::npos);
  plan.mesh = Mesh(1, 1);
  EXPECT_EQ(refused_under(plan, model), "Over one GPU nothing is gathered in float8.");
  plan = plan_of_blocks(model, kGathered, 8);
  plan.units.front().reshard_after_forward = {ReshardAfterForward::Kind::Smaller, 4};
  EXPECT_NE(refused_under(plan, model).find("no integer reshard_after_forward"), std::string::npos);
  plan = plan_of_blocks(model, kGathered, 8);
  plan.runtime.framework = Framework::Fsdp1;
  EXPECT_EQ(refused_under(plan, model), "Float8 layers are not predicted under FSDP1.");
  plan.runtime.framework = Framework::Ddp;
  EXPECT_EQ(refused_under(plan, model), "Weights are gathered in float8 by FSDP2 alone.");
  plan.float8 = kTensorwise;
  EXPECT_EQ(refused_under(plan, model), "it is predicted");
  plan.lora = LoraOptions{.r = 16};
  EXPECT_EQ(refused_under(plan, model), "Float8 layers are not predicted beside adapters, whose base is frozen.");
  const Model frozen = model_of("llama3_1_8b.json", {.frozen = {"model.layers.0.*"}, .float8 = kTensorwise});
  plan.lora.reset();
  EXPECT_NE(refused_under(plan, frozen).find("frozen float8 layers are not predicted"), std::string::npos);
}

TEST(Float8Layers, AreRefusedBesideEveryKindOfExperts) {
  const Model model = model_of("llama3_1_8b.json", {.float8 = kTensorwise});
  const Plan plan = plan_of_blocks(model, kTensorwise, 8);
  for (const OpKind kind : {OpKind::Router, OpKind::Experts, OpKind::GroupedExperts, OpKind::DenseExperts}) {
    Model mixture = model;
    mixture.blocks.back().ops.push_back({.kind = kind});
    EXPECT_EQ(refused_under(plan, mixture), "Float8 layers are not predicted in a mixture of experts.")
        << name_of(kind);
  }
}

}  // namespace
}  // namespace fsdp
