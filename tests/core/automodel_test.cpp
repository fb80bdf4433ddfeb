// The flavors of NeMo Automodel: what its own classes have, and which plans of it are predicted.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/plan/automodel.h"
#include "core/plan/plan.h"
#include "core/plan/runtime.h"
#include "core/spec/model_spec.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

struct OwnOps {
  std::int64_t norms = 0, wide_rotary = 0, tables = 0;

  bool operator==(const OwnOps&) const = default;
};

OwnOps own_ops(const Model& model) {
  const auto count = [&](auto&& is_own) {
    std::int64_t number = 0;
    for (const Call& call : model.calls) {
      const auto& ops = model.blocks[static_cast<std::size_t>(call.block)].ops;
      number += std::count_if(ops.begin(), ops.end(), is_own);
    }
    return number;
  };
  return {.norms = count([](const Op& op) { return op.attributes.one_op; }),
          .wide_rotary = count([](const Op& op) { return op.kind == OpKind::Rotary && op.attributes.wide; }),
          .tables = count([](const Op& op) { return op.attributes.of_positions; })};
}

Plan plan_of_automodel() {
  Plan plan;
  plan.runtime = *runtime_of_flavor("automodel");
  plan.mesh = {1, 8};
  plan.parameter_dtype = Dtype::BFloat16;
  return plan;
}

// Llama 3.2 1B has 16 layers with two norms each, and the last norm. Qwen3 keeps transformers' norms, Mistral all.
TEST(Automodel, HasClassesOfItsOwn) {
  const Workload own = {.automodel_decoders = true};
  EXPECT_EQ(own_ops(model_of("llama3_2_1b.json", own)), (OwnOps{33, 16, 1}));
  EXPECT_EQ(own_ops(model_of("qwen2_5_7b.json", own)), (OwnOps{57, 28, 1}));
  EXPECT_EQ(own_ops(model_of("qwen3_0_6b.json", own)), (OwnOps{0, 28, 1}));
  EXPECT_EQ(own_ops(model_of("mistral_7b_v0_1.json", own)), OwnOps{});
  EXPECT_EQ(own_ops(model_of("llama3_2_1b.json")), OwnOps{});
}

// cos and sin of each position in fp32, of heads of 128.
TEST(Automodel, KeepsTablesOfAllPositions) {
  const Model model = model_of("qwen3_0_6b.json", {.dimensions = {{"seq", 1024}}, .automodel_decoders = true});
  std::int64_t tables = 0;
  for (const Buffer& buffer : model.buffers) {
    if (!buffer.name.ends_with("_cache")) continue;
    ++tables;
    EXPECT_EQ(buffer.shape, (Shape{1024, 128})) << buffer.name;
  }
  EXPECT_EQ(tables, 2);
}

// The layer keeps its name. "*_proj" is any layer whose name ends so.
TEST(Automodel, AdaptsALayerByOneOp) {
  const Model model = model_of(
      "llama3_2_1b.json", {.lora = LoraOptions{.r = 8, .alpha = 32, .targets = {"*_proj"}}, .lora_in_one_op = true});
  std::int64_t adapters = 0;
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[static_cast<std::size_t>(call.block)].ops) adapters += op.kind == OpKind::LowRank;
  }
  EXPECT_EQ(adapters, 16 * 7);
  const auto has = [&](const std::string& name) {
    return std::any_of(model.parameters.begin(), model.parameters.end(),
                       [&](const Parameter& each) { return each.name == name; });
  };
  EXPECT_TRUE(has("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_TRUE(has("model.layers.0.self_attn.q_proj.lora_A.weight"));
  EXPECT_FALSE(has("model.layers.0.self_attn.q_proj.base_layer.weight"));
}

TEST(Automodel, PlansThatWereNotComparedAreRefused) {
  const Model qwen = model_of("qwen3_0_6b.json");
  const auto error_of = [](const Plan& plan, const Model& model) {
    const auto misfit = automodel_misfit(plan, model);
    return misfit ? misfit->what : "";
  };
  Plan plan = plan_of_automodel();
  EXPECT_EQ(error_of(plan, qwen), "");
  EXPECT_NE(error_of(plan, model_of("qwen3_30b_a3b.json")).find("Qwen3MoeForCausalLM by a class of its own"),
            std::string::npos);
  plan.checkpointing.entries = {{.module = "model.layers.0"}};
  EXPECT_NE(error_of(plan, qwen).find("around each module of a block"), std::string::npos);
  EXPECT_EQ(error_of(plan, model_of("mistral_7b_v0_1.json")), "") << "transformers' class";
  plan.checkpointing.entries.front().mode = CheckpointMode::Selective;
  EXPECT_NE(error_of(plan, qwen).find("around each module of a block"), std::string::npos);
  EXPECT_NE(error_of(plan, model_of("mistral_7b_v0_1.json")).find("Selective checkpoints"), std::string::npos);
  plan.checkpointing.entries.front().mode = CheckpointMode::Full;
  plan.runtime = *runtime_of_flavor("automodel-hf");
  EXPECT_EQ(error_of(plan, qwen), "") << "transformers' class";
  plan = plan_of_automodel();
  plan.mesh = {1, 1};
  EXPECT_NE(error_of(plan, qwen).find("does not shard a model on one GPU"), std::string::npos);
  plan.runtime.framework = Framework::Ddp;
  EXPECT_EQ(error_of(plan, qwen), "");
  plan.accumulation = 2;
  EXPECT_NE(error_of(plan, qwen).find("Micro-batches on one GPU"), std::string::npos);
  plan.accumulation = 1;
  plan.mesh = {8, 1};
  EXPECT_NE(error_of(plan, qwen).find("under FSDP2"), std::string::npos);
  plan = plan_of_automodel();
  plan.packing = Packing{PackedAttention::FlashAttn, "256"};
  EXPECT_NE(error_of(plan, qwen).find("Packed rows"), std::string::npos);
  EXPECT_NE(error_of(plan_of_automodel(), model_of("gpt2.json")).find("GPT2LMHeadModel was not compared"),
            std::string::npos);
  plan = plan_of_automodel();
  plan.liger = LigerKernels{};
  EXPECT_NE(error_of(plan, qwen).find("Liger's kernels"), std::string::npos);
  Model half = qwen;
  half.parameters.front().dtype = Dtype::Float32;
  EXPECT_NE(error_of(plan_of_automodel(), half).find("The checkpoint is in float32"), std::string::npos);
}

TEST(Automodel, ComesWithTheHabitsOfItsRecipe) {
  for (const char* flavor : {"automodel", "automodel-hf"}) {
    EXPECT_EQ(habits_of_flavor(flavor), (FlavorHabits{.cast_forward_inputs = false, .decays_weights = false}));
    EXPECT_TRUE(is_of_automodel(flavor));
    EXPECT_TRUE(runtime_of_flavor(flavor)->implementations.loss_after_root);
  }
  EXPECT_FALSE(is_of_automodel("transformers"));
  EXPECT_TRUE(std::is_sorted(unknown_classes_of_automodel().begin(), unknown_classes_of_automodel().end()));
}

}  // namespace
}  // namespace fsdp
