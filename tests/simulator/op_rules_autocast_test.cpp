// What torch.autocast adds to the memory of ops: copies for each call, wide sums, and its cache of weights. N rows of H
// in fp32, fp32 weights.

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "core/frameworks/check_autocast.h"
#include "core/frameworks/check_plan.h"
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
  EXPECT_NE(refusal_of(plan, "gpt2.json").find("Autocast under FSDP2 is predicted only with gathered parameters"),
            std::string::npos);
  plan.mixed_precision.param_dtype = Dtype::BFloat16;
  EXPECT_EQ(refusal_of(plan, "gpt2.json"), "");
  plan = plan_of_ddp();
  plan.mixed_precision.param_dtype = Dtype::BFloat16;
  EXPECT_NE(refusal_of(plan, "gpt2.json").find("another mixed precision"), std::string::npos);
  plan = plan_of_ddp();
  plan.checkpointing.entries = {{"transformer.h.0", CheckpointMode::Selective}};
  EXPECT_NE(refusal_of(plan, "gpt2.json").find("Selective checkpointing"), std::string::npos);
}

constexpr std::int64_t kClasses = 1024;

TapedBlock loss_of_returned_logits(const OpRuleContext& rules) {
  BlockBuilder b = builder_under_autocast({{"logits", {kTokenRows, kClasses}}, {"labels", {kTokenRows}, Dtype::Int64}});
  b.output("loss", b.cross_entropy(b.input("logits"), b.input("labels"), false));
  TapedSettings settings;
  settings.rules = rules;
  return tape_block(std::move(b), settings);
}

/// The position of the last event of a kind, of a storage of so many bytes; -1 if there is none.
int last_event(const TapedBlock& taped, TapeEvent::Kind kind, std::int64_t bytes) {
  int found = -1;
  for (std::size_t e = 0; e < taped.tape.forward.size(); ++e) {
    const TapeEvent& event = taped.tape.forward[e];
    if (event.kind == kind && event.bytes == bytes) found = static_cast<int>(e);
  }
  return found;
}

TEST(Autocast, AccelerateCopiesTheLogitsThatTheModelReturns) {
  OpRuleContext rules;
  rules.autocast = Dtype::BFloat16;
  const std::int64_t wide = 4 * kTokenRows * kClasses;
  // logits.float() and log_softmax, and the copy.
  EXPECT_EQ(allocations(loss_of_returned_logits(rules).tape.forward).at(wide), 2);
  rules.float_outputs = true;
  const TapedBlock copied = loss_of_returned_logits(rules);
  EXPECT_EQ(allocations(copied.tape.forward).at(wide), 3);
  EXPECT_EQ(copied.saved_bytes(), loss_of_returned_logits({}).saved_bytes());
  EXPECT_EQ(allocations(copied.tape.backward), allocations(loss_of_returned_logits({}).tape.backward));
}

TEST(Autocast, TheRootCastsTheCopyOnceTheModelHasReturned) {
  OpRuleContext rules;
  rules.autocast = rules.returned = Dtype::BFloat16;
  rules.float_outputs = true;
  const TapedBlock taped = loss_of_returned_logits(rules);
  const int cast = last_event(taped, TapeEvent::Kind::Alloc, 2 * kTokenRows * kClasses);
  const int copy = last_event(taped, TapeEvent::Kind::Alloc, 4 * kTokenRows * kClasses);
  const int dropped = last_event(taped, TapeEvent::Kind::ReleaseInput, 0);
  EXPECT_LT(copy, dropped);
  EXPECT_LT(dropped, cast);
}

TEST(Autocast, CopiesOfOutputsWithoutAutocastAreRefused) {
  Plan plan = plan_of_ddp();
  plan.mixed_precision.float_outputs = true;
  EXPECT_EQ(refusal_of(plan, "gpt2.json"), "");
  plan.mixed_precision.autocast.reset();
  EXPECT_NE(refusal_of(plan, "gpt2.json").find("only with autocast"), std::string::npos);
}

/// For two GPUs, with each layer as a unit, under autocast beside the policy.
Plan plan_of_layers(const std::string& layers, std::optional<Dtype> output) {
  Plan plan;
  plan.mesh = {1, 2};
  for (const char* layer : {"0", "1"}) plan.units.push_back({{layers + layer}, {}});
  plan.units.push_back({{""}, {}});
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16,
                          .reduce_dtype = Dtype::BFloat16,
                          .output_dtype = output,
                          .autocast = Dtype::BFloat16};
  return plan;
}

std::string errors_of(const Plan& plan, const std::string& model) {
  const Errors errors = check(plan, model_of(model));
  return errors.empty() ? "" : to_string(errors.front());
}

// The norm at the end of BERT's layers leaves fp32, which the next unit of FSDP2 casts; the others' ends are sums.
TEST(Autocast, UnitsOfFsdp2ThatWouldCastAreRefused) {
  const std::string layers = "bert.encoder.layer.";
  EXPECT_EQ(errors_of(plan_of_layers("transformer.h.", Dtype::BFloat16), "gpt2.json"), "");
  EXPECT_EQ(errors_of(plan_of_layers("model.layers.", {}), "llama3_2_1b.json"), "");
  EXPECT_NE(errors_of(plan_of_layers(layers, {}), "bert_large.json").find("would cast it to bfloat16"),
            std::string::npos);
  Plan plan = plan_of_layers(layers, Dtype::BFloat16);
  plan.mixed_precision.cast_forward_inputs = false;
  EXPECT_NE(errors_of(plan, "bert_large.json").find("returns"), std::string::npos);
  plan.mixed_precision.output_dtype.reset();
  plan.runtime.framework = Framework::Fsdp1;
  EXPECT_EQ(errors_of(plan, "bert_large.json"), "");
}

}  // namespace
}  // namespace fsdp::simulator
