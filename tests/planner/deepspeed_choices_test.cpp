// A request with a configuration of DeepSpeed: what comes from the file, and what stands over it.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/spec/model_spec.h"
#include "planner/request/plan_request.h"
#include "planner/space/families.h"

namespace fsdp::planner {
namespace {

constexpr const char* kFile = R"({
  "train_batch_size": 32, "gradient_accumulation_steps": 2, "gradient_clipping": 0.5, "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW"},
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 4000000, "overlap_comm": true}})";

class PlansForDeepSpeed : public testing::Test {
 protected:
  PlansForDeepSpeed() : path_(testing::TempDir() + "/ds." + std::to_string(getpid()) + ".json") { write(kFile); }
  ~PlansForDeepSpeed() override { std::filesystem::remove(path_); }

  void write(const std::string& text) const { std::ofstream(path_) << text; }

  PlanRequest request() const {
    PlanRequest made{.model = "gpt2", .choices = {.gpus = 4, .gpu_name = "A100 80GB SXM"}};
    made.choices.deepspeed_file = path_;
    return made;
  }
  Result<ResolvedRequest> resolved(const PlanRequest& request) const { return resolve(request, "model_specs"); }

  /// Whether an assumption says this.
  static bool says(const ResolvedRequest& request, const std::string& words) {
    for (const std::string& line : request.cluster.assumptions) {
      if (line.find(words) != std::string::npos) return true;
    }
    return false;
  }

  std::string path_;
};

TEST_F(PlansForDeepSpeed, FollowTheFile) {
  const auto made = resolved(request());
  ASSERT_TRUE(made) << to_string(made.error().front());
  const Plan& base = made->space.base;
  EXPECT_EQ(base.runtime.framework, Framework::Zero2);
  EXPECT_EQ(base.zero, (ZeroOptions{.reduce_bucket_size = 4'000'000, .overlap_comm = true}));
  EXPECT_EQ(base.accumulation, 2);
  EXPECT_EQ(find_dimension(made->workload.dimensions, "batch")->value, 4);
  EXPECT_EQ(base.optimizer.clip_grad_norm, 0.5);
  EXPECT_EQ(base.optimizer.implementation, OptimizerImplementation::Fused);
  EXPECT_EQ(base.mixed_precision.param_dtype, Dtype::BFloat16);
  EXPECT_EQ(base.parameter_dtype, Dtype::Float32);
  EXPECT_TRUE(says(*made, "FusedAdam"));
  EXPECT_FALSE(says(*made, "over what"));
}

TEST_F(PlansForDeepSpeed, AnotherPrecisionKeepsTheFilesLossScaling) {
  const auto with = [&](Precision precision) {
    PlanRequest asked = request();
    asked.choices.precision = precision;
    return resolved(asked);
  };
  const auto scaled = with(Precision::MixedFloat16);
  ASSERT_TRUE(scaled) << to_string(scaled.error().front());
  EXPECT_EQ(scaled->space.base.mixed_precision.reduce_dtype, Dtype::Float16);
  const auto pure = with(Precision::BFloat16);
  ASSERT_TRUE(pure) << to_string(pure.error().front());
  EXPECT_EQ(pure->space.base.parameter_dtype, Dtype::BFloat16);
  EXPECT_EQ(pure->space.base.mixed_precision, MixedPrecision{});
  // fp16_master_weights_and_grads keeps its states in fp32, and on the host.
  EXPECT_FALSE(with(Precision::Float16));
}

TEST_F(PlansForDeepSpeed, OptionsOverrideTheFileWithANote) {
  PlanRequest asked = request();
  asked.choices.accumulation = 8;
  asked.choices.clip = GradientClipping{0.5};  // As the file has it.
  asked.choices.optimizer_implementation = OptimizerImplementation::ForLoop;
  const auto made = resolved(asked);
  ASSERT_TRUE(made) << to_string(made.error().front());
  EXPECT_EQ(made->space.base.accumulation, 8);
  EXPECT_EQ(made->space.base.optimizer.implementation, OptimizerImplementation::ForLoop);
  EXPECT_TRUE(says(*made, "--accumulate, --optimizer-impl override what"));
  EXPECT_FALSE(says(*made, "--clip-grad-norm"));
  EXPECT_FALSE(says(*made, "FusedAdam"));
}

TEST_F(PlansForDeepSpeed, GlobalBatchReplacesBothSizes) {
  PlanRequest asked = request();
  asked.choices.global_batch = 48;
  const auto made = resolved(asked);
  ASSERT_TRUE(made) << to_string(made.error().front());
  EXPECT_EQ(made->space.global_batch, 48);
  EXPECT_EQ(made->space.micro_batch, std::nullopt);
  EXPECT_EQ(made->space.accumulation, std::nullopt);
  EXPECT_TRUE(says(*made, "--global-batch overrides what"));
}

