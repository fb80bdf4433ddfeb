// Which plans may have checkpoints inside of those of blocks.

#include "core/plan/nested_checkpoints.h"

#include <gtest/gtest.h>

#include <string>

#include "core/plan/plan.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

std::string misfit(const Plan& plan, const Model& model) {
  const auto error = nested_checkpoints_misfit(plan, index_of(model));
  return error ? error->what : "";
}

Plan nested_plan(std::string module) {
  Plan plan;
  plan.checkpointing.entries = {{std::move(module), CheckpointMode::Nested}};
  return plan;
}

TEST(NestedCheckpoints, AreInBlocksOfTransformers) {
  const Model llama = model_of("llama3_2_1b.json");
  EXPECT_EQ(misfit(nested_plan("model.layers.1"), llama), "");
  const Model gpt2 = model_of("gpt2.json");
  EXPECT_EQ(misfit(nested_plan("transformer.h.1"), gpt2),
            "The modules of transformer.h.1 are not known to be called as those of a block of transformers.");
}

TEST(NestedCheckpoints, ArePredictedUnderFsdp2Alone) {
  const Model llama = model_of("llama3_2_1b.json");
  Plan plan = nested_plan("model.layers.1");
  plan.runtime.framework = Framework::Ddp;
  EXPECT_EQ(misfit(plan, llama), "Nested checkpoints are not predicted for DDP.");
  plan = nested_plan("model.layers.1");
  plan.checkpointing.early_stop = false;
  EXPECT_EQ(misfit(plan, llama), "Nested checkpoints that do not stop early are not predicted.");
  plan = nested_plan("model.layers.1");
  plan.mixed_precision.autocast = Dtype::BFloat16;
  EXPECT_EQ(misfit(plan, llama), "Nested checkpoints under autocast are not predicted.");
  plan = nested_plan("model.layers.1");
  plan.checkpointing.offload_inputs = true;
  EXPECT_EQ(misfit(plan, llama), "Nested checkpoints whose inputs are on the host are not predicted.");
  plan.checkpointing.entries.front().mode = CheckpointMode::Full;
  EXPECT_EQ(misfit(plan, llama), "") << "there are none";
}

}  // namespace
}  // namespace fsdp
