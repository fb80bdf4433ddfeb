#include "core/plan/plan.h"
#include "core/frameworks/check_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/plan/input_casts.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

Plan plan_of(const Model& model) {
  Plan plan;
  plan.model = model.name;
  plan.mesh.dp_shard() = 2;
  plan.units = {{{"0"}}, {{""}}};
  return plan;
}

std::vector<std::string> errors_of(const Plan& plan, const Model& model) {
  std::vector<std::string> lines;
  for (const Error& error : check(plan, model)) lines.push_back(to_string(error));
  return lines;
}

TEST(PlanCheck, PyTorchHasNoFusedSgdForShardedParameters) {
  const Model model = model_of("mlp.json");
  Plan plan = plan_of(model);
  EXPECT_EQ(errors_of(plan, model), std::vector<std::string>{});
  plan.optimizer.implementation = OptimizerImplementation::Fused;
  EXPECT_EQ(errors_of(plan, model), std::vector<std::string>{});
  plan.optimizer.kind = OptimizerKind::Sgd;
  EXPECT_EQ(errors_of(plan, model),
            std::vector<std::string>{"optimizer: PyTorch has no fused SGD for sharded parameters (DTensors). SGD is "
                                     "foreach or for_loop; Adam and AdamW can be fused."});
}

TEST(PlanCheck, MuonNeedsMatricesWithEqualShards) {
  Model model = model_of("mlp.json");
  Plan plan = plan_of(model);
  plan.mesh = {1, 2};
  plan.optimizer.muon.emplace();
  EXPECT_EQ(errors_of(plan, model).size(), 1U) << "the model names no matrix";
  const auto matrix = std::find_if(model.parameters.begin(), model.parameters.end(),
                                   [](const Parameter& parameter) { return parameter.shape.size() == 2; });
  ASSERT_NE(matrix, model.parameters.end());
  matrix->is_muon = true;
  EXPECT_EQ(errors_of(plan, model), std::vector<std::string>{});
  const auto first_words = [&](Plan changed) {
    const std::vector<std::string> errors = errors_of(changed, model);
    return errors.size() == 1 ? errors.front().substr(0, errors.front().find(". ")) : std::string();
  };
  Plan other = plan;
  other.cpu_offload = true;
  EXPECT_EQ(first_words(other), "cpu_offload: Muon on the host is not predicted");
  other = plan;
  other.optimizer.states = OptimizerStates::BFloat16;
  EXPECT_EQ(first_words(other), "optimizer: torch.optim.Muon keeps its momentum in the dtype of the parameter");
  other = plan;
  other.mesh = {1, 3};
  EXPECT_EQ(first_words(other),
            fmt::format("mesh: \"{}\" of {} x {} does not divide by 3 GPUs: Muon's traffic for it is not predicted",
                        matrix->name, matrix->shape[0], matrix->shape[1]));
  other.mesh = {3, 1};
  EXPECT_EQ(errors_of(other, model), std::vector<std::string>{}) << "each rank has it whole";
}

TEST(PlanCheck, UnitsReturnTheirComputeDtype) {
  const Model model = model_of("mlp.json");
  Plan plan = plan_of(model);
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .output_dtype = Dtype::BFloat16};
  EXPECT_EQ(errors_of(plan, model), std::vector<std::string>{});
  plan.mixed_precision.output_dtype = Dtype::Float32;
  EXPECT_EQ(
      errors_of(plan, model),
      std::vector<std::string>{"mixed_precision/output_dtype: Units would compute in bfloat16 and return float32, "
                               "which the ops between them do not accept. Write bfloat16, or leave it out."});
  plan.units.erase(plan.units.begin());
  EXPECT_EQ(errors_of(plan, model), std::vector<std::string>{}) << "only the loss is cast";
  plan.runtime.implementations.keep_logits = true;
  EXPECT_EQ(errors_of(plan, model).size(), 1U);
}

