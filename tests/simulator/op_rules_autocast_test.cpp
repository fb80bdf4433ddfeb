// What torch.autocast adds to the memory of ops: copies for each call, wide sums, and its cache of weights. N rows of H
// in fp32, fp32 weights.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/frameworks/check_autocast.h"
#include "core/plan/plan.h"
#include "tests/support/spec_models.h"
#include "tests/support/taped_block.h"

namespace fsdp::simulator {
namespace {

constexpr std::int64_t kTokenRows = 48;
constexpr std::int64_t kHiddenWidth = 64;
constexpr std::int64_t kInner = 256;

TapedSettings under_autocast(CheckpointMode mode = CheckpointMode::None) {
  TapedSettings settings;
  settings.rules.activation = Dtype::Float32;
  settings.rules.autocast = Dtype::BFloat16;
  settings.mode = mode;
  return settings;
}

BlockBuilder builder_under_autocast(std::vector<Value> inputs) {
  BlockBuilder b("op", "Op", inputs);
  for (const Value& input : inputs) b.input(input.name);
  return b;
}

BlockBuilder gated_mlp() {
  BlockBuilder b = builder_under_autocast({{"x", {kTokenRows, kHiddenWidth}}});
  const BlockValue x = b.input("x");
  const BlockValue gate = b.silu(b.linear("gate", x, kInner));
  b.output("y", b.linear("down", b.mul(gate, b.linear("up", x, kInner)), kHiddenWidth));
  return b;
}

std::int64_t held_in_forward(const TapedBlock& taped) {
  std::int64_t bytes = 0;
  for (const TapeEvent& event : taped.tape.forward) {
    if (event.kind == TapeEvent::Kind::HoldInForward) bytes += taped.program.storages[event.storage].bytes;
  }
  return bytes;
}

TEST(Autocast, EachProjectionKeepsACopyOfItsInputAndOfItsWeight) {
  const TapedBlock taped = tape_block(gated_mlp(), under_autocast());
  // Two copies of x, four tensors of the inner width, three weights, all in bf16. The product is in bf16 already.
  EXPECT_EQ(taped.saved_bytes(),
            2 * 2 * kTokenRows * kHiddenWidth + 4 * 2 * kTokenRows * kInner + 3 * 2 * kInner * kHiddenWidth);
  EXPECT_FALSE(taped.keeps_input(0));
  EXPECT_EQ(held_in_forward(taped), 0);
}

TEST(Autocast, CheckpointedBlockLeavesItsWeightsToTheCache) {
  const TapedBlock taped = tape_block(gated_mlp(), under_autocast(CheckpointMode::Full));
  EXPECT_EQ(held_in_forward(taped), 3 * 2 * kInner * kHiddenWidth);
  EXPECT_EQ(taped.tape.kept_bytes, 0);
}

TEST(Autocast, FrozenWeightsAreNotCached) {
  TapedSettings settings = under_autocast(CheckpointMode::Full);
  settings.parameters = {false, false, false};
  EXPECT_EQ(held_in_forward(tape_block(gated_mlp(), settings)), 0);
}

TEST(Autocast, GradientsOfWeightsAreCastToTheirDtype) {
  const AllocationCounts made = allocations(tape_block(gated_mlp(), under_autocast()).tape.backward);
  EXPECT_EQ(made.at(2 * kInner * kHiddenWidth), 3);  // As the products make them,
  EXPECT_EQ(made.at(4 * kInner * kHiddenWidth), 3);  // and as the parameters have them.
}

TEST(Autocast, SumOfTwoDtypesIsWideAndCastsOneGradient) {
  BlockBuilder b = builder_under_autocast({{"x", {kTokenRows, kHiddenWidth}}});
  b.output("y", b.add(b.input("x"), b.silu(b.linear("l", b.input("x"), kHiddenWidth))));
  const TapedBlock taped = tape_block(std::move(b), under_autocast());
  EXPECT_EQ(taped.tape.output_bytes.front(), 4 * kTokenRows * kHiddenWidth);
  // The gradient of the sum becomes that of silu in bf16; silu and the product make one each, and x's is cast to fp32.
  const AllocationCounts made = allocations(taped.tape.backward);
  EXPECT_EQ(made.at(2 * kTokenRows * kHiddenWidth), 3);
  EXPECT_EQ(made.at(4 * kTokenRows * kHiddenWidth), 1);
}

Plan plan_of_ddp() {
  Plan plan;
  plan.units = {{{""}, {}}};
  plan.runtime.framework = Framework::Ddp;
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision.autocast = Dtype::BFloat16;
  return plan;
}

std::string refusal_of(const Plan& plan, const std::string& model) {
  const Errors errors = check_autocast(plan, model_of(model));
  return errors.empty() ? "" : to_string(errors.front());
}

TEST(Autocast, WhatIsNotPredictedIsRefused) {
  EXPECT_EQ(refusal_of(plan_of_ddp(), "llama3_2_1b.json"), "");
  EXPECT_NE(refusal_of(plan_of_ddp(), "mixtral_8x7b.json").find("Experts under autocast"), std::string::npos);
  Plan plan = plan_of_ddp();
  plan.mixed_precision.autocast = Dtype::Float16;
  EXPECT_NE(refusal_of(plan, "gpt2.json").find("GradScaler"), std::string::npos);
  plan = plan_of_ddp();
  plan.runtime.framework = Framework::Zero2;
  EXPECT_NE(refusal_of(plan, "gpt2.json").find("torch_autocast of its own"), std::string::npos);
  plan.runtime.framework = Framework::Fsdp2;
  EXPECT_NE(refusal_of(plan, "gpt2.json").find("Autocast around FSDP2"), std::string::npos);
  plan = plan_of_ddp();
  plan.mixed_precision.param_dtype = Dtype::BFloat16;
  EXPECT_NE(refusal_of(plan, "gpt2.json").find("another mixed precision"), std::string::npos);
  plan = plan_of_ddp();
  plan.checkpointing.entries = {{"transformer.h.0", CheckpointMode::Selective}};
  EXPECT_NE(refusal_of(plan, "gpt2.json").find("Selective checkpointing"), std::string::npos);
}

}  // namespace
}  // namespace fsdp::simulator
