// How units are formed and parameters cut, with figures worked out by hand.

#include "core/plan/sharding.h"
#include "core/frameworks/layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/assemble_model.h"
#include "tests/support/collective_models.h"

namespace fsdp {
namespace {

using Kind = ReshardAfterForward::Kind;

Plan plan_of(Mesh mesh, const std::vector<std::vector<std::string>>& units) {
  Plan plan;
  plan.mesh = mesh;
  for (const auto& modules : units) plan.units.push_back({modules, {}});
  plan.units.push_back({{""}, {}});
  return plan;
}

Layout layout_of(const Model& model, const Plan& plan, std::int64_t rank = 0) {
  const ModelIndex index = index_of(model);
  auto layout = make_layout(index, plan, rank);
  EXPECT_TRUE(layout.has_value()) << to_string(layout.error().front());
  return layout ? *std::move(layout) : Layout{};
}

std::vector<std::string> errors_of(const Model& model, const Plan& plan) {
  const ModelIndex index = index_of(model);
  const auto layout = make_layout(index, plan);
  std::vector<std::string> texts;
  if (layout) return texts;
  for (const Error& error : layout.error()) texts.push_back(to_string(error));
  return texts;
}

std::vector<std::string> names_in(const Model& model, const ShardedUnit& unit) {
  std::vector<std::string> names;
  for (const ShardedParameter& p : unit.parameters) {
    names.push_back(model.parameters[p.parameter].name);
  }
  return names;
}

Parameter& parameter(Model& model, const std::string& name) {
  return *std::find_if(model.parameters.begin(), model.parameters.end(),
                       [&](const Parameter& p) { return p.name == name; });
}

void freeze(Model& model, const std::string& name) {
  parameter(model, name).trainable = false;
  derive_gradient_flow(model);
}

/// One linear layer "fc" with a weight [rows, row].
Model one_linear(std::int64_t rows, std::int64_t row) {
  ModelAssembler model("one linear", Dtype::Float32);
  model.input("x", {2, row}, std::nullopt);
  BlockBuilder b = model.block("fc", "Linear");
  const BlockValue y = b.linear("", b.input("x"), rows);
  b.output("loss", b.mean(b.mean(y, -1, false), -1, false));
  model.call("fc", std::move(b));
  return model.finish("loss");
}

/// stem [8, 6], three blocks of [12, 8] and [8, 12], head [5, 8]; all with biases.
Model chain() {
  return collective_model("mlp", {{"in", "6"}, {"blocks", "8,12,8;8,12,8;8,12,8"}, {"out", "5"}}, Dtype::Float32);
}

Model small_llama(bool tied) {
  const Words sizes = {{"hidden", "32"}, {"layers", "2"},           {"heads", "4"}, {"kv_heads", "2"}, {"ffn", "88"},
                       {"vocab", "101"}, {"tied", tied ? "1" : "0"}};
  return collective_model("llama", sizes, Dtype::Float32);
}

std::vector<std::int64_t> rows_by_rank(std::int64_t rows, std::int64_t ranks) {
  const Model model = one_linear(rows, 3);
  std::vector<std::int64_t> held;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const Layout layout = layout_of(model, plan_of({1, ranks}, {}), rank);
    held.push_back(layout.units[0].parameters[0].local_elements / 3);
  }
  return held;
}

// ---- Cutting: torch.chunk along dimension 0.

TEST(Sharding, RowsAreCutInChunksSoTheLastRanksHoldLess) {
  EXPECT_EQ(rows_by_rank(8, 4), (std::vector<std::int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(rows_by_rank(7, 4), (std::vector<std::int64_t>{2, 2, 2, 1}));
}

TEST(Sharding, TheLastRanksMayHoldNothing) {
  EXPECT_EQ(rows_by_rank(11, 8), (std::vector<std::int64_t>{2, 2, 2, 2, 2, 1, 0, 0}));
  EXPECT_EQ(rows_by_rank(3, 8), (std::vector<std::int64_t>{1, 1, 1, 0, 0, 0, 0, 0}));
}

TEST(Sharding, EveryRankAllocatesTheWholeChunk) {
  // ceil(11 / 8) = 2 rows of 3: 6 elements each, 48 gathered for 33 that exist; the same seen from the last rank.
  const Model model = one_linear(11, 3);
  for (const std::int64_t rank : {0, 7}) {
    const ShardedUnit unit = layout_of(model, plan_of({1, 8}, {}), rank).units[0];
    EXPECT_EQ(unit.shard_elements, 6);
    EXPECT_EQ(unit.full_elements, 48);
    EXPECT_EQ(unit.true_elements, 33);
    EXPECT_EQ(unit.gather_shard_bytes, Bytes(24));
  }
}

TEST(Sharding, FewerRowsThanRanksArePaddedToARowEach) {
  // [3, 8] over 8 ranks: 64 gathered, 24 real.
  const ShardedUnit unit = layout_of(one_linear(3, 8), plan_of({1, 8}, {})).units[0];
  EXPECT_EQ(unit.full_elements, 64);
  EXPECT_EQ(unit.true_elements, 24);
}

TEST(Sharding, OneRankHoldsEverything) {
  const ShardedUnit unit = layout_of(one_linear(7, 3), plan_of({4, 1}, {})).units[0];
  EXPECT_EQ(unit.shard_elements, 21);
  EXPECT_EQ(unit.full_elements, 21);
}

TEST(Sharding, OnlyTheShardAxisSplitsParameters) {
  const Layout layout = layout_of(one_linear(8, 3), plan_of({16, 4}, {}));
  EXPECT_EQ(layout.units[0].shard_elements, 2 * 3);
  EXPECT_EQ(layout.mesh.world_size(), 64);
}

// ---- Units.

TEST(Sharding, UnitOwnsParametersThatNoInnerUnitOwns) {
  const Model model = small_llama(false);
  const Layout layout =
      layout_of(model, plan_of({1, 4}, {{"model.layers.0.mlp"}, {"model.layers.0"}, {"model.layers.1.self_attn"}}));
  ASSERT_EQ(layout.units.size(), 4u);
  EXPECT_EQ(names_in(model, layout.units[0]),
            (std::vector<std::string>{"model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight",
                                      "model.layers.0.mlp.down_proj.weight"}));
  EXPECT_EQ(names_in(model, layout.units[1]),
            (std::vector<std::string>{
                "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
                "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight",
                "model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight"}));
  EXPECT_EQ(layout.units[2].parameters.size(), 4u);
  // The embedding, layer 1 without its attention (3 + 2), norm and head.
  EXPECT_EQ(layout.units[3].parameters.size(), 8u);
  EXPECT_TRUE(layout.units[3].is_root);
  // q [32, 32], k and v [16, 32], o [32, 32], two norms of 32: 3072 + 64, a quarter each.
  EXPECT_EQ(layout.units[1].shard_elements, (3072 + 64) / 4);
}

TEST(Sharding, AModulesOwnParametersComeAfterThoseOfItsChildren) {
  const Model model = collective_model("vit",
                                       {{"image", "28"},
                                        {"patch", "7"},
                                        {"hidden", "24"},
                                        {"layers", "1"},
                                        {"heads", "3"},
                                        {"mlp", "50"},
                                        {"classes", "11"}},
                                       Dtype::Float32);
  const Layout layout = layout_of(model, plan_of({1, 4}, {{"blocks.0"}}));
  EXPECT_EQ(names_in(model, layout.units[1]),
            (std::vector<std::string>{"patch_embed.weight", "patch_embed.bias", "norm.weight", "norm.bias",
                                      "head.weight", "head.bias", "cls_token", "pos_embed"}));
  // Both [1, ., 24]: one row, so each rank holds one, padding on three of four.
  EXPECT_EQ(layout.units[1].parameters[6].shard_elements, 24);
  EXPECT_EQ(layout.units[1].parameters[7].shard_elements, 17 * 24);
}

TEST(Sharding, SeveralModulesAreOneUnitNamedAfterTheFirst) {
  const Model model = chain();
  const Layout layout = layout_of(model, plan_of({1, 2}, {{"blocks.1", "stem"}}));
  EXPECT_EQ(layout.units[0].name, "blocks.1");
  EXPECT_EQ(names_in(model, layout.units[0]),
            (std::vector<std::string>{"blocks.1.fcs.0.weight", "blocks.1.fcs.0.bias", "blocks.1.fcs.1.weight",
                                      "blocks.1.fcs.1.bias", "stem.weight", "stem.bias"}));
}

TEST(Sharding, ATiedParameterLiesInItsUnitOnce) {
  const Model model = small_llama(true);
  const Layout layout = layout_of(model, plan_of({1, 4}, {{"model.layers.0"}, {"model.layers.1"}}));
  EXPECT_EQ(names_in(model, layout.units[2]),
            (std::vector<std::string>{"model.embed_tokens.weight", "model.norm.weight"}));
  // ceil(101 / 4) * 32 + 32 / 4
  EXPECT_EQ(layout.units[2].shard_elements, 840);
}

TEST(Sharding, ARootWithNothingLeftHasNoParameters) {
  const Layout layout =
      layout_of(chain(), plan_of({1, 2}, {{"stem"}, {"blocks.0"}, {"blocks.1"}, {"blocks.2", "head"}}));
  EXPECT_TRUE(layout.units.back().parameters.empty());
  EXPECT_EQ(layout.units.back().full_elements, 0);
}

TEST(Sharding, FrozenParametersAreGatheredAndNotReduced) {
  Model model = chain();
  freeze(model, "blocks.0.fcs.0.weight");
  const ShardedUnit unit = layout_of(model, plan_of({1, 4}, {{"blocks.0"}})).units[0];
  // [12, 8], 12, [8, 12], 8 over 4: 24 + 3 + 24 + 2; without the first: 29.
  EXPECT_EQ(unit.shard_elements, 53);
  EXPECT_EQ(unit.reduced_shard_elements, 29);
  EXPECT_EQ(unit.reduced_full_elements, 4 * 29);
  EXPECT_EQ(unit.reduced_true_elements, 12 + 96 + 8);
  EXPECT_FALSE(unit.parameters[0].receives_gradient);
}

// ---- Precision.

TEST(Sharding, WithoutAPolicyEverythingIsInTheParametersDtype) {
  const ShardedUnit unit = layout_of(one_linear(8, 3), plan_of({1, 4}, {})).units[0];
  EXPECT_EQ(unit.original_dtype, Dtype::Float32);
  EXPECT_EQ(unit.param_dtype, Dtype::Float32);
  EXPECT_EQ(unit.reduce_dtype, Dtype::Float32);
}

TEST(Sharding, ReduceDtypeDefaultsToParamDtype) {
  Plan plan = plan_of({1, 4}, {});
  plan.mixed_precision.param_dtype = Dtype::BFloat16;
  EXPECT_EQ(layout_of(one_linear(8, 3), plan).units[0].reduce_dtype, Dtype::BFloat16);
  plan.mixed_precision.reduce_dtype = Dtype::Float32;
  EXPECT_EQ(layout_of(one_linear(8, 3), plan).units[0].reduce_dtype, Dtype::Float32);
  EXPECT_EQ(layout_of(one_linear(8, 3), plan).units[0].gather_shard_bytes, Bytes(2 * 6));
}

TEST(Sharding, ParameterDtypeIsThatOfTheTrainableShards) {
  Model model = chain();
  for (Parameter& p : model.parameters) p.dtype = Dtype::BFloat16;
  freeze(model, "blocks.0.fcs.0.weight");
  Plan plan = plan_of({1, 4}, {{"blocks.0"}});
  plan.parameter_dtype = Dtype::Float32;
  const Layout layout = layout_of(model, plan);
  EXPECT_EQ(layout.units[0].original_dtype, Dtype::Float32);
  EXPECT_EQ(layout.parameter_dtype[layout.units[0].parameters[0].parameter], Dtype::BFloat16);
}

TEST(Sharding, DifferentInputDtypesAreGatheredAsBytes) {
  // fc [8, 8] in fp32 and a frozen one in bf16, over 4 ranks: 16 * 4 + 16 * 2 bytes each, 384 in all.
  ModelAssembler assembler("two linears", Dtype::Float32);
  assembler.input("x", {2, 8}, std::nullopt);
  BlockBuilder b = assembler.block("fc", "Linear");
  const BlockValue y = b.linear("second", b.linear("first", b.input("x"), 8), 8);
  b.output("loss", b.mean(b.mean(y, -1, false), -1, false));
  assembler.call("fc", std::move(b));
  Model model = assembler.finish("loss");
  parameter(model, "fc.first.weight").dtype = Dtype::BFloat16;
  freeze(model, "fc.first.weight");
  Plan plan = plan_of({1, 4}, {});
  const ShardedUnit mixed = layout_of(model, plan).units[0];
  EXPECT_TRUE(mixed.mixed_gather);
  EXPECT_EQ(mixed.gather_shard_bytes * 4, Bytes(384));
  EXPECT_EQ(mixed.original_dtype, Dtype::Float32);

  plan.mixed_precision.param_dtype = Dtype::BFloat16;
  const ShardedUnit cast = layout_of(model, plan).units[0];
  EXPECT_FALSE(cast.mixed_gather);
  EXPECT_EQ(cast.gather_shard_bytes * 4, Bytes(256));
}

// ---- reshard_after_forward.

TEST(Sharding, ReshardAfterForwardIsOnForUnitsAndOffForTheRootByDefault) {
  const Layout layout = layout_of(chain(), plan_of({1, 4}, {{"blocks.0"}}));
  EXPECT_EQ(layout.units[0].reshard, (ReshardAfterForward{Kind::Always, 0}));
  EXPECT_EQ(layout.units[1].reshard, (ReshardAfterForward{Kind::Never, 0}));
}

TEST(Sharding, GivenReshardAfterForwardIsUsed) {
  for (const ReshardAfterForward given : {ReshardAfterForward{Kind::Always, 0}, ReshardAfterForward{Kind::Never, 0},
                                          ReshardAfterForward{Kind::Smaller, 2}}) {
    Plan plan = plan_of({1, 8}, {{"blocks.0"}});
    plan.units[0].reshard_after_forward = plan.units[1].reshard_after_forward = given;
    const Layout layout = layout_of(chain(), plan);
    EXPECT_EQ(layout.units[0].reshard, given);
    EXPECT_EQ(layout.units[1].reshard, given);
  }
}

TEST(Sharding, TrivialIntegerReshardBecomesFalseOrTrue) {
  Plan plan = plan_of({1, 8}, {{"blocks.0"}});
  plan.units[0].reshard_after_forward = {Kind::Smaller, 1};
  EXPECT_EQ(layout_of(chain(), plan).units[0].reshard, (ReshardAfterForward{Kind::Never, 0}));
  plan.units[0].reshard_after_forward = {Kind::Smaller, 8};
  EXPECT_EQ(layout_of(chain(), plan).units[0].reshard, (ReshardAfterForward{Kind::Always, 0}));
}

// ---- Mistakes.

using Texts = std::vector<std::string>;

TEST(Sharding, UnknownModuleErrorsNameTheNearest) {
  EXPECT_EQ(errors_of(chain(), plan_of({1, 4}, {{"block.0"}, {"stem"}})),
            Texts{"units/0: The model has no module \"block.0\". Did you mean \"blocks.0\"?"});
}

TEST(Sharding, AModuleThatIsNeverCalledCannotBeAUnit) {
  Model model = chain();
  for (Module& module : model.modules) module.called = module.name != "blocks";
  EXPECT_EQ(errors_of(model, plan_of({1, 4}, {{"blocks"}})),
            Texts{"units/0: \"blocks\" is never entered through its own forward, so FSDP2 would never gather it. Wrap "
                  "the modules below it, or leave them to the root."});
}

TEST(Sharding, ModuleMustBeInOneUnitOnly) {
  EXPECT_EQ(errors_of(chain(), plan_of({1, 4}, {{"stem"}, {"blocks.0", "stem"}})),
            Texts{"units/1: \"stem\" is in two units. Name it once."});
}

TEST(Sharding, ModulesOfOneUnitMustNotNest) {
  EXPECT_EQ(errors_of(chain(), plan_of({1, 4}, {{"blocks.0", "blocks.0.fcs.1"}})),
            Texts{"units/0: \"blocks.0\" and \"blocks.0.fcs.1\" are nested. A unit of several modules takes modules "
                  "that do not contain each other."});
}

TEST(Sharding, UnitMustNameAModule) {
  EXPECT_EQ(errors_of(chain(), plan_of({1, 4}, {{}})), Texts{"units/0: The unit has no modules. Name at least one."});
}

TEST(Sharding, RootMustBeAUnit) {
  Plan plan = plan_of({1, 4}, {{"stem"}});
  plan.units.pop_back();
  EXPECT_EQ(errors_of(chain(), plan),
            Texts{"units: No unit wraps the root module. Add a unit with the module \"\" as the last one."});
}

TEST(Sharding, RootMustComeLast) {
  Plan plan = plan_of({1, 4}, {{"stem"}});
  std::swap(plan.units[0], plan.units[1]);
  EXPECT_EQ(errors_of(chain(), plan),
            Texts{"units: The root is not the last unit. fully_shard is called bottom-up: put the root last."});
}

TEST(Sharding, InnerUnitsMustComeFirst) {
  EXPECT_EQ(errors_of(chain(), plan_of({1, 4}, {{"blocks.0"}, {"blocks.0.fcs.1"}})),
            Texts{"units/1: \"blocks.0.fcs.1\" is inside \"blocks.0\", which an earlier unit wraps. fully_shard is "
                  "called bottom-up: put the inner unit first."});
}

TEST(Sharding, IntegerReshardMustDivideTheShardGroup) {
  Plan plan = plan_of({2, 8}, {{"stem"}});
  plan.units[0].reshard_after_forward = {Kind::Smaller, 3};
  plan.units[1].reshard_after_forward = {Kind::Smaller, 0};
  EXPECT_EQ(errors_of(chain(), plan),
            (Texts{"units/0: reshard_after_forward 3 does not divide the shard world size 8. Write a divisor of it, "
                   "true or false.",
                   "units/1: reshard_after_forward 0 does not divide the shard world size 8. Write a divisor of it, "
                   "true or false."}));
}

TEST(Sharding, ATieAcrossUnitsIsRefused) {
  EXPECT_EQ(errors_of(small_llama(true), plan_of({1, 4}, {{"model.embed_tokens"}})),
            Texts{"units: \"model.embed_tokens.weight\" and \"lm_head.weight\" are one parameter, but in two units. "
                  "Wrap both modules as one unit, or leave both to the root."});
  EXPECT_EQ(errors_of(small_llama(true), plan_of({1, 4}, {{"model.embed_tokens", "lm_head"}})), Texts{});
}

TEST(Sharding, TrainableParametersOfAUnitMustShareADtype) {
  Model model = chain();
  parameter(model, "blocks.0.fcs.1.bias").dtype = Dtype::BFloat16;
  EXPECT_EQ(errors_of(model, plan_of({1, 4}, {{"blocks.0"}})),
            Texts{"units/0: \"blocks.0.fcs.0.weight\" is float32 and \"blocks.0.fcs.1.bias\" is bfloat16, but the "
                  "trainable parameters of a unit have one dtype. Set parameter_dtype, or wrap them apart."});
  freeze(model, "blocks.0.fcs.1.bias");
  EXPECT_EQ(errors_of(model, plan_of({1, 4}, {{"blocks.0"}})), Texts{});
}

TEST(Sharding, MoreMicroBatchesThanAStepCanHaveAreRefused) {
  Plan plan = plan_of({1, 4}, {});
  plan.accumulation = 4096;
  EXPECT_EQ(errors_of(chain(), plan), Texts{});
  plan.accumulation = 4097;
  EXPECT_EQ(errors_of(chain(), plan),
            Texts{"accumulation: 4097 micro-batches are too many for one step. Up to 4096 are predicted."});
}

TEST(Sharding, SizesThatMakeNoStepAreRefusedTogether) {
  Plan plan = plan_of({0, 4}, {});
  plan.accumulation = 0;
  plan.backward_prefetch = 0;
  EXPECT_EQ(errors_of(chain(), plan),
            (Texts{"mesh: 0 x 4 is not a mesh. Write sizes of at least 1.",
                   "accumulation: A step needs at least one micro-batch, not 0. Write 1 or more.",
                   "prefetch: forward 0 and backward 0 cannot be set in FSDP2. Forward takes 0 or more units; backward "
                   "1 (the default) or more."}));
}

TEST(Sharding, LayoutSeenFromARankEqualsOneMadeThere) {
  const Model model = small_llama(false);  // 101 rows of tokens, 88 of the FFN, 32 of all else.
  for (const std::int64_t ranks : {1, 3, 4, 8, 40}) {
    Layout layout = layout_of(model, plan_of({1, ranks}, {{"model.layers.0"}}));
    const std::vector<std::int64_t> different = different_ranks(layout);
    ASSERT_EQ(different.front(), 0);
    Layout before = layout;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      see_from(layout, rank);
      EXPECT_EQ(layout, layout_of(model, plan_of({1, ranks}, {{"model.layers.0"}}), rank)) << rank << " of " << ranks;
      Layout same = layout;
      same.rank = before.rank;
      const bool is_new = rank > 0 && same != before;
      EXPECT_EQ(is_new, rank > 0 && std::count(different.begin(), different.end(), rank) == 1)
          << rank << " of " << ranks;
      before = layout;
    }
  }
}

TEST(Sharding, RanksDifferIfRowsDoNotDivide) {
  EXPECT_EQ(different_ranks(layout_of(one_linear(8, 3), plan_of({1, 4}, {}))), (std::vector<std::int64_t>{0}));
  // 7 rows over 4: three times 2, then 1. 5 rows: 2, 2, 1, 0. 6 rows: 2, 2, 2, 0.
  EXPECT_EQ(different_ranks(layout_of(one_linear(7, 3), plan_of({1, 4}, {}))), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(different_ranks(layout_of(one_linear(5, 3), plan_of({1, 4}, {}))), (std::vector<std::int64_t>{0, 2, 3}));
  EXPECT_EQ(different_ranks(layout_of(one_linear(6, 3), plan_of({1, 4}, {}))), (std::vector<std::int64_t>{0, 3}));
}

}  // namespace
}  // namespace fsdp
