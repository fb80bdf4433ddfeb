// The plans that points of the space mean.

#include "planner/space/families.h"
#include "core/frameworks/check_plan.h"
#include "core/frameworks/layout.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/plan/schedule.h"
#include "planner/space/plan_sentence.h"
#include "planner/space/strategy_names.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

using Kind = ReshardAfterForward::Kind;

struct Points {
  explicit Points(const SmallTransformer& sizes, int gpus = 4, int nodes = 1)
      : Points(small_transformer(sizes), gpus, nodes) {}
  explicit Points(const ModelSpec& spec, int gpus = 4, int nodes = 1)
      : model(*build_model(spec)), cluster(small_cluster(gpus, nodes, Bytes(1 << 30))) {
    space.base = *base_plan(spec, {});
    space.every_number = true;
  }

  std::vector<PlanPoint> all() {
    families = *families_of(space, model, cluster);
    std::vector<PlanPoint> choices;
    for (std::size_t f = 0; f < families.families.size(); ++f) {
      for (const std::int32_t kept : families.families[f].kept) {
        for (const std::int32_t blocks : families.families[f].checkpointed) {
          const auto ways = blocks == 0 ? std::size_t{1} : families.families[f].ways.size();
          for (std::size_t w = 0; w < ways; ++w) {
            choices.push_back({static_cast<int>(f), kept, blocks, static_cast<std::int32_t>(w)});
          }
        }
      }
    }
    return choices;
  }

  Model model;
  Cluster cluster;
  Space space;
  Families families;
};

void expect_valid_and_distinct(Points points) {
  std::set<std::string> labels;
  std::vector<Plan> plans;
  const std::vector<PlanPoint> all = points.all();
  EXPECT_EQ(static_cast<std::int64_t>(all.size()), points.families.size());
  for (const PlanPoint& plan_point : all) {
    const Plan plan = plan_of(points.space.base, points.families, plan_point);
    const std::string label = label_of(points.families, plan_point);
    EXPECT_EQ(check(plan, points.model), Errors{}) << label;
    EXPECT_EQ(plan.mesh.world_size(), world_size(points.cluster)) << label;
    EXPECT_EQ(plan.units.back().modules, std::vector<std::string>{""}) << label;
    labels.insert(label);
    plans.push_back(plan);
  }
  for (std::size_t i = 0; i < plans.size(); ++i) {
    for (std::size_t j = i + 1; j < plans.size(); ++j) {
      ASSERT_FALSE(plans[i] == plans[j]) << label_of(points.families, all[i]);
    }
  }
  EXPECT_EQ(labels.size(), all.size()) << "two plans have one label";
}

TEST(PlanPoint, EveryPlanOfASmallSpaceIsValidAndNoTwoAreTheSame) {
  expect_valid_and_distinct(Points({.layers = 3, .hidden = 256, .vocabulary = 8192}));
}

TEST(PlanPoint, SeveralMicroBatchesDoubleThePlans) {
  Points points({.layers = 2, .hidden = 256, .vocabulary = 8192}, 2);
  const std::size_t with_one = points.all().size();
  points.space.base.accumulation = 2;
  EXPECT_EQ(points.all().size(), 2 * with_one);
  expect_valid_and_distinct(points);
  points.space.sync_every_micro_batch = false;
  for (const PlanPoint& plan_point : points.all()) {
    const Plan plan = plan_of(points.space.base, points.families, plan_point);
    EXPECT_FALSE(plan.sync_every_micro_batch);
    EXPECT_NE(label_of(points.families, plan_point).find(", gradients reduced once a step"), std::string::npos);
  }
}

TEST(PlanPoint, DifferenceOfPlansListsOnlyWhatDiffers) {
  Points points({.layers = 4, .hidden = 256, .vocabulary = 8192}, 2);
  points.space.shard = 2;
  points.space.wrap = Wrap{1, {}};
  points.space.wrap_ends = true;
  points.space.cpu_offload = false;
  points.all();
  const PlanPoint plain{0, 0, 0};
  const PlanPoint kept{0, 2, 0};
  const PlanPoint checkpointed{0, 2, 3};
  EXPECT_EQ(difference_of(points.families, kept, plain), "reshard False for the last 2");
  EXPECT_EQ(difference_of(points.families, checkpointed, plain), "reshard False for the last 2, checkpoint 3 of 4");
  EXPECT_EQ(difference_of(points.families, plain, checkpointed),
            "without reshard False for the last 2, checkpoint 3 of 4");
  EXPECT_EQ(difference_of(points.families, plain, plain), "");
}

