// The bounds from sums: below the prediction, and near it where one term is most of it. A term that is counted twice
// would go unseen where others hide it.

#include "planner/search/lower_bounds.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/search_cases.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

constexpr int kGpus = 4;

/// Many blocks and next to no activations, so that parameters, gradients and optimizer states are nearly all there is.
Case deep_case() {
  Case c;
  c.spec = small_transformer({.layers = 32, .hidden = 512, .vocabulary = 256, .batch = 1, .sequence = 16});
  c.cluster = small_cluster(kGpus, 1, kPlenty);
  c.space.base = *base_plan(c.spec, c.workload);
  c.space.shard = kGpus;
  c.space.wrap = Wrap{1, {}};
  c.space.wrap_ends = false;
  c.space.cpu_offload = false;
  c.space.checkpoint = CheckpointChoice{};
  c.space.reshard = ReshardChoice{};
  return c;
}

std::int64_t num_parameters(const Case& c) {
  const Model model = *build_model(c.spec, c.workload);
  std::int64_t elements = 0;
  for (const Parameter& parameter : model.parameters) elements += num_elements(parameter.shape);
  return elements;
}

/// For the only plan of a case: what it needs, and the bound of that from sums.
struct Needs {
  std::int64_t predicted = 0;
  std::int64_t bound = 0;
};
Needs needs_of(const Case& c) {
  Engine engine(c);
  const std::vector<Priced> points = price_all(engine);
  EXPECT_EQ(points.size(), 1U);
  return {points[0].needed, engine.cost.bound(points[0].box, static_cast<int>(CostLevel::Sums)).memory};
}

TEST(LowerBounds, ShardedStatesAndGradientsCountOnce) {
  const Case c = deep_case();
  const Needs needs = needs_of(c);
  // Parameter, gradient and two moments in fp32: 16 bytes an element, over 4 ranks.
  const std::int64_t one_of_them = num_parameters(c) * 4 / kGpus;
  EXPECT_LE(needs.bound, needs.predicted);
  EXPECT_LT(needs.predicted - needs.bound, 2 * one_of_them);
}

// Adapters in fp32 on a frozen base in bf16: counted in fp32, the base alone would take more than the whole plan.
TEST(LowerBounds, FrozenParametersCountInTheirOwnDtype) {
  Case c = deep_case();
  c.spec.dtype = Dtype::BFloat16;
  c.workload.lora = LoraOptions{.r = 4};
  c.space.base.lora = c.workload.lora;
  c.space.base.parameter_dtype = Dtype::Float32;
  c.space.base.mixed_precision.param_dtype = Dtype::BFloat16;
  Engine engine(c);
  for (const Priced& point : price_all(engine)) {
    const std::int64_t bound = engine.cost.bound(point.box, static_cast<int>(CostLevel::Sums)).memory;
    EXPECT_LE(bound, point.needed);
    EXPECT_GT(bound, num_parameters(c) * 2 / kGpus);
  }
}

// Only what a foreach step makes beside the moments sets the two apart.
TEST(LowerBounds, RootsOfSecondMomentsCountIfMadeAtOnce) {
  Case c = deep_case();
  c.space.base.optimizer.implementation = OptimizerImplementation::Foreach;
  const Needs foreach = needs_of(c);
  c.space.base.optimizer.implementation = OptimizerImplementation::Fused;
  const Needs fused = needs_of(c);
  const std::int64_t roots = num_parameters(c) * 4 / kGpus;
  EXPECT_LE(foreach.bound, foreach.predicted);
  EXPECT_LE(fused.bound, fused.predicted);
  EXPECT_GT(foreach.bound - fused.bound, roots * 3 / 4);
  EXPECT_LT(foreach.predicted - foreach.bound, roots);
}

