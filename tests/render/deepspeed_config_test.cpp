// A plan of ZeRO as ds_config.json, and what the file has no room for.

#include <gtest/gtest.h>

#include "planner/space/checkpointed_blocks.h"
#include "render/trainer_config.h"
#include "tests/support/small_models.h"

namespace fsdp::render {
namespace {

/// A small transformer on 4 GPUs, by what DeepSpeed does with bf16.enabled and stage 2.
class DeepSpeedConfig : public testing::Test {
 protected:
  DeepSpeedConfig() {
    Plan& plan = said_.plan;
    plan.model = "small";
    plan.dimensions = model_.dimensions;
    plan.runtime.framework = Framework::Zero2;
    plan.mesh = {1, 4};
    plan.units = {{{""}, {}}};
    plan.parameter_dtype = Dtype::Float32;
    plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::BFloat16};
    plan.zero = {.reduce_bucket_size = 4'000'000, .overlap_comm = true};
    plan.accumulation = 3;
    plan.optimizer.clip_grad_norm = 0.5;
  }

  TrainerConfig config() const { return {release_, said_, model_, cluster_, "plan.json"}; }
  std::string text() const { return to_text(config()); }
  std::vector<std::string> notes() const { return notes_beside(config()); }
  /// The note that begins so; empty: none does.
  std::string note(const std::string& subject) const {
    for (const std::string& each : notes()) {
      if (each.starts_with(subject)) return each;
    }
    return {};
  }

  planner::TrainerRelease release_ = planner::Trainer::DeepSpeed;
  planner::SaidPlan said_;
  Model model_ = *build_model(planner::small_transformer({.layers = 4}));
  Cluster cluster_ = planner::small_cluster(4, 1, Bytes(8LL << 30));
};

TEST_F(DeepSpeedConfig, HasTheKeysOfDeepSpeed) {
  EXPECT_EQ(text(), R"({
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 3,
  "gradient_clipping": 0.5,
  "bf16": {
    "enabled": true
  },
  "zero_optimization": {
    "stage": 2,
    "reduce_bucket_size": 4000000,
    "overlap_comm": true,
    "contiguous_gradients": true,
    "reduce_scatter": true,
    "use_multi_rank_bucket_allreduce": true,
    "round_robin_gradients": false
  },
  "zero_allow_untested_optimizer": true
}
)");
}

TEST_F(DeepSpeedConfig, WritesDisabledClippingAndPrecision) {
  said_.plan.runtime.framework = Framework::Zero1;
  said_.plan.mixed_precision = {};
  said_.plan.optimizer.clip_grad_norm.reset();
  const std::string written = text();
  // Left out, it is 1.
  EXPECT_NE(written.find(R"("gradient_clipping": 0)"), std::string::npos) << written;
  EXPECT_NE(written.find(R"("enabled": false)"), std::string::npos) << written;
  EXPECT_NE(written.find(R"("stage": 1,)"), std::string::npos) << written;
  EXPECT_EQ(note("model: parameters in float32").empty(), false);
}

TEST_F(DeepSpeedConfig, WritesTheLossScaling) {
  said_.plan.mixed_precision = {.param_dtype = Dtype::Float16, .reduce_dtype = Dtype::Float16};
  said_.plan.zero.fp16.hysteresis = 7;
  const std::string written = text();
  EXPECT_NE(written.find("\"bf16\": {\n    \"enabled\": false\n  },\n  \"fp16\": {\n    \"enabled\": true,"),
            std::string::npos)
      << written;
  EXPECT_NE(written.find(R"("hysteresis": 7,)"), std::string::npos) << written;
}

TEST_F(DeepSpeedConfig, WritesThatBf16HasNoMasterWeights) {
  said_.plan.parameter_dtype = Dtype::BFloat16;
  said_.plan.mixed_precision = {};
  EXPECT_NE(text().find(R"("bf16_master_weights_and_grads": true,)"), std::string::npos) << text();
  EXPECT_NE(text().find(R"("bf16_optimizer_states": true)"), std::string::npos) << text();
  said_.plan.cpu_offload = true;
  EXPECT_NE(note("optimizer: ").find("fp32_optimizer_states=False"), std::string::npos);
}

TEST_F(DeepSpeedConfig, LeavesTheOptimizerToTheScript) {
  EXPECT_EQ(text().find("\"optimizer\""), std::string::npos);
  EXPECT_EQ(note("optimizer: "),
            "optimizer: torch.optim.AdamW(model.parameters(), lr=..., weight_decay=0.01), handed to "
            "deepspeed.initialize with the model");
  said_.plan.optimizer.implementation = OptimizerImplementation::Fused;
  EXPECT_NE(note("optimizer: ").find("fused=True"), std::string::npos);
}