TEST(PlanCheck, FrozenParametersAreMultipliedInTheirOwnDtype) {
  Model model = model_of("mlp.json");
  for (Parameter& parameter : model.parameters) parameter.dtype = Dtype::BFloat16;
  Plan plan = plan_of(model);
  plan.parameter_dtype = Dtype::Float32;
  EXPECT_EQ(errors_of(plan, model), std::vector<std::string>{});
  model.parameters.front().trainable = false;
  EXPECT_EQ(errors_of(plan, model),
            std::vector<std::string>{"parameter_dtype: 0.weight is frozen and stays bfloat16, and PyTorch does not "
                                     "multiply it by float32. Write bfloat16, or a mixed_precision/param_dtype."});
  plan.mixed_precision.param_dtype = Dtype::BFloat16;
  EXPECT_EQ(errors_of(plan, model), std::vector<std::string>{});
}

TEST(PlanCheck, OtherLossesTakeNoCrossEntropyImplementation) {
  Model model = model_of("mlp.json");
  Plan plan = plan_of(model);
  set_loss(plan, {.kind = LossKind::FlashAttn});
  EXPECT_EQ(errors_of(plan, model), std::vector<std::string>{});
  for (Block& block : model.blocks) {
    for (Op& op : block.ops) op.kind = op.kind == OpKind::CrossEntropy ? OpKind::Mean : op.kind;
  }
  EXPECT_EQ(errors_of(plan, model),
            std::vector<std::string>{"/runtime/implementations/loss: MLP has no cross entropy whose "
                                     "implementation can be chosen. Write \"pytorch\", or leave it out."});
}

TEST(PlanCheck, ModelWithoutTrainedParametersIsRefused) {
  Model model = model_of("mlp.json");
  for (Parameter& parameter : model.parameters) parameter.trainable = false;
  derive_gradient_flow(model);
  EXPECT_EQ(errors_of(plan_of(model), model),
            std::vector<std::string>{
                "model: No parameter gets a gradient, so PyTorch raises an error in backward. Train at least one "
                "parameter. A forward without a backward, as for inference, is not predicted."});
}

TEST(PlanCheck, InputsInAnotherDtypeAreCastByTheRootOrRefused) {
  Model model = model_of("mlp.json");
  model.values[model.inputs.front()].dtype = Dtype::Float32;
  Plan plan = plan_of(model);
  plan.mixed_precision.param_dtype = Dtype::BFloat16;
  EXPECT_EQ(errors_of(plan, model), std::vector<std::string>{});
  EXPECT_EQ(inputs_cast_by_root(model, plan), (std::vector<bool>{true, false}));
  plan.mixed_precision.cast_forward_inputs = false;
  EXPECT_EQ(inputs_cast_by_root(model, plan), (std::vector<bool>{false, false}));
  EXPECT_EQ(
      errors_of(plan, model),
      std::vector<std::string>{"mixed_precision/cast_forward_inputs: The input \"features\" is float32, and PyTorch "
                               "does not multiply it by parameters in bfloat16. Write true, and FSDP2 casts it."});
  // FSDP1's root is told apart.
  plan.runtime.framework = Framework::Fsdp1;
  EXPECT_EQ(inputs_cast_by_root(model, plan), (std::vector<bool>{true, false}));
  plan.fsdp1.cast_root_forward_inputs = false;
  EXPECT_EQ(inputs_cast_by_root(model, plan), (std::vector<bool>{false, false}));
  plan = plan_of(model);
  plan.mixed_precision = {};
  plan.parameter_dtype = Dtype::BFloat16;
  EXPECT_EQ(errors_of(plan, model),
            std::vector<std::string>{
                "parameter_dtype: The input \"features\" is float32, and PyTorch does not multiply it by parameters in "
                "bfloat16. Use float32, or a mixed_precision/param_dtype, to which FSDP2 casts it."});
}

}  // namespace
}  // namespace fsdp