TEST(LowerBounds, GradientsReducedOnlyByTheLastMicroBatchCountOnce) {
  for (const std::int64_t micro_batches : {2, 3, 5}) {
    Case c = deep_case();
    c.space.base.accumulation = micro_batches;
    c.space.sync_every_micro_batch = false;
    const Needs needs = needs_of(c);
    // Unsharded, in the fp32 of their reduction.
    const std::int64_t accumulated = num_parameters(c) * 4;
    EXPECT_LE(needs.bound, needs.predicted) << micro_batches;
    EXPECT_LT(needs.predicted - needs.bound, accumulated) << micro_batches;
  }
}

/// Large products and few of them, so that the CPU is always ahead.
Case wide_case(int nodes) {
  Case c;
  c.spec = small_transformer({.layers = 6, .hidden = 2048, .vocabulary = 4096, .batch = 2, .sequence = 512});
  c.cluster = small_cluster(2, nodes, kPlenty);
  c.space.base = *base_plan(c.spec, c.workload);
  c.space.cpu_offload = false;
  c.space.checkpoint_ways = {CheckpointMode::Full, CheckpointMode::Selective};
  c.space.wrap = Wrap{1, {}};
  return c;
}

void expect_the_step_times(const Case& c, const std::string& what) {
  Engine engine(c);
  std::size_t num_points = 0;
  for (const Priced& point : price_all(engine)) {
    const double in_order = engine.cost.bound(point.box, static_cast<int>(CostLevel::Order)).time;
    EXPECT_LE(in_order, point.nanoseconds) << what;
    EXPECT_GT(in_order, point.nanoseconds * 0.99)
        << what << ": " << label_of(engine.families, engine.cost.plan_point_of(point.box));
    ++num_points;
  }
  EXPECT_GT(num_points, 10U) << what;
}

// An order that misses who waits for whom is too low.
TEST(LowerBounds, StepOrderGivesTheTimeIfTheCpuIsAhead) {
  expect_the_step_times(wide_case(1), "one node");
  expect_the_step_times(wide_case(2), "two nodes, hybrids among them");
  Case prefetched = wide_case(1);
  prefetched.space.base.forward_prefetch = 1;
  prefetched.space.base.backward_prefetch = 2;
  expect_the_step_times(prefetched, "gathers further ahead");
  for (const bool each : {true, false}) {
    Case several = wide_case(1);
    several.space.base.accumulation = 3;
    several.space.sync_every_micro_batch = each;
    expect_the_step_times(several, each ? "each micro-batch reduced" : "the last one reduced");
  }
  Case apart = wide_case(2);
  apart.space.base.separate_reduce_scatter_group = true;
  expect_the_step_times(apart, "reductions on a communicator of their own");
}

// DeepSpeed empties the cache when the model is made: what one pool held before and another one holds later does not
// add up.
TEST(LowerBounds, AnEmptiedCacheIsNotReservedAnyMore) {
  Case c;
  c.spec = small_transformer({.layers = 3,
                              .hidden = 512,
                              .vocabulary = 256,
                              .batch = 3,
                              .sequence = 16,
                              .tied = true,
                              .mixed_precision = false});
  c.cluster = small_cluster(1, 1, kPlenty);
  c.space.base = *base_plan(c.spec, c.workload);
  c.space.base.runtime.framework = Framework::Zero3;
  c.space.base.parameter_dtype = Dtype::Float32;
  c.space.base.mixed_precision = {};
  c.space.base.zero = {.reduce_bucket_size = 50'000'000,
                       .overlap_comm = false,
                       .prefetch_bucket_size = 0,
                       .param_persistence_threshold = 1'000'000,
                       .max_live_parameters = 1'000'000,
                       .max_reuse_distance = 1'000'000};
  c.space.shard = 1;
  c.space.wrap = Wrap{.blocks_per_unit = 0};
  c.space.cpu_offload = false;
  c.space.checkpoint = CheckpointChoice{CheckpointMode::Full, 3};
  Engine engine(c);
  const std::vector<Priced> points = price_all(engine);
  ASSERT_FALSE(points.empty());
  for (const Priced& point : points) EXPECT_LE(engine.cost.needed_at_least(point.box), point.needed);
}

}  // namespace
}  // namespace fsdp::planner
