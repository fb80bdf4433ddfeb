// Where a schedule clears gradients, of a model whose script was captured.

#include "core/plan/gradient_clearing.h"
#include "core/frameworks/layout.h"
#include "core/frameworks/lower.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/assemble_model.h"
#include "tests/support/collective_models.h"

namespace fsdp {
namespace {

Model chain() {
  return collective_model("mlp", {{"in", "6"}, {"out", "5"}, {"blocks", "8,12,8;8,12,8"}}, Dtype::Float32);
}

Schedule lowered(const Model& model, std::int64_t accumulation = 1) {
  Plan plan;
  plan.mesh = {1, 4};
  plan.accumulation = accumulation;
  plan.units = {{{""}, {}}};
  const ModelIndex index = index_of(model);
  const auto layout = make_layout(index, plan);
  EXPECT_TRUE(layout.has_value());
  Schedule schedule = lower(index, plan, *layout);
  EXPECT_TRUE(validate(schedule, index, *layout).empty());
  return schedule;
}

// For the only one; the number of instructions where there is none.
std::size_t place_of_clearing(const Schedule& schedule) {
  const auto is_clearing = [](const Instruction& step) { return step.kind == InstructionKind::ZeroGrad; };
  const std::vector<Instruction>& steps = schedule.instructions;
  EXPECT_LE(std::count_if(steps.begin(), steps.end(), is_clearing), 1);
  return static_cast<std::size_t>(std::find_if(steps.begin(), steps.end(), is_clearing) - steps.begin());
}

TEST(GradientClearing, FollowsTheOptimizerByDefault) {
  const Schedule schedule = lowered(chain());
  EXPECT_EQ(place_of_clearing(schedule) + 1, schedule.instructions.size());
}

TEST(GradientClearing, CanPrecedeTheFirstBackward) {
  Model model = chain();
  model.clears_gradients_at = static_cast<int>(model.calls.size());
  const std::vector<Instruction> steps = lowered(model, 3).instructions;
  const std::size_t place = place_of_clearing({.instructions = steps});
  ASSERT_GT(place, 0U);
  ASSERT_LT(place + 1, steps.size());
  EXPECT_EQ(steps[place - 1].phase, StepPhase::Forward);
  EXPECT_EQ(steps[place + 1].phase, StepPhase::Backward);
  EXPECT_EQ(steps[place + 1].micro_batch, 0);
}

TEST(GradientClearing, CanPrecedeACallOfTheForward) {
  Model model = chain();
  model.clears_gradients_at = 2;
  const std::vector<Instruction> steps = lowered(model).instructions;
  const std::size_t place = place_of_clearing({.instructions = steps});
  ASSERT_LT(place + 1, steps.size());
  EXPECT_EQ(steps[place + 1].kind, InstructionKind::Forward);
  EXPECT_EQ(steps[place + 1].call, 2);
}

TEST(GradientClearing, IsAbsentIfGradientsAccumulateAcrossSteps) {
  Model model = chain();
  model.keeps_gradients = true;
  const Schedule schedule = lowered(model);
  EXPECT_EQ(place_of_clearing(schedule), schedule.instructions.size());
}

}  // namespace
}  // namespace fsdp
