// What Liger's kernels keep and allocate, in closed form: N rows of H numbers in bf16, on a GPU of 132 multiprocessors.

#include <gtest/gtest.h>

#include <cstdint>

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

}  // namespace
}  // namespace fsdp::simulator
