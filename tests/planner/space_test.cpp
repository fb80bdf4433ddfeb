// What users write for the choices of a plan, and which plans the space holds.

#include "planner/space/space.h"
#include "planner/space/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "planner/space/families.h"
#include "planner/space/strategy_names.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

using Kind = ReshardAfterForward::Kind;

TEST(SpaceText, WrapIsANumberOfBlocksOrTheRootOrPatterns) {
  EXPECT_EQ(*parse_wrap("blocks"), (Wrap{1, {}}));
  EXPECT_EQ(*parse_wrap("4"), (Wrap{4, {}}));
  EXPECT_EQ(*parse_wrap("root"), (Wrap{0, {}}));
  EXPECT_EQ(*parse_wrap("sublayers"), (Wrap{1, {}, BlockParts::Sublayers}));
  EXPECT_EQ(*parse_wrap("projections"), (Wrap{1, {}, BlockParts::Projections}));
  EXPECT_EQ(parse_wrap("model.layers.*,lm_head")->patterns, (std::vector<std::string>{"model.layers.*", "lm_head"}));
  EXPECT_EQ(to_string(parse_wrap("0").error().at(0)),
            "--wrap: A unit needs at least one block. Write \"root\" for the root as the only unit.");
  EXPECT_EQ(
      to_string(parse_wrap("a,,b").error().at(0)),
      "--wrap: \"a,,b\" has an empty pattern. Write \"blocks\", \"sublayers\", \"projections\", \"root\", a number of "
      "blocks, \"size:100M\", \"class:LlamaDecoderLayer\", or patterns such as \"model.layers.*,lm_head\".");
}