TEST_F(PlansForDeepSpeed, AnotherRuntimeKeepsTheBatchButNotTheBuffers) {
  PlanRequest asked = request();
  asked.choices.runtime = Framework::Fsdp2;
  const auto made = resolved(asked);
  ASSERT_TRUE(made) << to_string(made.error().front());
  EXPECT_EQ(made->space.base.runtime.framework, Framework::Fsdp2);
  EXPECT_EQ(made->space.base.accumulation, 2);
  EXPECT_EQ(made->space.base.zero, ZeroOptions{});
  asked.choices.runtime = Framework::Zero3;
  EXPECT_EQ(resolved(asked)->space.base.zero, default_zero_options(Framework::Zero3));
}

TEST_F(PlansForDeepSpeed, OffloadFollowsTheFile) {
  EXPECT_EQ(resolved(request())->space.cpu_offload, false);
  write(R"({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 3,
      "offload_optimizer": {"device": "cpu", "pin_memory": false},
      "offload_param": {"device": "cpu", "pin_memory": false}}})");
  PlanRequest asked = request();
  const auto made = resolved(asked);
  ASSERT_TRUE(made) << to_string(made.error().front());
  EXPECT_EQ(made->space.cpu_offload, true);
  EXPECT_FALSE(made->space.base.zero.pin_memory);
  EXPECT_TRUE(made->space.base.zero.offload_param);
  EXPECT_FALSE(says(*made, "FusedAdam"));  // On the host it is another one.
  // Another framework decides by itself, and what it keeps on the devices says nothing of the host.
  asked.choices.runtime = Framework::Fsdp2;
  EXPECT_EQ(resolved(asked)->space.cpu_offload, std::nullopt);
  asked.choices.runtime.reset();
  asked.choices.cpu_offload = false;
  const auto kept = resolved(asked);
  EXPECT_TRUE(says(*kept, "--offload overrides what"));
  const auto families = families_of(kept->space, *build_model(kept->spec, kept->workload), kept->cluster);
  ASSERT_TRUE(families) << to_string(families.error().front());
  const Plan plan = plan_of(kept->space.base, *families, {});
  EXPECT_EQ(plan.zero, default_zero_options(Framework::Zero3));
}

TEST_F(PlansForDeepSpeed, ErrorsOfTheFileComeWithAllOthers) {
  write(R"({"train_batch_size": 30, "zero_optimization": {"stage": 2}})");
  PlanRequest asked = request();
  asked.choices.recipe = "none of that name";
  const auto made = resolved(asked);
  ASSERT_FALSE(made);
  ASSERT_EQ(made.error().size(), 2U);
  EXPECT_EQ(made.error()[0].where, path_);
  EXPECT_EQ(made.error()[0].what,
            "train_batch_size 30 is not train_micro_batch_size_per_gpu 7 x gradient_accumulation_steps 1 x 4 GPUs.");
  // A size of the user's is in the place of the contradiction.
  asked.choices.recipe.reset();
  asked.choices.batch = 6;
  EXPECT_TRUE(resolved(asked));
  std::filesystem::remove(path_);
  EXPECT_EQ(resolved(asked).error().size(), 1U);
  asked.choices.deepspeed_file = "-";
  EXPECT_EQ(to_string(resolved(asked).error().front()),
            "--deepspeed: The standard input is for the model. Write the name of a file.");
}

TEST_F(PlansForDeepSpeed, AutoSizesFollowTheModelsWidthWithANote) {
  write(R"({"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto"}, "comms_config": {}})");
  const auto made = resolved(request());
  ASSERT_TRUE(made) << to_string(made.error().front());
  // GPT-2 has a width of 768: 768^2, nine tenths of it, and 7680.
  EXPECT_EQ(made->space.base.zero.reduce_bucket_size, 589'824);
  EXPECT_EQ(made->space.base.zero.prefetch_bucket_size, 530'841);
  EXPECT_EQ(made->space.base.zero.param_persistence_threshold, 7680);
  EXPECT_TRUE(says(*made, "hidden_size 768"));
  EXPECT_TRUE(says(*made, "comms_config"));
  // A model without an embedding does not tell.
  PlanRequest other = request();
  other.model = "resnet18";
  other.choices.precision = Precision::Float32;
  const auto refused = resolved(other);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().front().what.find("hidden_size"), std::string::npos);
}

}  // namespace
}  // namespace fsdp::planner