TEST(PlanPoint, StacksAreCheckpointedAlikeOrOneBeforeTheOther) {
  Points points(small_encoder_decoder({.layers = 2, .hidden = 256, .vocabulary = 8192}), 2);
  points.space.shard = 2;
  points.space.wrap = Wrap{1, {}};
  points.space.cpu_offload = false;
  expect_valid_and_distinct(points);
  points.space.reshard = ReshardChoice{Kind::Always, 0, 0};
  points.space.wrap_ends = true;
  points.space.checkpoint_ways = {CheckpointMode::Full};
  std::set<StackCounts> found;
  for (const PlanPoint& plan_point : points.all()) {
    found.insert(points.families.checkpointed(points.families.families[static_cast<std::size_t>(plan_point.family)],
                                              plan_point.checkpointed));
  }
  // With two blocks each the orders leave nothing out.
  EXPECT_EQ(found, (std::set<StackCounts>{{0, 0}, {1, 1}, {2, 2}, {1, 0}, {2, 0}, {2, 1}, {0, 1}, {0, 2}, {1, 2}}));
}

TEST(PlanPoint, WaysToCheckpointSaveOpsInTheirOrder) {
  Points points({.layers = 2, .hidden = 256, .vocabulary = 8192});
  points.all();
  const Family& family = points.families.families.front();
  std::vector<std::string> names;
  std::vector<std::int64_t> saved;
  for (std::size_t w = 0; w < family.ways.size(); ++w) {
    const Plan plan = plan_of(points.space.base, points.families, {0, 0, 2, static_cast<std::int32_t>(w)});
    names.push_back(to_text(family.ways[w]));
    EXPECT_EQ(way_of(plan.checkpointing), family.ways[w]) << names.back();
    std::int64_t ops = 0;
    for (const Block& block : points.model.blocks) {
      const std::vector<bool> kept = kept_ops(block, plan.checkpointing);
      if (plan.checkpointing.entries.front().mode == CheckpointMode::Selective) {
        ops += std::count(kept.begin(), kept.end(), true);
      }
    }
    saved.push_back(ops);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"full", "save-attention", "selective", "save-matmuls"}));
  EXPECT_TRUE(std::is_sorted(saved.begin(), saved.end(), std::less_equal<>()))
      << fmt::format("{}", fmt::join(saved, " "));
  // Nothing is saved of convolutions: one selective way is enough.
  const Model convolutions = *build_model(*read_model_spec("model_specs/resnet18.json"));
  EXPECT_EQ(different_ways(kCheckpointWays, convolutions),
            (std::vector<CheckpointWay>{CheckpointMode::Full, CheckpointMode::Selective}));
}

// DeepSpeed's linear layer adds its bias in place, to what selective checkpointing has kept.
TEST(PlanPoint, Zero3SearchesNoCheckpointOfItsLinearLayers) {
  const auto names_of = [](Framework framework, const std::string& name) {
    Points points(*read_model_spec("model_specs/" + name + ".json"));
    points.space.base.runtime.framework = framework;
    points.space.base.zero = default_zero_options(framework);
    points.space.base.initialization = Initialization::Meta;
    points.all();
    std::vector<std::string> names;
    for (const CheckpointWay& way : points.families.families.back().ways) names.push_back(to_text(way));
    return names;
  };
  const std::vector<std::string> without_linear = {"full", "save-attention"};
  const std::vector<std::string> all = {"full", "save-attention", "selective", "save-matmuls"};
  EXPECT_EQ(names_of(Framework::Zero3, "vit_b_16"), without_linear);
  EXPECT_EQ(names_of(Framework::Fsdp2, "vit_b_16"), all);
  EXPECT_EQ(names_of(Framework::Zero2, "vit_b_16"), all);
  EXPECT_EQ(names_of(Framework::Zero3, "llama3_2_1b"), all);  // It has no biases.
  EXPECT_EQ(names_of(Framework::Zero3, "gpt2"), all);         // Its Conv1D is none of DeepSpeed's layers.
}

