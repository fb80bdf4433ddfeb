// Experts that several ranks share, from the degrees that a user names to the units of a plan and their parts.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/frameworks/layout.h"
#include "core/model/experts.h"
#include "core/plan/expert_parallel.h"
#include "planner/space/families.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

constexpr Bytes kPlenty{std::int64_t{1} << 40};

struct Shared {
  ModelSpec spec = small_transformer({.layers = 2, .hidden = 64, .experts = 8, .stacked = true});
  Model model = *build_model(spec, {});
  Cluster cluster = small_cluster(8, 1, kPlenty);
  Space space;

  explicit Shared(std::vector<std::int64_t> degrees) {
    space.base = *base_plan(spec, {});
    space.cpu_offload = false;
    space.wrap = Wrap{};
    space.expert_parallel = std::move(degrees);
  }

  /// The first plan of the space whose experts so many ranks share.
  Plan plan_with(std::int64_t ep) const {
    const Families families = *families_of(space, model, cluster);
    for (int f = 0; f < static_cast<int>(families.families.size()); ++f) {
      const Family& family = families.families[static_cast<std::size_t>(f)];
      if (family.mesh.ep == ep) return plan_of(space.base, families, {.family = f});
    }
    return {};
  }
};

TEST(ExpertParallel, EachLayersExpertsAreAUnitOfTheirOwnAndAlwaysResharded) {
  const Plan plan = Shared({1, 4}).plan_with(4);
  ASSERT_GE(plan.units.size(), 2u);
  for (const int layer : {0, 1}) {
    const Unit& unit = plan.units[static_cast<std::size_t>(layer)];
    EXPECT_EQ(unit.modules, std::vector<std::string>{"model.layers." + std::to_string(layer) + ".mlp.experts"});
    EXPECT_EQ(unit.reshard_after_forward.kind, ReshardAfterForward::Kind::Always);
  }
  EXPECT_EQ(Shared({1, 4}).plan_with(1).units.front().modules, std::vector<std::string>{"model.layers.0"});
}

// 8 experts on 4 ranks: 2 each. Two of 8 ranks hold the same ones, and shard them by rows: one expert each.
TEST(ExpertParallel, ARankHasItsOwnExpertsAndThoseWithTheSameShardThem) {
  const Shared shared({4});
  const Plan plan = shared.plan_with(4);
  const ModelIndex index = index_of(shared.model);
  const Layout layout = *make_layout(index, plan);
  const ShardedUnit& experts = layout.units.front();
  EXPECT_TRUE(experts.of_experts);
  EXPECT_EQ(experts.shards, 2);
  const std::int64_t whole = num_elements(shared.model.parameters[experts.parameters.front().parameter].shape);
  EXPECT_EQ(experts.parameters.front().elements, whole / 4);
  EXPECT_EQ(experts.parameters.front().shard_elements, whole / 8);
  EXPECT_EQ(layout.mesh.size(layout.group_of(experts)), 2);
  EXPECT_EQ(layout.mesh.stride(layout.group_of(experts)), 4);
  EXPECT_EQ(layout.units.back().shards, 8);
}

TEST(ExpertParallel, TheFirstRankGetsWhatIsLeftOver) {
  EXPECT_EQ(received_rows(1024, 8, 4), 1024);  // 4 ranks x 128 rows x 2 experts
  EXPECT_EQ(received_rows(1027, 8, 4), 1032);  // 4 ranks x (128 x 2 + 2)
}

TEST(ExpertParallel, WhatCannotBeDividedIsRefusedWithWhatWouldWork) {
  const auto misfit = [](const Shared& shared, std::int64_t shard, std::int64_t ep) {
    Mesh mesh{1, shard};
    mesh.ep = ep;
    const auto error = expert_misfit(shared.space.base, shared.model, mesh, false);
    return error ? error->what + " " + error->hint : "";
  };
  EXPECT_EQ(misfit(Shared({1}), 8, 3), "3 ranks cannot share the 8 experts of a layer evenly. Write one of 2, 4, 8.");
  EXPECT_EQ(misfit(Shared({1}), 4, 8),
            "8 ranks share experts, but a shard group has 4. Write a divisor of the shard group.");
  EXPECT_EQ(misfit(Shared({1}), 8, 8), "");
  Shared dense({1});
  dense.model = *build_model(small_transformer({.layers = 2}), {});
  EXPECT_EQ(misfit(dense, 8, 2),
            "small has no experts whose parameters are stacked, which ranks could share. Plan a mixture of experts as "
            "transformers 5 builds it: \"transformers_version\": \"5.24.0\" in its config.json.");
  Shared ddp({1});
  ddp.space.base.runtime.framework = Framework::Ddp;
  EXPECT_EQ(misfit(ddp, 8, 2),
            "Expert parallelism is predicted beside FSDP2, and this plan is for DDP. Plan for --runtime fsdp2, or "
            "without --ep.");
  EXPECT_EQ(families_of(Shared({3}).space, Shared({3}).model, Shared({3}).cluster).error().front().where, "--ep");
}

TEST(ExpertParallel, ATiedHeadIsRefusedWhereverSharedExpertsAreTried) {
  for (const std::vector<std::int64_t>& ep : {std::vector<std::int64_t>{2}, std::vector<std::int64_t>{1, 2}}) {
    Shared tied(ep);
    tied.model.parameters.front().tied_names = {"lm_head.weight"};
    const auto families = families_of(tied.space, tied.model, tied.cluster);
    ASSERT_FALSE(families);
    EXPECT_NE(families.error().front().what.find("A tied head"), std::string::npos);
  }
}

// Mixtral's weights of a token's experts are in fp32, and torch.utils.checkpoint raises a CheckpointError under mixed
// precision; GLM-4.5 has shared experts, whose tensors are read before that.
TEST(ExpertParallel, BlocksWithWideRoutingWeightsAreNotCheckpointedUnderMixedPrecision) {
  Shared shared({2});
  const auto checkpointed = [&] {
    const Families families = *families_of(shared.space, shared.model, shared.cluster);
    const auto runs_again = [](const Family& family) { return family.checkpointed.back() > 0; };
    return std::any_of(families.families.begin(), families.families.end(), runs_again);
  };
  shared.space.base.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  EXPECT_TRUE(checkpointed());
  for (Block& block : shared.model.blocks) {
    for (const Op& op : block.ops) {
      if (op.kind == OpKind::GroupedExperts) block.values[op.inputs[1]].dtype = Dtype::Float32;
    }
  }
  EXPECT_FALSE(checkpointed());
  shared.space.checkpoint = CheckpointChoice{.way = {CheckpointMode::Full}};
  EXPECT_EQ(families_of(shared.space, shared.model, shared.cluster).error().front().where, "mesh/ep");
  shared.space.base.mixed_precision = {};
  EXPECT_TRUE(checkpointed());
}

}  // namespace
}  // namespace fsdp::planner
