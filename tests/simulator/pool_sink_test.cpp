// Whole plans through pools, which get equal tensors together, and through the caching allocator, which gets them one
// by one.

#include "simulator/memory/pool_sink.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "tests/support/prepared_plan.h"
#include "tests/support/small_models.h"

namespace fsdp::simulator {
namespace {

// Experts of equal shards that two to five ranks cut with and without a rest.
Model experts() {
  planner::SmallTransformer sizes{.layers = 3, .hidden = 192, .heads = 2};
  sizes.experts = *rc::gen::element(0, 4, 7);
  sizes.tied = *rc::gen::arbitrary<bool>();
  return *build_model(planner::small_transformer(sizes));
}

ReshardAfterForward any_reshard(std::int64_t ranks) {
  using Kind = ReshardAfterForward::Kind;
  ReshardAfterForward reshard{.kind = *rc::gen::element(Kind::Always, Kind::Always, Kind::Never, Kind::Smaller)};
  if (reshard.kind != Kind::Smaller) return reshard;
  if (ranks != 4) return {};
  reshard.world_size = 2;
  return reshard;
}

Plan any_plan_of_experts() {
  Plan plan;
  plan.mesh = {1, *rc::gen::inRange<std::int64_t>(1, 6)};
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {.param_dtype = *rc::gen::element(Dtype::BFloat16, Dtype::Float32),
                          .reduce_dtype = Dtype::Float32};
  for (int i = 0; i < 3; ++i)
    plan.units.push_back({{"model.layers." + std::to_string(i)}, any_reshard(plan.mesh.dp_shard())});
  plan.units.push_back({{""}, {}});
  plan.optimizer.kind =
      *rc::gen::element(OptimizerKind::AdamW, OptimizerKind::Adam, OptimizerKind::Sgd, OptimizerKind::BnbAdamW8bit,
                        OptimizerKind::AoAdamW8bit, OptimizerKind::AoAdamW4bit, OptimizerKind::ScheduleFreeAdamW);
  plan.optimizer.implementation = *rc::gen::element(OptimizerImplementation::Foreach, OptimizerImplementation::Foreach,
                                                    OptimizerImplementation::Fused, OptimizerImplementation::ForLoop);
  plan.optimizer.states = *rc::gen::element(OptimizerStates::AsParameter, OptimizerStates::BFloat16);
  plan.optimizer.momentum = plan.optimizer.kind == OptimizerKind::Sgd ? 0.9 : 0;
  plan.optimizer.weight_decay = *rc::gen::element(0.0, 0.1);
  if (*rc::gen::arbitrary<bool>()) plan.optimizer.clip_grad_norm = 1;
  plan.initialization =
      *rc::gen::element(Initialization::Meta, Initialization::Meta, Initialization::Device, Initialization::Cpu);
  plan.accumulation = *rc::gen::element(1, 2);
  return plan;
}

// 100 plans, from any of their ranks.
RC_GTEST_PROP(PoolSink, MatchesTheCachingAllocatorForAWholePlan, ()) {
  const Plan plan = any_plan_of_experts();
  const std::int64_t rank = *rc::gen::inRange<std::int64_t>(0, plan.mesh.dp_shard());
  const PreparedRun run(experts(), plan, 90, rank);
  const AllocatorSettings settings{.expandable_segments = *rc::gen::arbitrary<bool>()};
  PoolSink pools;
  pools.reset(run.prepared().ids.total, settings, kEndlessMemory);
  CachingAllocator allocator({.total = kEndlessMemory}, settings);
  AllocatorSink sink(run.prepared().ids.total, allocator);
  MemoryWalk<PoolSink> walk(run.prepared().walk_input(), pools);
  MemoryWalk<AllocatorSink> other(run.prepared().walk_input(), sink);
  walk.initialize();
  other.initialize();
  for (int step = 0; step <= kNumSteps; ++step) {
    RC_ASSERT(pools.peak_live() == sink.peak_live());
    RC_ASSERT(pools.peak_allocated() == sink.peak_allocated());
    RC_ASSERT(pools.peak_reserved() == sink.peak_reserved());
    if (step == kNumSteps) break;
    pools.reset_peak();
    sink.reset_peak();
    walk.step();
    other.step();
  }
}

// Three of 20 MiB: one as usual, and one each of a warm-up and of a graph, which share nothing. The cache is emptied
// before the graph, and what the graph has freed stays its own.
TEST(PoolSink, AGraphHasAPoolOfItsOwn) {
  constexpr std::int64_t kBytes = 20 << 20;
  PoolSink pools;
  pools.reset(3, {}, kEndlessMemory);
  const auto take_and_free = [&](int id) {
    pools.alloc(id, kBytes, MemoryStream::Compute, MemoryCategory::Temp);
    pools.free(id);
  };
  take_and_free(0);
  EXPECT_EQ(pools.reserved(), Bytes(kBytes));
  pools.begin_warm_up();
  take_and_free(1);
  EXPECT_EQ(pools.reserved(), Bytes(2 * kBytes));
  pools.begin_capture();
  EXPECT_EQ(pools.reserved(), Bytes(0));
  take_and_free(2);
  pools.end_of_graph();
  EXPECT_EQ(pools.reserved(), Bytes(kBytes));
  take_and_free(0);
  EXPECT_EQ(pools.reserved(), Bytes(2 * kBytes));
  EXPECT_EQ(pools.peak_reserved(), Bytes(2 * kBytes));
}

TEST(PoolSink, TensorsAllocatedTogetherAreFreedTogether) {
  PoolSink pools;
  pools.reset(2, {}, kEndlessMemory);
  constexpr std::int64_t kHalf = 1 << 19;
  pools.alloc_alike(0, 6, kHalf, MemoryStream::Compute, MemoryCategory::Temp);  // A segment of 2 MiB and half of one.
  EXPECT_EQ(pools.peak_live(), Bytes(6 * kHalf));
  EXPECT_EQ(pools.peak_reserved(), Bytes(8 * kHalf));
  pools.free_alike(0);
  pools.reset_peak();
  EXPECT_EQ(pools.peak_live(), Bytes(0));
  pools.alloc_alike(1, 8, kHalf, MemoryStream::Compute, MemoryCategory::Temp);
  EXPECT_EQ(pools.peak_allocated(), Bytes(8 * kHalf));
  EXPECT_EQ(pools.peak_reserved(), Bytes(8 * kHalf));
}

}  // namespace
}  // namespace fsdp::simulator