TEST(PlanPoint, EachStackCanCheckpointItsOwnNumber) {
  Points points(small_encoder_decoder({.layers = 3, .hidden = 256, .vocabulary = 8192}), 2);
  points.space.checkpoint = CheckpointChoice{CheckpointMode::Selective, std::nullopt, {1, 2}};
  const std::vector<PlanPoint> all = points.all();
  for (const PlanPoint& plan_point : all) {
    const Plan plan = plan_of(points.space.base, points.families, plan_point);
    const auto counts = first_blocks_of(plan, points.families.blocks);
    ASSERT_TRUE(counts.has_value());
    EXPECT_EQ(*counts, (StackCounts{1, 2}));
    EXPECT_EQ(plan.checkpointing.entries.front().mode, CheckpointMode::Selective);
    EXPECT_NE(label_of(points.families, plan_point).find("selective checkpoint 1 + 2 blocks"), std::string::npos);
  }
  EXPECT_NE(sentence_of(plan_of(points.space.base, points.families, all.front()), facts_of(points.model), "")
                .find("checkpoint 1 of 3 blocks of encoder.block, 2 of 3 of decoder.block selectively"),
            std::string::npos)
      << sentence_of(plan_of(points.space.base, points.families, all.front()), facts_of(points.model), "");
  points.space.checkpoint = CheckpointChoice{CheckpointMode::Full, std::nullopt, {1, 2, 3}};
  const auto refused = families_of(points.space, points.model, points.cluster);
  ASSERT_FALSE(refused);
  EXPECT_EQ(to_string(refused.error().at(0)),
            "--activation-checkpointing: \"full:1,2,3\" has numbers for 3 stacks of blocks; the model has 2. Write a "
            "number for each stack, in forward order and at most 3, 3, or one for all of them.");
}

TEST(PlanPoint, TiedTablesStayInOneUnit) {
  expect_valid_and_distinct(Points({.layers = 2, .hidden = 256, .vocabulary = 8192, .tied = true}));
}

TEST(PlanPoint, SeveralNodesHaveAnIntegerReshard) {
  Points points({.layers = 2, .hidden = 256, .vocabulary = 8192}, 2, 2);
  expect_valid_and_distinct(points);
  points.all();
  bool has_integer = false;
  for (const Family& family : points.families.families) has_integer = has_integer || family.reshard == Kind::Smaller;
  EXPECT_TRUE(has_integer);
}

TEST(PlanPoint, LastUnitsStayGatheredAndFirstBlocksCheckpointed) {
  Points points({.layers = 5, .hidden = 256, .vocabulary = 8192});
  points.space.shard = 4;
  points.space.wrap = Wrap{2, {}};
  points.space.wrap_ends = true;
  points.space.cpu_offload = false;
  points.space.reshard = ReshardChoice{Kind::Always, 0, 1};
  points.space.checkpoint = CheckpointChoice{CheckpointMode::Selective, 3};
  const std::vector<PlanPoint> all = points.all();
  ASSERT_EQ(all.size(), 1U);
  const Plan plan = plan_of(points.space.base, points.families, all[0]);
  // Blocks 0 1 | 2 3 | 4: three units, of which the last stays unsharded; then both tables, then the root.
  ASSERT_EQ(plan.units.size(), 6U);
  EXPECT_EQ(plan.units[0].modules, (std::vector<std::string>{"model.layers.0", "model.layers.1"}));
  EXPECT_EQ(plan.units[0].reshard_after_forward.kind, Kind::Always);
  EXPECT_EQ(plan.units[2].modules, (std::vector<std::string>{"model.layers.4"}));
  EXPECT_EQ(plan.units[2].reshard_after_forward.kind, Kind::Never);
  EXPECT_EQ(plan.units[3].modules, (std::vector<std::string>{"model.embed_tokens"}));
  EXPECT_EQ(plan.units[4].modules, (std::vector<std::string>{"lm_head"}));
  EXPECT_EQ(plan.units[5].reshard_after_forward.kind, Kind::Default);
  ASSERT_EQ(plan.checkpointing.entries.size(), 3U);
  EXPECT_EQ(plan.checkpointing.entries[2].module, "model.layers.2");
  EXPECT_EQ(plan.checkpointing.entries[2].mode, CheckpointMode::Selective);
  EXPECT_EQ(label_of(points.families, all[0]),
            "FULL_SHARD, reshard False for the last 1, per 2 blocks + embeddings, head, selective checkpoint 3 of 5");
}

TEST(PlanPoint, PatternsWrapExactlyWhatTheyMatch) {
  Points points({.layers = 2, .hidden = 256, .vocabulary = 8192});
  points.space.wrap = Wrap{1, {"model.layers.?", "model.layers.*.mlp"}};
  points.all();
  const Wrapping& wrapping = points.families.wrappings.at(0).wrapping;
  const std::vector<UnitModules> expected = {
      {"model.layers.0.mlp"}, {"model.layers.0"}, {"model.layers.1.mlp"}, {"model.layers.1"}};
  EXPECT_EQ(wrapping.others, expected);
  expect_valid_and_distinct(points);
}

