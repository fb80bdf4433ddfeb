// The part of the margin for memory that FSDP1 and ZeRO have freed and other streams still hold. Against the real ones:
// tests/rehearsal/plan_runner_test.py, fsdp1_held and zero_held.

#include <gtest/gtest.h>

#include "simulator/memory/device_terms.h"
#include "simulator/predictor.h"
#include "tests/support/small_models.h"
#include "tests/support/spec_models.h"

namespace fsdp::simulator {
namespace {

Plan plan_for(Framework framework, int gpus) {
  Plan plan;
  plan.runtime.framework = framework;
  plan.mesh = {1, gpus};
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  for (int i = 0; i < 6; ++i) plan.units.push_back({{"model.layers." + std::to_string(i)}, {}});
  plan.units.push_back({{""}, {}});
  return plan;
}

struct Held {
  StepReport report;
  Outcome quick;
};

Held predicted_of(const Model& model, const Plan& plan, Bytes memory = Bytes(15LL << 30)) {
  Predictor predictor(model, planner::small_cluster(static_cast<int>(plan.mesh.dp_shard()), 1, memory));
  auto report = predictor.report(plan);
  EXPECT_TRUE(report.has_value()) << (report ? "" : to_string(report.error().front()));
  auto quick = predictor.evaluate(plan, Detail::Device);
  EXPECT_TRUE(quick.has_value());
  return {report.value_or(StepReport{}), quick.value_or(Outcome{})};
}

Held predicted(const Plan& plan, Bytes memory = Bytes(15LL << 30)) {
  const planner::SmallTransformer sizes{.layers = 6, .hidden = 512, .heads = 8};
  return predicted_of(*build_model(planner::small_transformer(sizes)), plan, memory);
}

TEST(HeldMemory, IsPartOfTheMarginOfFsdp1) {
  const auto [report, quick] = predicted(plan_for(Framework::Fsdp1, 4));
  EXPECT_GT(report.memory.held, Bytes(0));
  EXPECT_GT(report.memory.margin, report.memory.held);
  EXPECT_EQ(quick.margin, report.memory.margin) << "The search and the report say the same.";
}

TEST(HeldMemory, IsZeroIfStreamsAreNotRecorded) {
  EXPECT_EQ(predicted(plan_for(Framework::Fsdp2, 4)).report.memory.held, Bytes(0));
}

TEST(HeldMemory, IsLessIfTheCpuWaitsForGathers) {
  Plan plan = plan_for(Framework::Fsdp1, 4);
  const MemoryReport limited = predicted(plan).report.memory;
  plan.fsdp1.limit_all_gathers = false;
  const MemoryReport free = predicted(plan).report.memory;
  EXPECT_GT(free.held, limited.held);
  ASSERT_EQ(free.peaks.device, limited.peaks.device);
  EXPECT_EQ(free.margin - limited.margin, free.held - limited.held);
}

Plan zero_plan_for(Framework framework) {
  Plan plan = plan_for(framework, 4);
  plan.units = {{{""}, {}}};
  plan.mixed_precision.reduce_dtype = Dtype::BFloat16;
  plan.zero = default_zero_options(framework);
  plan.zero.overlap_comm = true;
  return plan;
}

// A block has some 3.1 million parameters. What a forward gathers and lets go is held to its end: all blocks, and of
// each one at a time is there anyway.
TEST(HeldMemory, ForZero3IsTheParametersThatForwardReleases) {
  Plan plan = zero_plan_for(Framework::Zero3);
  plan.zero.max_reuse_distance = plan.zero.prefetch_bucket_size = plan.zero.param_persistence_threshold = 0;
  const auto [report, quick] = predicted(plan);
  EXPECT_GT(report.memory.held, Bytes(2 * 4 * 3'100'000));
  EXPECT_EQ(quick.margin, report.memory.margin) << "The search and the report say the same.";
  plan.zero.max_reuse_distance = 1'000'000'000;
  EXPECT_LT(predicted(plan).report.memory.held, report.memory.held) << "Less is let go.";
  plan.zero.overlap_comm = false;
  EXPECT_EQ(predicted(plan).report.memory.held, Bytes(0)) << "All is on one stream.";
}

// The last convolutions of a ResNet have most of its parameters and the smallest outputs, so that their gradients come
// while most activations are still there.
TEST(HeldMemory, ForZero2IsGradientsLargerThanTheBucket) {
  const Model model = model_of("resnet18.json", {.dimensions = {{"batch", 16}}});
  Plan plan = zero_plan_for(Framework::Zero2);
  plan.mixed_precision = {};
  plan.optimizer.kind = OptimizerKind::Sgd;
  EXPECT_EQ(predicted_of(model, plan).report.memory.held, Bytes(0));
  plan.zero.reduce_bucket_size = 1'000'000;
  EXPECT_GT(predicted_of(model, plan).report.memory.held, Bytes(10 << 20));
  plan.zero.overlap_comm = false;
  EXPECT_EQ(predicted_of(model, plan).report.memory.held, Bytes(0));
}

/// What a CPU may find held on one GPU, where nothing of FSDP1 makes it wait.
Bytes held_alone(int layers) {
  Plan plan = plan_for(Framework::Fsdp1, 1);
  plan.units.clear();
  for (int i = 0; i < layers; ++i) plan.units.push_back({{"model.layers." + std::to_string(i)}, {}});
  plan.units.push_back({{""}, {}});
  const planner::SmallTransformer sizes{.layers = layers, .hidden = 512, .heads = 8};
  return predicted_of(*build_model(planner::small_transformer(sizes)), plan).report.memory.held;
}

// A stream takes about 1,024 launches: some dozens of layers, however many there are. Three whole steps would be
// twice as much of twice the layers.
TEST(HeldMemory, IsBoundedByTheLaunchQueue) {
  const Bytes of_eighty = held_alone(80);
  EXPECT_GT(of_eighty, Bytes(0));
  EXPECT_LT(held_alone(160).count(), 1.2 * static_cast<double>(of_eighty.count()));
}

// The same of ZeRO-3, whose forward makes its CPU wait for nothing else: all blocks would be as many times as much.
TEST(HeldMemory, ForZero3IsBoundedByTheLaunchQueue) {
  const auto held = [](int layers) {
    Plan plan = zero_plan_for(Framework::Zero3);
    plan.optimizer.kind = OptimizerKind::Sgd;
    plan.zero.max_reuse_distance = plan.zero.prefetch_bucket_size = plan.zero.param_persistence_threshold = 0;
    const planner::SmallTransformer sizes{.layers = layers, .hidden = 512, .heads = 8};
    return predicted_of(*build_model(planner::small_transformer(sizes)), plan).report.memory.held;
  };
  const Bytes of_many = held(320);
  EXPECT_GT(of_many, Bytes(2 * 10 * 3'100'000));
  EXPECT_LT(held(640).count(), 1.2 * static_cast<double>(of_many.count()));
}

// For 10 GiB and a context of 400 MiB that is assumed: 7.5 % or, of FSDP1, 6 %, 3 % in expandable segments; a quarter
// of the context; and what a release was seen to reserve beyond.
TEST(Margin, DependsOnFrameworkSegmentsAndRelease) {
  const std::vector<DeviceTerm> outside = {{"CUDA context", Bytes(400 << 20), Provenance::Assumed, ""}};
  const auto margin_of = [&](const Plan& plan) { return margin(Bytes(10LL << 30), outside, plan).count() >> 20; };
  Plan plan = plan_for(Framework::Fsdp2, 4);
  EXPECT_EQ(margin_of(plan), 768 + 100);
  EXPECT_EQ(margin_of(zero_plan_for(Framework::Zero3)), 768 + 100);
  EXPECT_EQ(margin_of(plan_for(Framework::Fsdp1, 4)), 614 + 100);
  plan.runtime.allocator_settings = "expandable_segments:True";
  EXPECT_EQ(margin_of(plan), 307 + 100);
  plan.runtime.version = "2.12.1";
  EXPECT_EQ(margin_of(plan), 307 + 768 + 100);
}

// The margin covers errors of predictions; a figure of the user has none.
TEST(Margin, OtherProgramsAddToThePeakAndNotToTheMargin) {
  const Model model = *build_model(planner::small_transformer());
  const auto memory_with = [&](std::optional<Sourced<Bytes>> others) {
    Cluster cluster = planner::small_cluster(2, 1, Bytes(15LL << 30));
    cluster.reserved_memory = std::move(others);
    Plan plan;
    plan.mesh = {1, 2};
    plan.units = {{{""}, {}}};
    return Predictor(model, cluster).report(plan)->memory;
  };
  const MemoryReport alone = memory_with({});
  const MemoryReport beside = memory_with(Sourced<Bytes>{Bytes(5LL << 30), Provenance::Given, "--reserve"});
  EXPECT_EQ(beside.peaks.device, alone.peaks.device + Bytes(5LL << 30));
  EXPECT_EQ(beside.peaks.reserved, alone.peaks.reserved);
  EXPECT_EQ(beside.margin, alone.margin);
  EXPECT_EQ(beside.device_terms[1].name, kOtherPrograms);
}

// From what has room to what does not run: the report and the short answer of a search say the same.
TEST(HeldMemory, MakesAPlanTightButRefusesNone) {
  const Plan plan = plan_for(Framework::Fsdp1, 4);
  const MemoryReport memory = predicted(plan).report.memory;
  const Bytes needed = memory.peaks.device + memory.margin;
  const auto answer = [&](Bytes budget) {
    const Held found = predicted(plan, budget);
    Predictor predictor(*build_model(planner::small_transformer({.layers = 6, .hidden = 512, .heads = 8})),
                        planner::small_cluster(4, 1, budget));
    const auto tight = predictor.evaluate(plan, Detail::Tight);
    const DeviceVerdict said{found.report.verdict, found.report.memory.tightness};
    EXPECT_EQ(tight->device, said);
    EXPECT_EQ(tight->needed <= budget, said.verdict == Verdict::Fits || found.quick.fits);
    return said;
  };
  EXPECT_EQ(answer(needed - Bytes(1)), (DeviceVerdict{Verdict::Fits, Tightness::Streams}));
  EXPECT_EQ(answer(needed - memory.held), (DeviceVerdict{Verdict::Fits, Tightness::Streams}));
  EXPECT_EQ(answer(needed - memory.held - Bytes(1)), (DeviceVerdict{Verdict::Fits, Tightness::Margin}));
  EXPECT_EQ(answer(memory.peaks.device), (DeviceVerdict{Verdict::Fits, Tightness::Margin}));
  EXPECT_EQ(answer(memory.peaks.device - Bytes(4 << 20)), (DeviceVerdict{Verdict::Fits, Tightness::Flushes}));
  // Its tensors, without what the allocator wastes.
  EXPECT_EQ(answer(memory.peaks.device - memory.peaks.reserved + memory.peaks.allocated - Bytes(4 << 20)),
            (DeviceVerdict{Verdict::DoesNotFit, Tightness::None}));
}

TEST(HeldMemory, DecidesWhetherAPlanFits) {
  const Plan plan = plan_for(Framework::Fsdp1, 4);
  const MemoryReport& memory = predicted(plan).report.memory;
  const Bytes needed = memory.peaks.device + memory.margin;
  EXPECT_TRUE(predicted(plan, needed).quick.fits);
  EXPECT_FALSE(predicted(plan, needed - memory.held).quick.fits);
  EXPECT_FALSE(predicted(plan, needed - Bytes(1)).quick.fits);
}

}  // namespace
}  // namespace fsdp::simulator
