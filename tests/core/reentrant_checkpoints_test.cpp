// Which plans may have reentrant checkpoints.

#include "core/plan/reentrant_checkpoints.h"

#include <gtest/gtest.h>

#include <string>

#include "core/plan/plan.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

std::string reentrant_misfit(const Plan& plan, const Model& model) {
  const auto error = reentrant_checkpoints_misfit(plan, index_of(model));
  return error ? error->what : "";
}

Plan reentrant_plan() {
  Plan plan;
  plan.units = {{.modules = {"model.layers.0"}}, {.modules = {"model.layers.1"}}, {.modules = {""}}};
  plan.checkpointing.entries = {{"model.layers.0", CheckpointMode::Reentrant},
                                {"model.layers.1", CheckpointMode::Reentrant}};
  return plan;
}

TEST(ReentrantCheckpoints, ArePredictedForPyTorchsOwnFrameworks) {
  const Model llama = model_of("llama3_2_1b.json");
  for (const Framework framework : {Framework::Fsdp2, Framework::Fsdp1, Framework::Ddp}) {
    Plan plan = reentrant_plan();
    plan.runtime.framework = framework;
    EXPECT_EQ(reentrant_misfit(plan, llama), "");
  }
  Plan plan = reentrant_plan();
  plan.runtime.framework = Framework::Zero3;
  EXPECT_EQ(reentrant_misfit(plan, llama), "Reentrant checkpoints are not predicted for ZeRO-3.");
}

TEST(ReentrantCheckpoints, AreRefusedBesideWhatWasNotCompared) {
  const Model llama = model_of("llama3_2_1b.json");
  Plan plan = reentrant_plan();
  plan.checkpointing.offload_inputs = true;
  EXPECT_EQ(reentrant_misfit(plan, llama),
            "Reentrant checkpoints are not predicted beside inputs of blocks in host memory.");
  plan = reentrant_plan();
  plan.forward_prefetch = 1;
  EXPECT_EQ(reentrant_misfit(plan, llama), "Reentrant checkpoints are not predicted beside prefetches of the forward.");
  plan = reentrant_plan();
  plan.units = {{.modules = {"model.layers.0", "model.layers.1"}}, {.modules = {""}}};
  EXPECT_EQ(reentrant_misfit(plan, llama),
            "model.layers.0 shares a unit with other modules, in which a reentrant checkpoint is not predicted.");
  plan.checkpointing.entries.clear();
  EXPECT_EQ(reentrant_misfit(plan, llama), "") << "there are none";
}

// torch.utils.checkpoint: "None of the inputs have requires_grad=True. Gradients will be None".
TEST(ReentrantCheckpoints, NeedAGradientOfTheirInput) {
  Model llama = model_of("llama3_2_1b.json");
  for (Parameter& parameter : llama.parameters) {
    if (parameter.name == "model.embed_tokens.weight") parameter.trainable = false;
  }
  derive_gradient_flow(llama);
  EXPECT_EQ(reentrant_misfit(reentrant_plan(), llama),
            "The input of model.layers.0 has no gradient, so that a reentrant checkpoint trains nothing in it.");
}

}  // namespace
}  // namespace fsdp