TEST(PlanPoint, PlansWithUnitsInsideBlocksAreValidAndDistinct) {
  Points points({.layers = 2, .hidden = 256, .vocabulary = 8192});
  points.space.parts_from = 0;
  points.space.blocks_per_unit = {1};
  expect_valid_and_distinct(points);
}

/// The units of one block, and the label, with --wrap of this text.
std::vector<std::string> units_in_block(const ModelSpec& spec, const std::string& wrap, const std::string& block) {
  const Model model = *build_model(spec);
  const auto wrapping = wrapping_of(model, wrappables_of(model), *parse_wrap(wrap), false, false);
  std::vector<std::string> names;
  if (!wrapping) return {to_string(wrapping.error().front())};
  for (const auto& stack : wrapping->stacks) {
    for (const UnitGroup& group : stack) {
      for (const UnitModules& unit : group) {
        if (unit.front().starts_with(block)) names.push_back(unit.front().substr(block.size()));
      }
    }
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(PlanPoint, BlockIsSplitIntoItsLargeModulesAndTheRest) {
  // Attention 4 x 256^2 = 262,144, each projection of the MLP 196,608: attention is above the largest piece, so that
  // it is cut, too.
  const ModelSpec dense = small_transformer({.layers = 2, .hidden = 256});
  EXPECT_EQ(units_in_block(dense, "blocks", "model.layers.1"), (Names{""}));
  EXPECT_EQ(units_in_block(dense, "sublayers", "model.layers.1"), (Names{".self_attn", ".mlp"}));
  EXPECT_EQ(units_in_block(dense, "projections", "model.layers.1"),
            (Names{".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj", ".self_attn.o_proj", ".mlp.gate_proj",
                   ".mlp.up_proj", ".mlp.down_proj"}));
}

TEST(PlanPoint, BlocksThatDoNotRunAreUnitsBesideTheStacks) {
  ModelSpec spec = small_transformer({.layers = 2, .hidden = 64});
  const auto tower =
      parse_model_spec(R"({"format_version": "1.0", "name": "Tower", "source": "here", "dtype": "float32",
    "dimensions": {"batch": 1}, "inputs": {"x": {"shape": ["batch"]}}, "modules": [
      {"name": "tower.blocks.{0..1}", "block": "idle", "called": false, "layers": "fc Linear 64 64"},
      {"name": "tower.merger", "block": "idle", "called": false, "layers": "fc Linear 64 64"}]})",
                       "tower.json");
  ASSERT_TRUE(tower.has_value());
  spec.modules.insert(spec.modules.begin(), tower->modules.begin(), tower->modules.end());
  const Model model = *build_model(spec);
  const auto idle = [&](const std::string& wrap) {
    return wrapping_of(model, wrappables_of(model), *parse_wrap(wrap), false, false)->idle;
  };
  const std::vector<UnitModules> blocks = {{"tower.blocks.0"}, {"tower.blocks.1"}};
  EXPECT_EQ(idle("blocks"), blocks);
  EXPECT_EQ(idle("2"), blocks);
  EXPECT_EQ(idle("root"), std::vector<UnitModules>{});
  Points points(spec);
  Plan plan = points.space.base;
  plan.units = units_of(*wrapping_of(model, wrappables_of(model), *parse_wrap("blocks"), false, false), Family{}, 0);
  EXPECT_TRUE(make_layout(index_of(model), plan, 0).has_value());
}

TEST(PlanPoint, SentenceNamesUnitsInsideBlocks) {
  const auto sentence = [](int hidden, const std::string& wrap) {
    const Model model = *build_model(small_transformer({.layers = 2, .hidden = hidden, .vocabulary = 16384}));
    Plan plan;
    plan.units = units_of(*wrapping_of(model, wrappables_of(model), *parse_wrap(wrap), true, false), Family{}, 0);
    return wrapping_of_plan(plan, facts_of(model));
  };
  EXPECT_EQ(sentence(64, "blocks"), "fully_shard per block + model.embed_tokens, lm_head");
  EXPECT_EQ(sentence(64, "sublayers"), "fully_shard per block and its self_attn, mlp + model.embed_tokens, lm_head");
  EXPECT_EQ(sentence(256, "sublayers"), "fully_shard on self_attn, mlp of each block + model.embed_tokens, lm_head");
  EXPECT_EQ(sentence(256, "projections"), "fully_shard on 7 modules of each block + model.embed_tokens, lm_head");
}

