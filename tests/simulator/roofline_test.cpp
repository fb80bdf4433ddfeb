// What float32 runs as, which share of a peak an op reaches, the band of a card that nobody timed, and what is kept
// back for convolutions.

#include "simulator/time/roofline.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "simulator/memory/device_terms.h"
#include "tests/support/prepared_plan.h"
#include "tests/support/spec_models.h"
#include "tests/support/taped_block.h"

namespace fsdp::simulator {
namespace {

/// Round figures: 10 TFLOPS in fp32, 80 in TF32, 160 in bf16, half of which products reach.
Gpu card() {
  Gpu gpu;
  gpu.compute_capability = 80;
  gpu.fp32 = Sourced<FlopsPerSecond>{FlopsPerSecond(10e12)};
  gpu.tf32 = Sourced<FlopsPerSecond>{FlopsPerSecond(80e12)};
  gpu.bf16 = Sourced<FlopsPerSecond>{FlopsPerSecond(160e12)};
  gpu.achievable_compute = {0.5, Provenance::Measured, "fitted"};
  gpu.achievable_bandwidth = {0.5, Provenance::Measured, "fitted"};
  gpu.memory_bandwidth.value = BytesPerSecond(1e12);
  return gpu;
}

TEST(Roofline, ConvolutionsInFloat32RunAsTf32AndProductsDoNot) {
  const ComputeCosts costs = compute_costs(card(), Dtype::Float32, {});
  EXPECT_EQ(costs.rates().gemm, FlopsPerSecond(5e12));
  EXPECT_EQ(costs.rates().convolution, FlopsPerSecond(40e12));
  EXPECT_EQ(costs.rates().peak, FlopsPerSecond(10e12));
  EXPECT_EQ(costs.rates().convolution_peak, FlopsPerSecond(80e12));
  // 1 TFLOP of each: 0.2 s and 0.025 s.
  EXPECT_DOUBLE_EQ(device_time({.gemm_flops = 1e12}, costs).count(), 0.2);
  EXPECT_DOUBLE_EQ(device_time({.convolution_flops = 1e12}, costs).count(), 0.025);
}

TEST(Roofline, RuntimeDecidesUseOfTf32) {
  const ComputeCosts neither = compute_costs(card(), Dtype::Float32, {.cudnn_allow_tf32 = false});
  EXPECT_EQ(neither.rates().convolution, FlopsPerSecond(5e12));
  const ComputeCosts both = compute_costs(card(), Dtype::Float32, {.matmul_allow_tf32 = true});
  EXPECT_EQ(both.rates().gemm, FlopsPerSecond(40e12));
  Gpu older = card();
  older.tf32.reset();
  EXPECT_EQ(compute_costs(older, Dtype::Float32, {}).rates().convolution, FlopsPerSecond(5e12));
  EXPECT_EQ(compute_costs(card(), Dtype::BFloat16, {}).rates().convolution, FlopsPerSecond(80e12));
}

// Autocast: float32 activations, and products in bfloat16, which the card does 16 times as fast.
TEST(Roofline, AnOpRunsAtTheRateOfTheDtypeThatItComputesIn) {
  const ComputeCosts costs = compute_costs(card(), Dtype::Float32, {});
  EXPECT_DOUBLE_EQ(device_time({.gemm_flops = 16e12}, costs).count(), 3.2);
  EXPECT_DOUBLE_EQ(device_time({.gemm_flops = 16e12, .arithmetic = Dtype::BFloat16}, costs).count(), .2);
  const ComputeCosts in_16_bits = compute_costs(card(), Dtype::BFloat16, {});
  EXPECT_DOUBLE_EQ(device_time({.gemm_flops = 16e12, .arithmetic = Dtype::Float32}, in_16_bits).count(), 3.2);
}

// y = x W' with 6 rows, 4 inner and 8 columns: dx sums over the columns, dW over the rows.
TEST(Roofline, AProductAndItsGradientsHaveTheirSizes) {
  for (const bool bias : {false, true}) {
    BlockBuilder b("op", "Op", {{"x", {2, 3, 4}}});
    b.output("y", b.linear("l", b.input("x"), 8, {.bias = bias}));
    const OpWork work = tape_block(std::move(b)).tape.work.front();
    EXPECT_EQ(work.forward.products, (std::vector<ProductSizes>{{1, 6, 8, 4}})) << bias;
    std::vector<ProductSizes> of_gradients = work.backward.products;
    if (!bias) std::swap(of_gradients[0], of_gradients[1]);
    EXPECT_EQ(of_gradients, (std::vector<ProductSizes>{{1, 6, 4, 8}, {1, 4, 8, 6}})) << bias;
    double flops = 0;
    for (const ProductSizes& product : of_gradients) flops += product.flops();
    EXPECT_EQ(flops, work.backward.gemm_flops);
  }
}

TEST(Roofline, ShapeWithHalfTheShareTakesTwiceAsLong) {
  Gpu gpu = card();
  auto tables = std::make_shared<Measurements>();
  tables->products = MeasuredProducts{
      .m = {1, 1000}, .n = {1, 2}, .k = {1, 2}, .share = {.4, .4, .4, .4, .8, .8, .8, .8}, .large = .8};
  gpu.measured = MeasuredCard(std::move(tables));
  const ComputeCosts costs = compute_costs(gpu, Dtype::BFloat16, {});
  const auto time = [&](const ProductSizes& product) {
    return device_time({.gemm_flops = product.flops(), .products = {product}}, costs) /
           Seconds(product.flops() / 80e12);
  };
  EXPECT_DOUBLE_EQ(time({1, 1000, 1000, 1000}), 1);
  EXPECT_DOUBLE_EQ(time({1, 1, 1000, 1000}), 2);
  EXPECT_DOUBLE_EQ(time({1000, 1, 1000, 1000}), 1);  // A batch has the rows of all of it.
  // The tables are of 16 bits.
  EXPECT_DOUBLE_EQ(
      device_time({.gemm_flops = 5e12, .products = {{1, 1, 1, 1}}}, compute_costs(gpu, Dtype::Float32, {})).count(), 1);
}

TEST(Roofline, AttentionHasAShareOfItsOwn) {
  Gpu gpu = card();
  EXPECT_DOUBLE_EQ(compute_costs(gpu, Dtype::BFloat16, {}).rates().attention.count(), 160e12 * 0.5 * kAttentionShare);
  gpu.achievable_attention = Sourced<double>{0.25, Provenance::Measured, "fitted"};
  EXPECT_DOUBLE_EQ(compute_costs(gpu, Dtype::BFloat16, {}).rates().attention.count(), 40e12);
}

// A tenth more in 16 bits, half more in TF32, and 8 of the 10 TFLOPS in fp32.
TEST(Roofline, EachPrecisionHasItsPace) {
  Gpu gpu = card();
  gpu.fp16 = Sourced<FlopsPerSecond>{FlopsPerSecond(160e12)};
  gpu.achievable_fp32 = Sourced<double>{.8, Provenance::Measured, "products"};
  gpu.pace_16_bit = Sourced<double>{1.1, Provenance::Measured, "steps"};
  gpu.pace_tf32 = Sourced<double>{1.5, Provenance::Measured, "steps"};
  const auto seconds = [&](Dtype dtype, bool tf32, const OpWork::Part& part) {
    return device_time(part, compute_costs(gpu, dtype, {.matmul_allow_tf32 = tf32})).count();
  };
  for (const Dtype dtype : {Dtype::BFloat16, Dtype::Float16}) {
    EXPECT_NEAR(seconds(dtype, false, {.gemm_flops = 80e12}), 1.1, 1e-9);
    EXPECT_NEAR(seconds(dtype, false, {.bytes = .5e12}), 1.1, 1e-9);
    EXPECT_NEAR(seconds(dtype, false, {.attention_flops = 160e12 * .5 * kAttentionShare}), 1.1, 1e-9);
  }
  EXPECT_NEAR(seconds(Dtype::Float32, true, {.gemm_flops = 40e12}), 1.5, 1e-9);
  EXPECT_NEAR(seconds(Dtype::Float32, true, {.bytes = .5e12}), 1.5, 1e-9);
  EXPECT_NEAR(seconds(Dtype::Float32, false, {.gemm_flops = 8e12}), 1, 1e-9);
  EXPECT_NEAR(seconds(Dtype::Float32, false, {.bytes = .5e12}), 1, 1e-9);
  // Convolutions run as TF32 all the same; bf16 without hardware runs at fp32's rate and share.
  EXPECT_NEAR(seconds(Dtype::Float32, false, {.convolution_flops = 40e12}), 1.5, 1e-9);
  gpu.bf16.reset();
  EXPECT_NEAR(seconds(Dtype::BFloat16, false, {.gemm_flops = 8e12}), 1, 1e-9);
}

TEST(Roofline, TheBandOfACardIsTheSpreadOfItsSteps) {
  Gpu gpu = card();
  gpu.time_spread = Sourced<double>{1.25, Provenance::Assumed, "steps of other cards"};
  const UncertaintyBand fitted = compute_band(card(), Dtype::BFloat16);
  EXPECT_EQ(compute_band(gpu, Dtype::BFloat16), fitted);
  EXPECT_EQ(compute_band(gpu, Dtype::Float32), (UncertaintyBand{.low = .8, .high = 1.25}));
  gpu.achievable_compute.provenance = Provenance::Assumed;
  EXPECT_EQ(compute_band(gpu, Dtype::BFloat16), (UncertaintyBand{.low = .8, .high = 1.25}));
}

TEST(Roofline, BandIsNarrowOnlyForCardsWithPublishedSteps) {
  Gpu borrowed = card();
  borrowed.achievable_compute.provenance = Provenance::Assumed;
  const UncertaintyBand fitted = compute_band(card(), Dtype::BFloat16);
  for (const UncertaintyBand& wide : {compute_band(borrowed, Dtype::BFloat16), compute_band(card(), Dtype::Float32)}) {
    EXPECT_LT(wide.low, fitted.low);
    EXPECT_GT(wide.high, fitted.high);
  }
}

Plan plan_of_root() {
  Plan plan;
  plan.mesh = {1, 1};
  plan.units = {{.modules = {""}}};
  return plan;
}

// The first convolution of ResNet-18 in fp32, 32 images: 3 x 224 x 224 in, 64 x 112 x 112 out, 64 filters of 3 x 7 x 7:
// 32 (150,528 + 802,816) + 9,408 elements are 122,065,664 bytes, and half as much again 183,098,496.
TEST(ConvolutionWorkspace, LargestConvolutionDecidesAndMarginIncludesIt) {
  const PreparedRun run(model_of("resnet18.json"), plan_of_root(), 80);
  EXPECT_EQ(convolution_workspace(run.prepared()), Bytes(183'098'496));
  PoolSink pools;
  CachingAllocator allocator;
  const Result<MemoryPrediction> memory = predict_memory(run.prepared(), pools, allocator);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->margin, margin(memory->peaks.reserved, memory->outside, run.prepared().plan) + Bytes(183'098'496));
}

TEST(ConvolutionWorkspace, IsZeroWithoutConvolutionsAndOnCpu) {
  EXPECT_EQ(convolution_workspace(PreparedRun(model_of("mlp.json"), plan_of_root(), 80).prepared()), Bytes(0));
  EXPECT_EQ(convolution_workspace(PreparedRun(model_of("resnet18.json"), plan_of_root(), 0).prepared()), Bytes(0));
}

// 16 nodes, of which the slowest takes 6.2 % longer.
TEST(Roofline, SeveralNodesWaitForTheSlowestNode) {
  Cluster cluster{.gpu = card()};
  const OpWork::Part part{.gemm_flops = 5e12, .bytes = 1e9, .num_kernels = 100};
  const Seconds alone = device_time(part, compute_costs(cluster, Dtype::BFloat16, {}));
  EXPECT_EQ(alone, device_time(part, compute_costs(card(), Dtype::BFloat16, {})));
  cluster.nodes = 16;
  const ComputeCosts costs = compute_costs(cluster, Dtype::BFloat16, {});
  EXPECT_NEAR(device_time(part, costs) / alone, 1.062, .001);
  EXPECT_EQ(costs.rates().peak, compute_costs(card(), Dtype::BFloat16, {}).rates().peak);
  cluster.node_spread = {0, Provenance::Given, "test"};
  EXPECT_EQ(device_time(part, compute_costs(cluster, Dtype::BFloat16, {})), alone);
}

}  // namespace
}  // namespace fsdp::simulator