TEST(SpaceText, WrapIsAlsoAPolicyOfPyTorchByElementsOrByClasses) {
  for (const auto& [text, elements] : std::map<std::string, std::int64_t>{{"size:100M", 100'000'000},
                                                                          {"size:1e8", 100'000'000},
                                                                          {"size:100000000", 100'000'000},
                                                                          {"size:2.3m", 2'300'000},
                                                                          {"size:1.5G", 1'500'000'000},
                                                                          {"size:20k", 20'000},
                                                                          {"size:1", 1}}) {
    ASSERT_TRUE(parse_wrap(text)) << text;
    EXPECT_EQ(parse_wrap(text)->min_elements, elements) << text;
  }
  EXPECT_EQ(parse_wrap("class:LlamaDecoderLayer,Embedding")->classes,
            (std::vector<std::string>{"LlamaDecoderLayer", "Embedding"}));
  for (const std::string text : {"", "0", "-1M", "1.5", "100MB", "100MiB", "M", "1e17", "100M,lm_head", "nan"}) {
    const auto wrap = parse_wrap("size:" + text);
    ASSERT_FALSE(wrap.has_value()) << text;
    EXPECT_EQ(
        to_string(wrap.error().at(0)),
        "--wrap: \"" + text +
            "\" is not a number of elements. Write min_num_params of "
            "size_based_auto_wrap_policy: size:100M, size:1.5G or size:100000000. K, M and G are thousands, because "
            "the policy counts elements and not bytes.");
  }
  EXPECT_EQ(to_string(parse_wrap("class:A,,B").error().at(0)),
            "--wrap: \"class:A,,B\" has an empty class name. Write class:LlamaDecoderLayer, or several with commas "
            "between them.");
  EXPECT_FALSE(parse_wrap("class:").has_value());
}

TEST(SpaceText, ReshardIsTrueFalseANumberOrKeepLast) {
  EXPECT_EQ(*parse_reshard("true"), (ReshardChoice{Kind::Always, 0, 0}));
  EXPECT_EQ(*parse_reshard("false"), (ReshardChoice{Kind::Never, 0, 0}));
  EXPECT_EQ(*parse_reshard("8"), (ReshardChoice{Kind::Smaller, 8, 0}));
  EXPECT_EQ(*parse_reshard("keep-last:3"), (ReshardChoice{Kind::Always, 0, 3}));
  EXPECT_EQ(*parse_reshard("all"), (ReshardChoice{.kind = Kind::Always, .root = true}));
  EXPECT_EQ(*parse_reshard("true+head"), (ReshardChoice{.head = true}));
  EXPECT_EQ(to_text(*parse_reshard("keep-last:1+head")), "keep-last:1+head");
  EXPECT_FALSE(parse_reshard("false+head"));
  EXPECT_FALSE(parse_reshard("all+head"));
  EXPECT_EQ(to_string(parse_reshard("1").error().at(0)), "--reshard: 1 means false in FSDP2. Write false.");
  EXPECT_EQ(
      to_string(parse_reshard("maybe").error().at(0)),
      "--reshard: \"maybe\" is not a way to reshard. Write true, false, all, a world size such as 8, or keep-last:4.");
}

TEST(SpaceText, CheckpointIsAModeANumberOfBlocksOrBoth) {
  EXPECT_EQ(*parse_checkpoint("none"), (CheckpointChoice{CheckpointMode::None, std::nullopt}));
  EXPECT_EQ(*parse_checkpoint("full"), (CheckpointChoice{CheckpointMode::Full, std::nullopt}));
  EXPECT_EQ(*parse_checkpoint("12"), (CheckpointChoice{CheckpointMode::Full, 12}));
  EXPECT_EQ(*parse_checkpoint("selective:3"), (CheckpointChoice{CheckpointMode::Selective, 3}));
  EXPECT_EQ(*parse_checkpoint("0"), (CheckpointChoice{CheckpointMode::None, std::nullopt}));
  EXPECT_EQ(to_string(parse_checkpoint("full:x").error().at(0)),
            "--activation-checkpointing: \"x\" is not a number of blocks. Write \"full:12\" for the first 12 blocks of "
            "each stack, \"full:32,12\" for 32 of the first stack and 12 of the second.");
  EXPECT_EQ(*parse_checkpoint("selective:3,0"), (CheckpointChoice{CheckpointMode::Selective, std::nullopt, {3, 0}}));
  EXPECT_EQ(*parse_checkpoint("nested"), (CheckpointChoice{CheckpointMode::Nested, std::nullopt}));
  EXPECT_EQ(*parse_checkpoint("reentrant"), (CheckpointChoice{CheckpointMode::Reentrant, std::nullopt}));
  EXPECT_EQ(*parse_checkpoint("3,4"), (CheckpointChoice{CheckpointMode::Full, std::nullopt, {3, 4}}));
  EXPECT_EQ(*parse_checkpoint("full:0,0"), (CheckpointChoice{CheckpointMode::None, std::nullopt}));
  EXPECT_FALSE(parse_checkpoint("full:3,,4"));
  EXPECT_FALSE(parse_checkpoint("full:"));
  EXPECT_FALSE(parse_checkpoint("none:3"));
  EXPECT_EQ(to_string(parse_checkpoint("some").error().at(0)),
            "--activation-checkpointing: \"some\" is not a way to checkpoint. Write none, full, nested, reentrant, "
            "selective, save-matmuls, save-attention, or a number of blocks such as 12, full:12 or selective:12.");
}

TEST(SpaceText, ReadsBackAsWritten) {
  for (const std::string text : {"blocks", "4", "sublayers", "projections", "root", "a.*,b", "size:100M", "size:1500K",
                                 "size:1234567", "class:A,B"})
    EXPECT_EQ(to_text(*parse_wrap(text)), text);
  for (const std::string text : {"true", "false", "all", "8", "keep-last:3"})
    EXPECT_EQ(to_text(*parse_reshard(text)), text);
  for (const std::string text :
       {"none", "full", "selective", "full:12", "selective:32,0", "save-matmuls", "save-attention:3"}) {
    EXPECT_EQ(to_text(*parse_checkpoint(text)), text);
  }
}

TEST(Space, ShardSizesAreDivisorsOfANodeAndWholeNodes) {
  const auto sizes = [](int gpus, int nodes) { return shard_sizes(small_cluster(gpus, nodes, Bytes(1 << 30))); };
  EXPECT_EQ(sizes(4, 1), (std::vector<std::int64_t>{4, 2, 1}));
  EXPECT_EQ(sizes(6, 1), (std::vector<std::int64_t>{6, 3, 2, 1}));
  EXPECT_EQ(sizes(4, 6), (std::vector<std::int64_t>{24, 12, 8, 4, 2, 1}));
}

TEST(Space, SearchesEveryMicroBatchOfTheGlobalBatch) {
  Space space;
  space.global_batch = 48;  // 12 for each of 4 GPUs.
  const auto batches = batches_of(space, small_cluster(4, 1, Bytes(1 << 30)));
  EXPECT_EQ(*batches, (std::vector<Batch>{{12, 1}, {6, 2}, {4, 3}, {3, 4}, {2, 6}, {1, 12}}));
  space.accumulation = 3;
  EXPECT_EQ(*batches_of(space, small_cluster(4, 1, Bytes(1 << 30))), (std::vector<Batch>{{4, 3}}));
  space.global_batch = 50;
  EXPECT_EQ(to_string(batches_of(space, small_cluster(4, 1, Bytes(1 << 30))).error().at(0)),
            "--global-batch: 50 samples cannot be split evenly over 4 GPUs. Write a multiple of 4.");
}

TEST(Space, SamplesPerGpuSplitTheSameOnAnyNumberOfGpus) {
  Space space;
  space.samples_per_gpu = 6;
  const std::vector<Batch> all = {{6, 1}, {3, 2}, {2, 3}, {1, 6}};
  EXPECT_EQ(*batches_of(space, small_cluster(1, 1, Bytes(1 << 30))), all);
  EXPECT_EQ(*batches_of(space, small_cluster(8, 4, Bytes(1 << 30))), all);
  space.micro_batches = {3, 1, 5};
  EXPECT_EQ(*batches_of(space, small_cluster(1, 1, Bytes(1 << 30))), (std::vector<Batch>{{3, 2}, {1, 6}}));
}

struct Fixture {
  ModelSpec spec = small_transformer({.layers = 8, .hidden = 256, .vocabulary = 8192});
  Cluster cluster = small_cluster(4, 1, Bytes(std::int64_t{8} << 30));
  Model model = *build_model(spec);
  Space space = [this] {
    Space made;
    made.base = *base_plan(spec, {});
    return made;
  }();

  std::int64_t size() const { return families_of(space, model, cluster)->size(); }
};

TEST(Space, ItsSizeIsTheProductOfItsDimensions) {
  Fixture f;
  // Per mesh (4, 2, 1) and offload (no, yes): 1 + 8 numbers of blocks in 4 ways, times the kept units: units of 1,
  // 2 and 4 blocks keep {0,1,2,4,8}, {0,1,2,4} and {0,1,2}, ends apart or not; the root alone keeps nothing {0}, with
  // ends apart {0,1}.
  EXPECT_EQ(f.size(), 3 * 2 * 33 * (2 * (5 + 4 + 3) + 1 + 2));
}

TEST(Space, FixedChoiceRemovesItsDimension) {
  Fixture f;
  f.space.shard = 4;
  f.space.cpu_offload = false;
  f.space.checkpoint = CheckpointChoice{CheckpointMode::Full, 3};
  EXPECT_EQ(f.size(), 2 * (5 + 4 + 3) + 1 + 2);
  f.space.wrap = Wrap{1, {}};
  EXPECT_EQ(f.size(), 2 * 5);
  f.space.wrap_ends = true;
  f.space.reshard = ReshardChoice{Kind::Always, 0, 2};
  EXPECT_EQ(f.size(), 1);
}

TEST(Space, Fsdp1SpaceHasOnlyPlansThatFsdp1Expresses) {
  Fixture f;
  f.space.base.runtime.framework = Framework::Fsdp1;
  // As above without units of several blocks, with none or all of the units kept, and offload where it shards.
  EXPECT_EQ(f.size(), (3 + 2) * 33 * (2 * 2 + 1 + 2));
  f.space.reshard = ReshardChoice{Kind::Always, 0, 2};
  f.space.wrap = Wrap{4, {}};
  std::vector<std::string> refused;
  const auto families = families_of(f.space, f.model, f.cluster);
  ASSERT_FALSE(families.has_value());
  for (const Error& error : families.error()) refused.push_back(to_string(error));
  EXPECT_EQ(refused,
            (std::vector<std::string>{"--wrap: A unit of FSDP1 has one module. Write blocks.",
                                      "--reshard: FSDP1 has one strategy for all units. Write true or false."}));
}

TEST(Space, Fsdp1SpaceOffloadsIfNoGradientIsLost) {
  Fixture f;
  f.space.base.runtime.framework = Framework::Fsdp1;
  f.space.cpu_offload = true;
  const auto refused = [](const Fixture& fixture) {
    const auto families = families_of(fixture.space, fixture.model, fixture.cluster);
    return families ? std::string() : families.error().front().what;
  };
  EXPECT_EQ(refused(f), "");
  Fixture alone = f;
  alone.space.shard = 1;
  EXPECT_EQ(refused(alone), "NO_SHARD with CPU offload is not predicted.");
  Fixture adding = f;
  adding.space.accumulation = 2;
  adding.space.sync_every_micro_batch = true;
  EXPECT_EQ(refused(adding),
            "With CPU offload FSDP1 copies each reduced gradient over that of the micro-batch before, which is lost.");
  adding.space.sync_every_micro_batch = false;
  EXPECT_EQ(refused(adding), "");
  Fixture original = f;
  original.space.base.fsdp1.use_orig_params = true;
  original.space.base.mixed_precision = {};
  EXPECT_NE(refused(original), "");
  original.space.base.parameter_dtype = Dtype::Float32;
  original.space.base.mixed_precision.param_dtype = Dtype::BFloat16;
  EXPECT_EQ(refused(original), "");
}

TEST(Space, LargeBlocksAreSplit) {
  Fixture f;
  f.space.shard = 4;
  f.space.cpu_offload = false;
  f.space.checkpoint = CheckpointChoice{CheckpointMode::Full, 3};
  // Attention 4 x 256^2 and MLP 3 x 256 x 768 are 851,968 elements, norms 2 x 256: 1,704,960 bytes in bf16.
  const auto with_memory = [&](std::int64_t bytes) {
    f.cluster.gpu.usable_memory.value = Bytes(bytes);
    return f.size();
  };
  const std::int64_t blocks = 2 * (5 + 4 + 3) + 1 + 2;
  const std::int64_t parts = 2 * 2 * 5;  // Sublayers and projections; ends apart or not; {0,1,2,4,8} kept.
  EXPECT_EQ(with_memory(64 * 1'704'960), blocks + parts);
  EXPECT_EQ(with_memory(64 * 1'704'960 + 64), blocks);
  f.space = whole(f.space);
  // Every number of kept units: {0..8}, {0..4}, {0..2}.
  EXPECT_EQ(f.size(), 2 * (9 + 5 + 3) + 1 + 2 + 2 * 2 * 9);
}

TEST(Space, AFixedChoiceThatNoPlanMeetsIsAnError) {
  Fixture f;
  f.space.shard = 3;
  f.space.wrap = Wrap{1, {"model.layer.*"}};
  const auto families = families_of(f.space, f.model, f.cluster);
  ASSERT_FALSE(families.has_value());
  ASSERT_EQ(families.error().size(), 2U);
  EXPECT_EQ(families.error()[0].what, "\"model.layer.*\" matches no module that can be a unit.");
  EXPECT_EQ(to_string(families.error()[1]),
            "--shard: 3 must divide the number of GPUs, which is 4. Write one of 4, 2, 1.");
}

TEST(Space, DescriptionsNameEveryDimension) {
  Fixture f;
  const std::vector<std::string> lines = describe(f.space, f.model, f.cluster);
  ASSERT_EQ(lines.size(), 7U);
  EXPECT_EQ(lines[0], "mesh (replicate x shard): 1 x 4, 2 x 2, 4 x 1");
  EXPECT_EQ(lines[6], "plans: " + std::to_string(f.size()));
}

TEST(Space, ReductionFrequencyIsSearchedWithSeveralMicroBatches) {
  Fixture f;
  const std::int64_t with_one = f.size();
  f.space.sync_every_micro_batch = false;
  EXPECT_EQ(f.size(), with_one) << "one micro-batch is every one of them and the last";
  f.space.base.accumulation = 4;
  EXPECT_EQ(f.size(), with_one);
  f.space.sync_every_micro_batch.reset();
  EXPECT_EQ(f.size(), 2 * with_one);
  EXPECT_EQ(describe(f.space, f.model, f.cluster)[5], "gradients reduced after: every micro-batch, the last one");
}

TEST(StrategyNames, FixShardAndReshard) {
  Space space;
  const Cluster two_nodes = small_cluster(4, 2, Bytes(1 << 30));
  ASSERT_TRUE(apply_strategy("_HYBRID_SHARD_ZERO2", two_nodes, space));
  EXPECT_EQ(space.shard, 4);
  EXPECT_EQ(space.reshard->kind, Kind::Never);
  ASSERT_TRUE(apply_strategy("FULL_SHARD", two_nodes, space));
  EXPECT_EQ(space.shard, 8);
  EXPECT_EQ(space.strategy, "FULL_SHARD") << "on another machine it shards over all of that";
  EXPECT_EQ(space.reshard->kind, Kind::Always);
  EXPECT_EQ(to_string(apply_strategy("FULLSHARD", two_nodes, space).error().at(0)),
            "--strategy: \"FULLSHARD\" is not a sharding strategy. Did you mean \"FULL_SHARD\"?");
}

TEST(StrategyNames, HybridOnOneNodeSearchesMeshesWithReplicas) {
  Fixture f;
  f.cluster = small_cluster(8, 1, Bytes(1 << 30));
  ASSERT_TRUE(apply_strategy("HYBRID_SHARD", f.cluster, f.space));
  const auto families = families_of(f.space, f.model, f.cluster);
  ASSERT_TRUE(families);
  std::set<std::int64_t> shards;
  for (const Family& family : families->families) {
    shards.insert(family.mesh.dp_shard());
    const PlanPoint plan_point{static_cast<int>(&family - families->families.data()), 0, family.checkpointed.front()};
    EXPECT_EQ(fsdp1_name(plan_of(f.space.base, *families, plan_point)), "HYBRID_SHARD");
  }
  EXPECT_EQ(shards, (std::set<std::int64_t>{2, 4}));
  EXPECT_EQ(to_string(apply_strategy("HYBRID_SHARD", small_cluster(3, 1, Bytes(1 << 30)), f.space).error().at(0)),
            "--strategy: HYBRID_SHARD keeps several copies of the model and shards each: 3 GPUs cannot be split this "
            "way. Write FULL_SHARD.");
  EXPECT_EQ(
      to_string(apply_strategy("_HYBRID_SHARD_ZERO2", small_cluster(1, 4, Bytes(1 << 30)), f.space).error().at(0)),
      "--strategy: _HYBRID_SHARD_ZERO2 keeps several copies of the model and shards each: a node has one GPU to "
      "shard over. Write SHARD_GRAD_OP.");
}

TEST(StrategyNames, RequestedNameIsPrinted) {
  for (const std::string name : {"FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "NO_SHARD"}) {
    Fixture f;
    ASSERT_TRUE(apply_strategy(name, f.cluster, f.space));
    const auto families = families_of(f.space, f.model, f.cluster);
    ASSERT_TRUE(families) << name;
    for (std::size_t i = 0; i < families->families.size(); ++i) {
      const Family& family = families->families[i];
      const PlanPoint plan_point{static_cast<int>(i), family.kept.front(), family.checkpointed.front()};
      EXPECT_EQ(fsdp1_name(plan_of(f.space.base, *families, plan_point)), name)
          << families->wrappings[family.wrapping].label;
    }
  }
}

TEST(StrategyNames, UnusableStrategyIsRefusedWithAReason) {
  Space space;
  EXPECT_EQ(to_string(apply_strategy("DDP", small_cluster(4, 1, Bytes(1 << 30)), space).error().at(0)),
            "--strategy: DDP is not an FSDP sharding strategy. Write --runtime ddp.");
  EXPECT_EQ(to_string(apply_strategy("FULL_SHARD", small_cluster(1, 1, Bytes(1 << 30)), space).error().at(0)),
            "--strategy: FULL_SHARD needs more than one GPU. Write NO_SHARD, or leave --strategy out.");
}

}  // namespace
}  // namespace fsdp::planner
