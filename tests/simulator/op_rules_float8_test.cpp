// What float8 layers of torchao save and allocate, in closed form, and the time of their products.

#include <gtest/gtest.h>

#include "core/cluster/cluster.h"
#include "core/spec/block_builder.h"
#include "simulator/ops/op_rules.h"
#include "simulator/time/roofline.h"
#include "tests/support/taped_block.h"

namespace fsdp::simulator {
namespace {

// Numbers of the input, of the output and of the weight.
constexpr std::int64_t kTokens = 112;
constexpr std::int64_t kIn = 272;
constexpr std::int64_t kOut = 1040;
constexpr std::int64_t kX = kTokens * kIn;
constexpr std::int64_t kY = kTokens * kOut;
constexpr std::int64_t kW = kIn * kOut;

TapedBlock float8_layer(Float8Recipe recipe, int compute_capability = 90, std::int64_t tokens = kTokens,
                        bool gathered = false) {
  static Float8Training float8;
  float8 = {.recipe = recipe, .all_gather = gathered};
  BlockBuilder b("op", "Op", {{"x", {tokens, kIn}}});
  b.use_float8(float8, {""});
  b.output("y", b.linear("l", b.input("x"), kOut));
  return tape_block(std::move(b), {.rules = {.compute_capability = compute_capability}});
}

// A cast of n numbers holds them in fp32 times the scale, clamped, and in 8 bits: 9 n at once.
TEST(OpRulesOfFloat8, CastsOfTheWeightAreThePeakOfASmallBatch) {
  const TapedBlock taped = float8_layer(Float8Recipe::Tensorwise);
  EXPECT_EQ(taped.saved_bytes(), 2 * kX) << "the input alone, in bf16";
  EXPECT_NEAR(static_cast<double>(peak_of(taped.tape.forward)), kX + 9 * kW, 1024);
  EXPECT_NEAR(static_cast<double>(peak_of(taped.tape.backward)), kY + 9 * kW, 1024);
  const AllocationCounts forward = allocations(taped.tape.forward);
  EXPECT_EQ(forward.at(4 * kW), 3) << "the weight in fp32, scaled and clamped";
  EXPECT_EQ(forward.at(kW), 1);
  EXPECT_EQ(forward.at(2 * kW), 2) << "absolute values, and their contiguous copy";
}

// The scale of each row needs no copy. The backward multiplies both scales for each element of a gradient, in fp32.
TEST(OpRulesOfFloat8, RowsHaveScalesThatTheBackwardMultiplies) {
  const TapedBlock taped = float8_layer(Float8Recipe::Rowwise);
  EXPECT_EQ(allocations(taped.tape.forward).at(2 * kW), 1) << "absolute values";
  const AllocationCounts backward = allocations(taped.tape.backward);
  // Those of the input: scales of its gradient, and its cast in three steps.
  EXPECT_EQ(backward.at(4 * kX), 1 + 3);
  // Those of the weight likewise.
  EXPECT_EQ(backward.at(4 * kW), 1 + 3);
}

TEST(OpRulesOfFloat8, TheGradientOfTheWeightMayStayInHighPrecision) {
  const AllocationCounts all = allocations(float8_layer(Float8Recipe::RowwiseWithGwHp).tape.backward);
  EXPECT_FALSE(all.contains(kX)) << "the input is not cast";
  const OpWork work = float8_layer(Float8Recipe::RowwiseWithGwHp).tape.work.front();
  const double product = 2.0 * kTokens * kIn * kOut;
  EXPECT_EQ(work.forward.float8_flops, product);
  EXPECT_EQ(work.backward.float8_flops, product);
  EXPECT_EQ(work.backward.gemm_flops, product);
  EXPECT_EQ(float8_layer(Float8Recipe::Tensorwise).tape.work.front().backward.float8_flops, 2 * product);
}

TEST(OpRulesOfFloat8, AGatheredWeightIsNotCast) {
  const TapedBlock taped = float8_layer(Float8Recipe::Tensorwise, 90, kTokens, true);
  EXPECT_FALSE(allocations(taped.tape.forward).contains(4 * kW));
  EXPECT_FALSE(allocations(taped.tape.backward).contains(4 * kW));
  EXPECT_EQ(allocations(taped.tape.backward).at(kW), 1) << "its copy in column-major order";
}

TEST(OpRulesOfFloat8, CardsAndSizesThatTorchRefusesAreRefused) {
  const auto refusal = [](const TapedBlock& taped) {
    return taped.program.refusal ? taped.program.refusal->what : std::string("it runs");
  };
  EXPECT_EQ(refusal(float8_layer(Float8Recipe::Tensorwise)), "it runs");
  EXPECT_EQ(
      refusal(float8_layer(Float8Recipe::Tensorwise, 80)),
      "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, and this GPU has "
      "8.0.");
  EXPECT_EQ(refusal(float8_layer(Float8Recipe::Tensorwise, 89)), "it runs");
  EXPECT_NE(refusal(float8_layer(Float8Recipe::Rowwise, 89)).find("CUTLASS"), std::string::npos);
  EXPECT_NE(refusal(float8_layer(Float8Recipe::Tensorwise, 90, 100)).find("100 tokens of a micro-batch"),
            std::string::npos);
  EXPECT_EQ(refusal(float8_layer(Float8Recipe::RowwiseWithGwHp, 90, 100)), "it runs");
}

// Half of 200 TFLOPS, and of the 100 in bf16 where the card's peak is unknown.
TEST(OpRulesOfFloat8, ProductsReachTheShareOfThoseInBf16) {
  Gpu gpu;
  gpu.compute_capability = 90;
  gpu.fp32 = Sourced<FlopsPerSecond>{FlopsPerSecond(10e12)};
  gpu.bf16 = Sourced<FlopsPerSecond>{FlopsPerSecond(100e12)};
  gpu.achievable_compute = {0.5, Provenance::Measured, "fitted"};
  gpu.achievable_bandwidth = {0.5, Provenance::Measured, "fitted"};
  gpu.memory_bandwidth.value = BytesPerSecond(1e12);
  const auto takes = [&] {
    return device_time({.float8_flops = 1e12}, compute_costs(gpu, Dtype::BFloat16, {})).count();
  };
  EXPECT_DOUBLE_EQ(takes(), 0.02);
  gpu.fp8 = Sourced<FlopsPerSecond>{FlopsPerSecond(200e12)};
  EXPECT_DOUBLE_EQ(takes(), 0.01);
}

}  // namespace
}  // namespace fsdp::simulator