TEST(PlanPoint, ExpertsThatTheMixtureRunsAreNoUnits) {
  const ModelSpec mixture = small_transformer({.layers = 2, .hidden = 256, .experts = 4});
  EXPECT_EQ(units_in_block(mixture, "projections", "model.layers.0"), (Names{".self_attn", ".mlp"}));
  const Model model = *build_model(mixture);
  const auto wrapping = wrapping_of_patterns(model, {"model.layers.*.mlp.experts.*"});
  ASSERT_FALSE(wrapping.has_value());
  EXPECT_EQ(wrapping.error().front().what, "\"model.layers.*.mlp.experts.*\" matches no module that can be a unit.");
  Plan plan = *base_plan(mixture, {});
  plan.units = {{{"model.layers.0.mlp.experts.0"}, {}}, {{""}, {}}};
  const Errors errors = check(plan, model);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(to_string(errors.front()),
            "units/0: \"model.layers.0.mlp.experts.0.gate_proj.weight\" is read by the forward of "
            "\"model.layers.0.mlp\", which would not gather it. Wrap \"model.layers.0.mlp\" in its place.");
}

TEST(PlanPoint, PlainBlocksHaveNoUnitsInside) {
  const ModelSpec chain = *read_model_spec("model_specs/mlp.json");
  EXPECT_EQ(
      units_in_block(chain, "sublayers", ""),
      (Names{"--wrap: No block of MLP has modules inside that can be units. Write \"blocks\", a number of blocks, "
             "or \"root\"."}));
}

TEST(PlanPoint, TheModulesInsideABlockAreFoundInEveryFamily) {
  const auto units = [](const std::string& file, const std::string& wrap, const std::string& block) {
    return units_in_block(*read_model_spec("model_specs/" + file + ".json"), wrap, block);
  };
  EXPECT_EQ(units("llama3_1_405b", "sublayers", "model.layers.7."), (Names{"self_attn", "mlp"}));
  EXPECT_EQ(units("llama3_1_405b", "projections", "model.layers.7."),
            (Names{"self_attn", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}));
  EXPECT_EQ(units("t5_3b", "sublayers", "decoder.block.3."), (Names{"layer.0", "layer.1", "layer.2"}));
  EXPECT_EQ(units("qwen3_30b_a3b", "projections", "model.layers.7."), (Names{"self_attn", "mlp"}));
  EXPECT_EQ(units("gpt2", "projections", "transformer.h.7."), (Names{"attn", "mlp.c_fc", "mlp.c_proj"}));
}

TEST(StrategyNames, ArePrintedInBothVocabularies) {
  Plan plan;
  plan.mesh = {1, 4};
  plan.units = {{{"a"}, {Kind::Always, 0}}, {{"b"}, {Kind::Always, 0}}, {{""}, {}}};
  EXPECT_EQ(fsdp1_name(plan), "FULL_SHARD");
  EXPECT_EQ(fsdp2_name(plan), "mesh (1, 4), reshard_after_forward=True");
  plan.units[1].reshard_after_forward.kind = Kind::Never;
  EXPECT_EQ(fsdp1_name(plan), "FULL_SHARD");
  EXPECT_TRUE(has_mixed_reshard(plan));
  EXPECT_EQ(fsdp2_name(plan), "mesh (1, 4), reshard_after_forward=True for 1 unit, False for 1 unit");
  plan.units[0].reshard_after_forward.kind = Kind::Never;
  EXPECT_EQ(fsdp1_name(plan), "SHARD_GRAD_OP");
  plan.mesh = {2, 2};
  EXPECT_EQ(fsdp1_name(plan), "_HYBRID_SHARD_ZERO2");
  EXPECT_EQ(strategy_name(plan), "HYBRID_SHARD");
  EXPECT_FALSE(has_mixed_reshard(plan));
  plan.units[0].reshard_after_forward = plan.units[1].reshard_after_forward = {Kind::Smaller, 2};
  EXPECT_EQ(fsdp2_name(plan), "mesh (2, 2), reshard_after_forward=2");
  plan.mesh = {4, 1};
  EXPECT_EQ(fsdp1_name(plan), "NO_SHARD");
  plan.mesh = {1, 4};
  plan.units = {{{""}, {}}};
  EXPECT_EQ(fsdp1_name(plan), "SHARD_GRAD_OP") << "by default the root alone is not resharded after forward";
  plan.units = {{{""}, {Kind::Always, 0}}};
  EXPECT_EQ(fsdp1_name(plan), "FULL_SHARD");
  EXPECT_EQ(fsdp2_name(plan), "mesh (1, 4), reshard_after_forward=True");
}

}  // namespace
}  // namespace fsdp::planner
