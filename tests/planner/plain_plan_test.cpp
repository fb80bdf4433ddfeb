// A plan to look at until the best one is known: valid, small, and as the user fixed it.

#include "planner/search/plain_plan.h"
#include "core/frameworks/check_plan.h"
#include "planner/space/batches.h"

#include <gtest/gtest.h>

#include "core/plan/plan.h"
#include "planner/request/plan_request.h"
#include "simulator/predictor.h"

namespace fsdp::planner {
namespace {

struct Plain {
  Plan plan;
  Model model;
  Cluster cluster;
};

Plain plain(const std::string& model, PlanChoices choices) {
  const ResolvedRequest request = *resolve({.model = model, .choices = std::move(choices)}, "model_specs");
  const std::int64_t micro_batch = *plain_micro_batch(request.space, request.cluster);
  Plain made;
  made.model = *build_model(request.spec, with_micro_batch(request.workload, micro_batch));
  made.cluster = request.cluster;
  const simulator::Predictor predictor(made.model, request.cluster);
  made.plan = *plain_plan(request.space, predictor.index(), request.cluster, micro_batch);
  return made;
}

TEST(PlainPlan, ShardsAndCheckpointsEveryBlock) {
  const Plain made = plain("llama3_1_8b", {.gpus = 8, .gpu_name = "H100 SXM"});
  EXPECT_TRUE(check(made.plan, made.model).empty());
  EXPECT_EQ(made.plan.mesh, (Mesh{1, 8}));
  EXPECT_EQ(made.plan.checkpointing.entries.size(), 32U) << "every block";
  EXPECT_EQ(made.plan.units.size(), 35U) << "blocks, embeddings, head and the root";
  EXPECT_EQ(made.plan.dimensions, made.model.dimensions);
  // What is valid can be predicted.
  EXPECT_TRUE(simulator::Predictor(made.model, made.cluster).report(made.plan).has_value());
}

TEST(PlainPlan, FollowsTheUsersChoices) {
  const Plain made = plain("gpt2", {.gpus = 4,
                                    .gpu_name = "L4",
                                    .global_batch = 64,
                                    .strategy = "NO_SHARD",
                                    .checkpoint = CheckpointChoice{CheckpointMode::None, {}}});
  EXPECT_TRUE(check(made.plan, made.model).empty());
  EXPECT_EQ(made.plan.mesh, (Mesh{4, 1}));
  EXPECT_TRUE(made.plan.checkpointing.entries.empty());
  const Dimension* batch = find_dimension(made.plan.dimensions, kBatchDimension);
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(static_cast<std::int64_t>(batch->value) * made.plan.accumulation * 4, 64);
}

TEST(PlainPlan, ReportsImpossibleChoices) {
  const ResolvedRequest request = *resolve({.model = "gpt2", .choices = {.gpus = 4, .gpu_name = "L4"}}, "model_specs");
  Space space = request.space;
  space.global_batch = 3;
  EXPECT_FALSE(plain_micro_batch(space, request.cluster).has_value());
}

}  // namespace
}  // namespace fsdp::planner