TEST_F(DeepSpeedConfig, NotesWhatTheScriptMustDo) {
  said_.plan.runtime.allocator_settings = "expandable_segments:True";
  said_.plan.frozen = {"model.embed_tokens.*"};
  planner::checkpoint(said_.plan, model_, {CheckpointMode::Full, {}});
  EXPECT_NE(
      note("Predicted: ")
          .find("Start it with: PYTORCH_ALLOC_CONF=expandable_segments:True torchrun --nproc-per-node 4 train.py"),
      std::string::npos);
  EXPECT_EQ(note("model: "),
            "model: parameters in bfloat16; predicted for a model that is made on the meta device, and filled on the "
            "GPU before DeepSpeed takes it");
  EXPECT_EQ(note("frozen: "), "frozen: requires_grad_(False) where model.embed_tokens.* matches");
  EXPECT_EQ(note("checkpointing: "),
            "checkpointing: torch.utils.checkpoint with use_reentrant=False around model.layers.{0..3}");
  EXPECT_EQ(note("micro-batch: "), "micro-batch: batch 2, seq 64 on each GPU");
  EXPECT_EQ(note("loop: "),
            "loop: engine.backward(loss) and engine.step() for each of 3 micro-batches; the engine divides the loss");
}

TEST_F(DeepSpeedConfig, NamesOpsThatSelectiveCheckpointingSaves) {
  planner::checkpoint(said_.plan, model_, {CheckpointMode::Selective, {}});
  EXPECT_EQ(note("checkpointing: "),
            "checkpointing: torch.utils.checkpoint with use_reentrant=False around model.layers.{0..3}, with a policy "
            "that keeps the outputs of attention, linear (of every second linear)");
}

TEST_F(DeepSpeedConfig, WritesCpuOffload) {
  said_.plan.runtime.framework = Framework::Zero3;
  said_.plan.cpu_offload = true;
  EXPECT_NE(text().find(R"("offload_optimizer": {"device": "cpu", "pin_memory": true})"), std::string::npos) << text();
  EXPECT_EQ(text().find("offload_param"), std::string::npos);
  EXPECT_EQ(note("optimizer: "),
            "optimizer: deepspeed.ops.adam.DeepSpeedCPUAdam(model.parameters(), lr=..., weight_decay=0.01, "
            "adamw_mode=True), handed to deepspeed.initialize with the model");
  said_.plan.zero.offload_param = true;
  said_.plan.zero.pin_memory = false;
  EXPECT_NE(text().find(R"("offload_param": {"device": "cpu", "pin_memory": false})"), std::string::npos) << text();
  // DeepSpeed refuses PyTorch's optimizers there unless the file says so.
  EXPECT_EQ(text().find("zero_force_ds_cpu_optimizer"), std::string::npos);
  said_.plan.optimizer = {.kind = OptimizerKind::Sgd, .implementation = OptimizerImplementation::Fused};
  EXPECT_NE(text().find(R"("zero_force_ds_cpu_optimizer": false)"), std::string::npos) << text();
  EXPECT_EQ(note("optimizer: ").find("fused"), std::string::npos);
}

TEST_F(DeepSpeedConfig, MicroBatchIsOneWithoutABatchDimension) {
  std::erase_if(model_.dimensions, [](const Dimension& each) { return each.name == "batch"; });
  EXPECT_NE(text().find(R"("train_micro_batch_size_per_gpu": 1,)"), std::string::npos);
}

TEST_F(DeepSpeedConfig, RefusesPlansOfOtherFrameworks) {
  EXPECT_EQ(planner::unsaid(planner::Trainer::DeepSpeed, said_.plan, model_), Errors{});
  said_.plan.runtime.framework = Framework::Ddp;
  EXPECT_EQ(planner::unsaid(planner::Trainer::DeepSpeed, said_.plan, model_),
            (Errors{{"/runtime/name", "The plan is for pytorch-ddp, but this configuration is only for DeepSpeed.",
                     "Plan with --runtime zero1, zero2 or zero3."}}));
}

TEST_F(DeepSpeedConfig, HasItsNotesInNoOtherFile) {
  release_ = planner::Trainer::Accelerate;
  EXPECT_EQ(notes(), std::vector<std::string>{});
}

}  // namespace
}  // namespace fsdp::render
