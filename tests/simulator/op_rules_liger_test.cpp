// What Liger's kernels keep and allocate, in closed form: N rows of H numbers in bf16, on a GPU of 132 multiprocessors.

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "simulator/ops/op_rules.h"
#include "tests/support/taped_block.h"

namespace fsdp::simulator {
namespace {

constexpr std::int64_t kLigerRows = 512;   // N
constexpr std::int64_t kLigerWidth = 256;  // H
constexpr std::int64_t kOfLiger = 2 * kLigerRows * kLigerWidth;
constexpr std::int64_t kSums = 132 * kLigerWidth * 4;  // Sums of the weight's gradient on each multiprocessor.

BlockBuilder liger_inputs(std::vector<Value> inputs) {
  static constexpr LigerKernels kAll;
  BlockBuilder b("op", "Op", inputs);
  for (const Value& input : inputs) b.input(input.name);
  b.use_liger(kAll);
  return b;
}

TapedBlock liger_norm(std::string_view class_name, bool trained = true) {
  BlockBuilder b = liger_inputs({{"x", {2, kLigerRows / 2, kLigerWidth}}});
  b.output("y", b.rms_norm("input_layernorm", b.input("x"), {.class_name = class_name}));
  TapedSettings settings;
  settings.parameters = {trained};
  return tape_block(std::move(b), settings);
}

TEST(OpRulesOfLiger, RmsNormKeepsItsInputAndANumberPerRow) {
  EXPECT_EQ(liger_norm("LlamaRMSNorm").saved_bytes(), kOfLiger + 4 * kLigerRows);
  EXPECT_EQ(liger_norm("GemmaRMSNorm").saved_bytes(), kOfLiger + 4 * kLigerRows);
}

TEST(OpRulesOfLiger, RmsNormWritesItsGradientInPlaceOrToANewTensor) {
  const AllocationCounts in_place = allocations(liger_norm("LlamaRMSNorm").tape.backward);
  EXPECT_EQ(in_place.count(kOfLiger), 0U);
  EXPECT_EQ(in_place.at(kSums), 1);
  const AllocationCounts fresh = allocations(liger_norm("Gemma2RMSNorm").tape.backward);
  EXPECT_EQ(fresh.at(kOfLiger), 1);
  // Without a weight to train no sums are made.
  EXPECT_EQ(allocations(liger_norm("LlamaRMSNorm", false).tape.backward).count(kSums), 0U);
}

TapedBlock gated(bool liger) {
  BlockBuilder b = liger_inputs({{"x", {kLigerRows, kLigerWidth}}});
  const BlockValue gate = b.scale(b.input("x"), 2);
  const BlockValue up = b.scale(b.input("x"), 3);
  b.output("y", b.scale(liger ? b.liger_glu(gate, up, false) : b.mul(b.silu(gate), up), 4));
  return tape_block(std::move(b));
}

// Gate and up; silu(gate) too if the product is a call of its own.
TEST(OpRulesOfLiger, GluKeepsItsOperandsAndMakesNoGradients) {
  EXPECT_EQ(gated(true).saved_bytes(), 2 * kOfLiger);
  EXPECT_EQ(gated(false).saved_bytes(), 3 * kOfLiger);
  // The backward of each scale makes one tensor; there are three.
  EXPECT_EQ(allocations(gated(true).tape.backward).at(kOfLiger), 3);
}

TEST(OpRulesOfLiger, RopeTurnsHeadsAndTheirGradientsInPlace) {
  constexpr std::int64_t kHeads = 4, kDim = 64;
  const auto taped = [&](std::string_view family) {
    BlockBuilder b = liger_inputs(
        {{"x", {1, kLigerRows, kHeads, kDim}}, {"cos", {1, kLigerRows, kDim}}, {"sin", {1, kLigerRows, kDim}}});
    const BlockValue q = b.scale(b.input("x"), 2), k = b.scale(b.input("x"), 3);
    const auto turned = b.rotary(q, k, {b.input("cos"), b.input("sin")}, {.family = family});
    b.output("q", b.scale(turned.query, 4));
    b.output("k", b.scale(turned.key, 5));
    TapedSettings settings;
    settings.inputs = {true, false, false};
    return tape_block(std::move(b), settings);
  };
  // The four results of the scales, and their gradients, in the forward and the backward.
  EXPECT_EQ(allocations(taped("Llama").tape.forward).at(kOfLiger), 4);
  EXPECT_EQ(allocations(taped("Llama").tape.backward).at(kOfLiger), 4);
}

TapedBlock taped_loss_with_head(LossKind loss, Dtype dtype, bool trains_head, std::int64_t rows, std::int64_t classes) {
  const std::vector<Value> inputs = {{"x", {rows, kLigerWidth}}, {"labels", {rows}, Dtype::Int64}};
  BlockBuilder b("op", "Op", inputs);
  for (const Value& input : inputs) b.input(input.name);
  b.declare("lm_head", "Linear", false);
  b.output("loss", b.op({.kind = OpKind::LinearCrossEntropy,
                         .inputs = {b.input("x"), b.input("labels")},
                         .parameters = {b.parameter_of("lm_head", "weight", {classes, kLigerWidth})}})[0]);
  TapedSettings settings;
  settings.rules.activation = dtype;
  settings.rules.implementations.loss = {.kind = loss};
  settings.inputs = {true, false};
  settings.parameters = {trains_head};
  return tape_block(std::move(b), settings);
}

TEST(OpRulesOfLiger, LossMakesAllGradientsInTheForward) {
  // 64 times as many classes as the width: parts of a 64th of the rows, which is a power of two here.
  constexpr std::int64_t kTokens = 4096;
  constexpr std::int64_t kClasses = 64 * kLigerWidth;
  constexpr std::int64_t kPart = kTokens / 64;
  const std::int64_t hidden = 2 * kTokens * kLigerWidth, weight = 2 * kClasses * kLigerWidth,
                     logits = 2 * kPart * kClasses;
  const TapedBlock trained = taped_loss_with_head(LossKind::Liger, Dtype::BFloat16, true, kTokens, kClasses);
  // Both gradients, a buffer of logits, an fp32 loss and a mask of each token.
  EXPECT_EQ(peak_of(trained.tape.forward), hidden + weight + logits + (4 + 1) * kTokens);
  EXPECT_EQ(trained.saved_bytes(), hidden + weight);
  // The node hands its tensors on, beside the loss and the comparison of its gradient with a one.
  EXPECT_EQ(trained.tape.backward_peak, hidden + weight + 4 + (4 + 1 + 1));
  // The head of an adapter is frozen.
  const TapedBlock frozen = taped_loss_with_head(LossKind::Liger, Dtype::BFloat16, false, kTokens, kClasses);
  EXPECT_EQ(peak_of(frozen.tape.forward), hidden + logits + (4 + 1) * kTokens);
  EXPECT_EQ(frozen.saved_bytes(), hidden);
  // In fp32 each part makes the weight's gradient before it is added.
  const TapedBlock wide = taped_loss_with_head(LossKind::Liger, Dtype::Float32, true, kTokens, kClasses);
  EXPECT_EQ(peak_of(wide.tape.forward), 2 * hidden + 2 * (2 * weight) + 2 * logits + (4 + 1) * kTokens);
}

TEST(OpRulesOfLiger, ProductsOfTheLossAreThreeForAllTokens) {
  const TapedBlock taped = taped_loss_with_head(LossKind::Liger, Dtype::BFloat16, true, 1000, 4096);
  EXPECT_DOUBLE_EQ(taped.tape.work.front().forward.gemm_flops, 3 * 2.0 * 1000 * 4096 * kLigerWidth);
  EXPECT_DOUBLE_EQ(taped.tape.work.front().backward.gemm_flops, 0);
  const TapedBlock frozen = taped_loss_with_head(LossKind::Liger, Dtype::BFloat16, false, 1000, 4096);
  EXPECT_DOUBLE_EQ(frozen.tape.work.front().forward.gemm_flops, 2 * 2.0 * 1000 * 4096 * kLigerWidth);
}

}  // namespace
}  // namespace fsdp::simulator
