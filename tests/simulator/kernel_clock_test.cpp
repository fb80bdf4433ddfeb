// One product or attention by itself and in a step.

#include "simulator/time/kernel_clock.h"

#include <gtest/gtest.h>

#include <memory>

namespace fsdp::simulator {
namespace {

/// 100 TFLOPS in bf16, of which training reaches half; measured: 0.8 of large products and 0.4 of one row.
Gpu measured_card(bool is_measured) {
  Gpu gpu;
  gpu.name = "Card";
  gpu.compute_capability = 80;
  gpu.fp32 = Sourced<FlopsPerSecond>{FlopsPerSecond(10e12)};
  gpu.fp16 = gpu.bf16 = Sourced<FlopsPerSecond>{FlopsPerSecond(100e12)};
  gpu.achievable_compute = {0.5, Provenance::Measured, "fitted"};
  gpu.achievable_attention = Sourced<double>{0.25, Provenance::Measured, "fitted"};
  gpu.achievable_bandwidth = {0.5, Provenance::Measured, "fitted"};
  gpu.memory_bandwidth.value = BytesPerSecond(1e12);
  if (!is_measured) return gpu;
  auto tables = std::make_shared<Measurements>();
  tables->gpus = {"Card"};
  tables->package = "tables 1.0";
  tables->products = MeasuredProducts{.table = "t",
                                      .dtype = "bf16",
                                      .peak = FlopsPerSecond(100e12),
                                      .m = {1, 1000},
                                      .n = {1, 1000},
                                      .k = {1, 1000},
                                      .share = {.4, .4, .4, .4, .8, .8, .8, .8},
                                      .large = .8,
                                      .held_back = {.shapes = 9, .median = .05, .p90 = .2}};
  tables->attention.push_back({.table = "a",
                               .causal = true,
                               .head_size = 100,
                               .peak = FlopsPerSecond(100e12),
                               .heads = {1, 10},
                               .sequence = {100, 1000},
                               .share = {.5, .5, .5, .5},
                               .held_back = {.p90 = .01}});
  gpu.measured = MeasuredCard(std::move(tables));
  return gpu;
}

TEST(KernelClock, ProductUsesTheMeasuredTimeAloneAndTheShareInAStep) {
  // 2e9 FLOPs: 25 us at 80 TFLOPS, 40 us at 50 and 2 us of a kernel.
  const KernelClock clock = clock_product(measured_card(true), Dtype::BFloat16, false, {1000, 1000, 1000});
  EXPECT_NEAR(clock.alone.time.count(), 25e-6, 1e-12);
  EXPECT_EQ(clock.alone.band, (UncertaintyBand{.8, 1.2}));
  EXPECT_EQ(clock.alone.source, "measured on Card: t of tables 1.0");
  EXPECT_NEAR(clock.in_step.time.count(), 42e-6, 1e-12);
}

TEST(KernelClock, AStepIsCorrectedForTheShape) {
  // One row reaches half of what large products do: 2e6 FLOPs at 25 TFLOPS, and 2 us.
  const KernelClock clock = clock_product(measured_card(true), Dtype::BFloat16, false, {1, 1000, 1000});
  EXPECT_NEAR(clock.in_step.time.count(), 2.08e-6, 1e-12);
  EXPECT_EQ(clock.in_step.source,
            "0.5 of the peak rate, the share of training steps (measured), corrected for the shape");
}

TEST(KernelClock, MissingTableOfADtypeLeavesTheTrainingShare) {
  const KernelClock none = clock_product(measured_card(false), Dtype::BFloat16, false, {1000, 1000, 1000});
  EXPECT_EQ(none.alone, none.in_step);
  const KernelClock fp32 = clock_product(measured_card(true), Dtype::Float32, false, {1000, 1000, 1000});
  EXPECT_EQ(fp32.alone, fp32.in_step);
  EXPECT_NEAR(fp32.alone.time.count(), 402e-6, 1e-12);
}

TEST(KernelClock, ACausalMaskHalvesWhatIsMeasuredButNotTheRoofline) {
  // 4 x 10 heads x 1000 x 1000 x 100 = 4e9 FLOPs with all scores: 2e9 at 50 TFLOPS alone, 4e9 at 25 in a step.
  const AttentionShape shape{.batch = 2, .heads = 5, .sequence = 1000, .head_size = 100, .causal = true};
  const KernelClock clock = clock_attention(measured_card(true), Dtype::BFloat16, shape);
  EXPECT_EQ(clock.work, Flops(2e9));
  EXPECT_NEAR(clock.alone.time.count(), 40e-6, 1e-12);
  EXPECT_EQ(clock.alone.band, (UncertaintyBand{.9, 1.1}));
  EXPECT_NEAR(clock.in_step.time.count(), 162e-6, 1e-12);
}

TEST(KernelClock, OtherHeadSizesAreUnmeasured) {
  const KernelClock clock = clock_attention(measured_card(true), Dtype::BFloat16,
                                            {.heads = 5, .sequence = 1000, .head_size = 64, .causal = true});
  EXPECT_EQ(clock.alone, clock.in_step);
}

}  // namespace
}  // namespace fsdp::simulator
