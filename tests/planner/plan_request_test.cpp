// From choices to what a search is asked, and between choices and what people write.

#include "planner/request/plan_request.h"
#include "core/frameworks/check_plan.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "command/cli_request.h"
#include "core/cluster/bf16_units.h"
#include "core/plan/plan_names.h"
#include "planner/request/plan_machines.h"
#include "planner/space/choice_table.h"
#include "planner/space/families.h"
#include "render/choice_text.h"
#include "render/choice_words.h"

namespace fsdp::planner {
namespace {

const std::string kSpecs = "model_specs";

/// What a user types after each option; other than the value that it has without.
const std::map<PlanChoice, std::vector<std::string>> kTexts = {
    {PlanChoice::Gpus, {"4"}},
    {PlanChoice::Nodes, {"2"}},
    {PlanChoice::GpuName, {"H100 SXM"}},
    {PlanChoice::Memory, {"16G"}},
    {PlanChoice::ReserveMemory, {"40%"}},
    {PlanChoice::ClusterFile, {"DGX H100"}},
    {PlanChoice::IntraLinkName, {"pcie-host"}},
    {PlanChoice::IntraBandwidth, {"8GB/s"}},
    {PlanChoice::BusBandwidth, {"12GB/s"}},
    {PlanChoice::NetworkName, {"roce"}},
    {PlanChoice::NicBandwidth, {"12.5GB/s"}},
    {PlanChoice::GpusPerNic, {"2"}},
    {PlanChoice::Sharp, {"yes"}},
    {PlanChoice::NcclVersion, {"2.27.5"}},
    {PlanChoice::NcclAlgorithms, {"allreduce:Tree"}},
    {PlanChoice::NcclProtocols, {"Simple"}},
    {PlanChoice::NodeSpread, {"0.02"}},
    {PlanChoice::HostMemory, {"1536G"}},
    {PlanChoice::NvmeBandwidth, {"6GB/s"}},
    {PlanChoice::NvmeCapacity, {"2048G"}},
    {PlanChoice::Recipe, {"sft"}},
    {PlanChoice::Batch, {"3"}},
    {PlanChoice::Sequence, {"8192"}},
    {PlanChoice::Packing, {"8192"}},
    {PlanChoice::DocumentLength, {"900:300"}},
    {PlanChoice::PackedAttentionName, {"sdpa"}},
    {PlanChoice::AttentionName, {"flash_attn"}},
    {PlanChoice::GlobalBatch, {"64"}},
    {PlanChoice::Accumulate, {"2"}},
    {PlanChoice::SetDimension, {"clip_seconds=7.5", "width=32"}},
    {PlanChoice::Trainable, {"*.weight", "lm_head.*"}},
    {PlanChoice::Freeze, {"it's"}},
    {PlanChoice::Lora, {"r=16,alpha=32,targets=q_proj+v_proj,dropout=0.05"}},
    {PlanChoice::Quantize, {"nf4,double"}},
    {PlanChoice::Liger, {"rope,glu"}},
    {PlanChoice::Float8, {"tensorwise,all_gather,skip=lm_head+wk"}},
    {PlanChoice::Also, {"qwen3_0_6b", "gpt2,wrap=blocks,offload=yes,dtype=bf16,turn=before"}},
    {PlanChoice::Precision, {"fp16-mixed"}},
    {PlanChoice::ReduceDtype, {"bfloat16"}},
    {PlanChoice::OptimizerName, {"sgd"}},
    {PlanChoice::OptimizerImpl, {"for_loop"}},
    {PlanChoice::OptimizerStatesName, {"bfloat16"}},
    {PlanChoice::Muon, {"yes"}},
    {PlanChoice::Clip, {"0.5"}},
    {PlanChoice::Initialization, {"cpu"}},
    {PlanChoice::Flavor, {"torchtitan"}},
    {PlanChoice::LossName, {"liger"}},
    {PlanChoice::PaddingMask, {"yes"}},
    {PlanChoice::AllocConf, {"expandable_segments:True"}},
    {PlanChoice::Torch, {"2.13"}},
    {PlanChoice::Runtime, {"ddp"}},
    {PlanChoice::DeepSpeedFile, {"ds_config.json"}},
    {PlanChoice::Strategy, {"SHARD_GRAD_OP"}},
    {PlanChoice::Shard, {"4"}},
    {PlanChoice::Replicate, {"2"}},
    {PlanChoice::ExpertParallel, {"1,4"}},
    {PlanChoice::Reshard, {"keep-last:4"}},
    {PlanChoice::Wrap, {"model.layers.*,lm_head"}},
    {PlanChoice::WrapEnds, {"no"}},
    {PlanChoice::Checkpoint, {"selective:12"}},
    {PlanChoice::CheckpointOffload, {"yes"}},
    {PlanChoice::Offload, {"yes"}},
    {PlanChoice::GradientSync, {"last"}},
    {PlanChoice::Prefetch, {"0"}},
    {PlanChoice::BackwardPrefetch, {"3"}},
    {PlanChoice::ReduceScatterBuffers, {"2"}},
    {PlanChoice::SeparateReduceScatter, {"yes"}},
    {PlanChoice::Ddp, {"find-unused"}},
    {PlanChoice::CudaGraphs, {"yes"}},
};

PlanChoices all_choices() {
  PlanChoices choices;
  for (const auto& [choice, texts] : kTexts) EXPECT_TRUE(render::read_choice(choice, texts, choices)) << texts.front();
  return choices;
}

TEST(PlanChoices, EachReadsBackAsWrittenAndChangesNoOther) {
  for (const PlanChoice choice : plan_choices()) {
    PlanChoices choices;
    ASSERT_TRUE(kTexts.contains(choice)) << place_of(choice);
    ASSERT_TRUE(render::read_choice(choice, kTexts.at(choice), choices)) << place_of(choice);
    for (const PlanChoice other : plan_choices()) EXPECT_EQ(has(choices, other), other == choice) << place_of(other);
    EXPECT_EQ(render::texts_of(choice, choices), kTexts.at(choice));
    clear(choices, choice);
    EXPECT_TRUE(choices == PlanChoices()) << place_of(choice);
  }
}

TEST(PlanChoices, EachHasAPlaceAndSomeAFormerName) {
  for (const PlanChoice choice : plan_choices()) {
    EXPECT_EQ(choice_of_place(place_of(choice)), choice);
    const std::string_view former = row_of(choice).rules.former;
    EXPECT_EQ(choice_of_place(former.empty() ? place_of(choice) : former), choice);
  }
  EXPECT_EQ(choice_of_place("--states"), PlanChoice::OptimizerStatesName);
  EXPECT_EQ(choice_of_place("--force"), std::nullopt);
  EXPECT_EQ(choice_of_place(""), std::nullopt) << "most have no former place";
}

TEST(PlanChoices, OnlySelectsTheWantedChoices) {
  const PlanChoices machines = only(all_choices(), is_about_machines);
  for (const PlanChoice choice : plan_choices()) EXPECT_EQ(has(machines, choice), is_about_machines(choice));
  EXPECT_TRUE(with_change(only(all_choices(), [](PlanChoice choice) { return !is_about_machines(choice); }),
                          machines) == all_choices());
}

TEST(PlanChoices, EveryNameOfThePublishedTablesIsWritten) {
  for (const PlanChoice choice : plan_choices()) {
    const std::string_view all = row_of(choice).values;
    for (std::size_t begin = 0; begin < all.size();) {
      const std::size_t end = std::min(all.find('|', begin), all.size());
      const std::vector<std::string> text = {std::string(all.substr(begin, end - begin))};
      PlanChoices choices;
      ASSERT_TRUE(render::read_choice(choice, text, choices)) << place_of(choice) << " " << text.front();
      EXPECT_EQ(render::texts_of(choice, choices), text) << place_of(choice);
      begin = end + 1;
    }
  }
}

TEST(PlanChoices, PublishedTableListsEveryFlavor) {
  EXPECT_EQ(row_of(PlanChoice::Flavor).values, fmt::format("{}", fmt::join(flavors(), "|")));
}

TEST(PlanChoices, CommandWordsReadBackAsTheSameChoices) {
  std::vector<std::string> words = render::command_words(all_choices());
  words.insert(words.begin(), "mlp");
  const Result<command::CommandLine> line = command::parse_command_line(words);
  ASSERT_TRUE(line) << to_string(line.error().front());
  Errors errors;
  EXPECT_TRUE(command::read_choices(*line, errors).choices == all_choices());
  EXPECT_TRUE(errors.empty());
}

TEST(PlanChoices, FlagsHyphenateNamesAndPutTheMachineFirst) {
  EXPECT_EQ(render::flags_of({.gpus = 4, .nodes = 2, .gpu_name = "A100 80GB PCIe", .memory = Bytes(79LL << 30)}),
            "--gpu A100-80GB-PCIe --mem 79G --gpus 4 --nodes 2");
  EXPECT_EQ(render::flags_of({.batch = 4, .accumulation = 2}), "--batch 4 --accumulate 2");
  EXPECT_EQ(render::flags_of({.frozen = {"a.*", "b"}}), "--freeze a.* b");
  EXPECT_EQ(render::flags_of({.allocator_settings = "a:1, b:2"}), "--alloc-conf a:1, b:2");
}

TEST(PlanChoices, ChangeReplacesChoicesAndAddsPatternsAndSizes) {
  const PlanChoices now = {.gpus = 4, .batch = 8, .dimensions = {{"width", 32}, {"depth", 3}}, .frozen = {"a"}};
  const PlanChoices after = with_change(now, {.batch = 2, .dimensions = {{"width", 16}}, .frozen = {"b"}});
  const PlanChoices expected = {
      .gpus = 4, .batch = 2, .dimensions = {{"depth", 3}, {"width", 16}}, .frozen = {"a", "b"}};
  EXPECT_TRUE(after == expected);
}

TEST(PlanRequest, ReportsEveryErrorAndNoConsequences) {
  const command::CommandLine line = *command::parse_command_line(
      std::vector<std::string>{"no_model", "--mem", "16X", "--batch", "none", "--flavor", "megatron", "--strategy",
                               "FULL_SHARD", "--set", "batch=2", "--set", "batch=3"});
  const auto resolved = command::read_request(line, kSpecs);
  ASSERT_FALSE(resolved.has_value());
  std::vector<std::string> places;
  for (const Error& error : resolved.error()) places.push_back(error.where);
  EXPECT_EQ(places, (std::vector<std::string>{"--batch", "--flavor", "--mem", "--set", "no_model"}))
      << "and not that the machines are missing";
}

TEST(PlanRequest, ChoicesOverrideTheRecipeAndTheRecipeTheModel) {
  const PlanRequest nothing = {.model = "qwen3_tts", .choices = {.gpus = 4, .memory = Bytes(16LL << 30)}};
  const auto usual = resolve(nothing, kSpecs);
  ASSERT_TRUE(usual) << to_string(usual.error().front());
  EXPECT_EQ(usual->space.samples_per_gpu, 2 * 4) << "the recipe's micro-batch x accumulation";
  EXPECT_EQ(usual->batch_origin, "from recipe sft");
  PlanRequest asked = nothing;
  asked.choices.batch = 3;
  asked.choices.accumulation = 5;
  asked.choices.optimizer = OptimizerKind::Sgd;
  asked.choices.clip = GradientClipping{};
  const auto resolved = resolve(asked, kSpecs);
  ASSERT_TRUE(resolved) << to_string(resolved.error().front());
  EXPECT_EQ(resolved->space.samples_per_gpu, std::nullopt);
  EXPECT_EQ(resolved->batch_origin, "");
  EXPECT_EQ(resolved->space.base.accumulation, 5);
  EXPECT_EQ(resolved->space.base.optimizer.kind, OptimizerKind::Sgd);
  EXPECT_FALSE(resolved->space.base.optimizer.clip_grad_norm);
  EXPECT_EQ(usual->space.base.optimizer.kind, OptimizerKind::AdamW);
  EXPECT_EQ(resolved->workload.dimensions, (std::vector<Dimension>{{"batch", 3}}));
}

/// A line for each error of the first plan of each family.
std::string refusals_of(const PlanRequest& request) {
  const auto resolved = resolve(request, kSpecs);
  if (!resolved) return {};
  const auto model = build_model(resolved->spec, resolved->workload);
  if (!model) return to_string(model.error().front());
  const auto families = families_of(resolved->space, *model, resolved->cluster);
  if (!families) return {};
  Errors errors;
  for (std::size_t f = 0; f < families->families.size(); ++f) {
    const Family& family = families->families[f];
    const PlanPoint first{static_cast<int>(f), family.kept.front(), family.checkpointed.front(), 0};
    add_once(errors, check(plan_of(resolved->space.base, *families, first), *model));
  }
  std::string lines;
  for (const Error& error : errors) lines += to_string(error) + '\n';
  return lines;
}

TEST(PlanRequest, EveryRuntimeOptimizerAndPrecisionHasPlans) {
  for (const auto& [framework, runtime] : kRuntimes) {
    for (const auto& [kind, optimizer] : kOptimizerKinds) {
      for (const Precision precision :
           {Precision::BFloat16, Precision::Mixed, Precision::Float16, Precision::MixedFloat16, Precision::Float32,
            Precision::Autocast, Precision::Accelerate}) {
        PlanRequest asked = {.model = "mlp", .choices = {.gpus = 2, .memory = Bytes(16LL << 30)}};
        asked.choices.runtime = framework;
        asked.choices.optimizer = kind;
        asked.choices.precision = precision;
        EXPECT_EQ(refusals_of(asked), "") << runtime << " " << optimizer << " " << static_cast<int>(precision);
      }
    }
  }
}

// accelerate's prepare_model is for wrappers, FSDP1 and DDP.
TEST(PlanRequest, PrecisionOfAccelerateDependsOnTheFramework) {
  const auto mixed_for = [](Framework framework) {
    Plan plan;
    Errors errors;
    apply_work_choices({.precision = Precision::Accelerate, .runtime = framework}, plan, errors);
    EXPECT_TRUE(errors.empty());
    EXPECT_EQ(plan.parameter_dtype, Dtype::Float32);
    return plan;
  };
  const Plan units = mixed_for(Framework::Fsdp2);
  EXPECT_EQ(units.mixed_precision, (MixedPrecision{Dtype::BFloat16, Dtype::BFloat16, Dtype::BFloat16}));
  const Plan flat = mixed_for(Framework::Fsdp1);
  EXPECT_EQ(flat.mixed_precision.autocast, Dtype::BFloat16);
  EXPECT_TRUE(flat.mixed_precision.float_outputs);
  EXPECT_EQ(flat.fsdp1.buffer_dtype, Dtype::BFloat16);
  EXPECT_EQ(mixed_for(Framework::Ddp).mixed_precision,
            (MixedPrecision{.autocast = Dtype::BFloat16, .float_outputs = true}));
}

TEST(PlanRequest, FlavorChangesOnlyTheModelCode) {
  Plan plan;
  plan.runtime.framework = Framework::Zero3;
  plan.runtime.allocator_settings = "expandable_segments:True";
  plan.runtime.version = "2.10.0";
  Plan expected = plan;
  const Runtime torchtitan = *runtime_of_flavor("torchtitan");
  expected.runtime.flavor = torchtitan.flavor;
  expected.runtime.implementations = torchtitan.implementations;
  ASSERT_NE(plan, expected);
  Errors errors;
  apply_work_choices({.flavor = "torchtitan"}, plan, errors);
  EXPECT_TRUE(errors.empty());
  EXPECT_EQ(plan, expected);
}

TEST(PlanRequest, BatchOptionsFixTheSamples) {
  const auto samples = [](const std::string& model, PlanChoices choices) {
    choices.gpus = 2;
    choices.memory = Bytes(16LL << 30);
    const auto resolved = resolve({.model = model, .choices = choices}, kSpecs);
    EXPECT_TRUE(resolved.has_value());
    return resolved->space.samples_per_gpu;
  };
  EXPECT_EQ(samples("bert_large", {}), 8) << "of the model's spec";
  EXPECT_EQ(samples("bert_large", {.nodes = 4}), 8) << "more GPUs take more samples";
  EXPECT_EQ(samples("bert_large", {.batch = 8}), std::nullopt);
  EXPECT_EQ(samples("bert_large", {.dimensions = {{"batch", 8}}}), std::nullopt);
  EXPECT_EQ(samples("bert_large", {.accumulation = 2}), std::nullopt);
  EXPECT_EQ(samples("bert_large", {.global_batch = 64}), std::nullopt);
  EXPECT_EQ(samples("gpt2", {}), std::nullopt) << "one sample cannot be shared out";
  EXPECT_EQ(samples("resnet18", {}), std::nullopt) << "its batch norms are over a micro-batch";
}

TEST(PlanRequest, AMicroBatchAloneKeepsTheSamplesOfAStep) {
  // Recipe sft has 2 samples x 4 micro-batches on each GPU.
  const auto made = [](const std::string& model, PlanChoices choices) {
    choices.gpus = 4;
    choices.memory = Bytes(80LL << 30);
    const auto resolved = resolve({.model = model, .choices = choices}, kSpecs);
    EXPECT_TRUE(resolved.has_value());
    EXPECT_EQ(resolved->space.samples_per_gpu, std::nullopt);
    return std::pair(resolved->space.base.accumulation, resolved->batch_origin);
  };
  using Made = std::pair<std::int64_t, std::string>;
  EXPECT_EQ(made("qwen3_tts", {.batch = 8}), (Made{1, "as many as recipe sft has"}));
  EXPECT_EQ(made("qwen3_tts", {.batch = 4}), (Made{2, "as many as recipe sft has"}));
  EXPECT_EQ(made("qwen3_tts", {.dimensions = {{"batch", 1}}}), (Made{8, "as many as recipe sft has"}));
  // 3 x 3 is nearest to 8, and 16 alone are more; on all GPUs the recipe has 32.
  EXPECT_EQ(made("qwen3_tts", {.batch = 3}), (Made{3, "where recipe sft has 32"}));
  EXPECT_EQ(made("qwen3_tts", {.batch = 16}), (Made{1, "where recipe sft has 32"}));
  EXPECT_EQ(made("qwen3_tts", {.batch = 8, .accumulation = 4}), (Made{4, ""}));
  // Nothing says how many samples a step has.
  EXPECT_EQ(made("gpt2", {.batch = 8}), (Made{1, ""}));
  // Statistics of a batch norm are of a micro-batch: nothing is shared out.
  EXPECT_EQ(made("resnet18", {.batch = 8}).first, 1);
}

TEST(PlanRequest, SimpleFsdpHasAMeshAndNoUnits) {
  PlanRequest asked = {.model = "gpt2",
                       .choices = {.gpus = 4, .memory = Bytes(16LL << 30), .runtime = Framework::SimpleFsdp}};
  asked.choices.replicate = 2;
  const auto resolved = resolve(asked, kSpecs);
  ASSERT_TRUE(resolved) << to_string(resolved.error().front());
  EXPECT_EQ(resolved->space.shard, 2);
  ASSERT_TRUE(resolved->space.wrap);
  EXPECT_EQ(resolved->space.wrap->blocks_per_unit, 0);
  EXPECT_EQ(resolved->space.cpu_offloads, std::vector<bool>{false});
  asked.choices.replicate.reset();
  asked.choices.initialization = Initialization::Cpu;
  asked.choices.strategy = "FULL_SHARD";
  asked.choices.wrap = Wrap{};
  asked.choices.cpu_offload = true;
  asked.choices.gradient_sync = GradientSync::Last;
  const auto refused = resolve(asked, kSpecs);
  ASSERT_FALSE(refused);
  std::vector<std::string> places;
  for (const Error& error : refused.error()) places.push_back(error.where);
  std::sort(places.begin(), places.end());
  EXPECT_EQ(places,
            (std::vector<std::string>{"--gradient-sync", "--initialization", "--offload", "--strategy", "--wrap"}));
}

/// What comes of a request, or its errors as one text.
Result<ResolvedRequest> resolved_of(const std::string& model, PlanChoices choices) {
  return resolve({.model = model, .choices = std::move(choices)}, kSpecs);
}

std::string errors_text(const Result<ResolvedRequest>& made) {
  std::string text;
  if (made) return text;
  for (const Error& error : made.error()) text += to_string(error) + "\n";
  return text;
}

bool is_assumed(const ResolvedRequest& request, std::string_view words) {
  const auto& lines = request.cluster.assumptions;
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(words) != std::string::npos; });
}

TEST(DefaultPrecision, IsFp16OnCardsWithoutBf16) {
  const auto precision_on = [](const std::string& gpu, std::optional<Precision> chosen, const std::string& model) {
    auto made = resolved_of(model, {.gpus = 4, .gpu_name = gpu, .precision = chosen});
    EXPECT_TRUE(made) << errors_text(made);
    return std::pair(made->space.base.mixed_precision.param_dtype, is_assumed(*made, kNoBf16Units));
  };
  using Found = std::pair<std::optional<Dtype>, bool>;
  for (const char* old : {"V100 32GB SXM", "T4"}) {
    EXPECT_EQ(precision_on(old, {}, "llama2_7b"), (Found{Dtype::Float16, true}));
    // What was asked for is planned.
    EXPECT_EQ(precision_on(old, Precision::Mixed, "llama2_7b"), (Found{Dtype::BFloat16, false}));
    EXPECT_EQ(precision_on(old, Precision::Float32, "llama2_7b"), (Found{std::nullopt, false}));
    // Weights in bf16 have no fp16 in their place.
    EXPECT_EQ(precision_on(old, {}, "qwen3_tts"), (Found{std::nullopt, false}));
  }
  EXPECT_EQ(precision_on("A100 40GB SXM", {}, "llama2_7b"), (Found{Dtype::BFloat16, false}));
}

TEST(DefaultPrecision, IsFp16ForZeroToo) {
  const auto made = resolved_of("gpt2", {.gpus = 4, .gpu_name = "T4", .runtime = Framework::Zero2});
  ASSERT_TRUE(made) << errors_text(made);
  EXPECT_EQ(made->space.base.mixed_precision.param_dtype, Dtype::Float16);
  EXPECT_EQ(made->space.base.mixed_precision.reduce_dtype, Dtype::Float16);
}

TEST(Machines, NodesHaveExistingSizes) {
  const auto errors_of_sizes = [](std::optional<int> gpus, std::optional<int> nodes) {
    return errors_text(resolved_of("mlp", {.gpus = gpus, .nodes = nodes, .gpu_name = "H100 SXM"}));
  };
  EXPECT_EQ(errors_of_sizes(16, {}), "");
  EXPECT_EQ(
      errors_of_sizes(512, {}),
      "--gpus: 512 GPUs in one node? No node has more than 16. Write --world-size 512, or --nodes 64 --gpus 8.\n");
  EXPECT_EQ(errors_of_sizes(100, {}),
            "--gpus: 100 GPUs in one node? No node has more than 16. Write --nodes 25 --gpus 4.\n")
      << "a world of 100 is no nodes of 8";
  EXPECT_EQ(errors_of_sizes(32, 2),
            "--gpus: 2 nodes of 32 GPUs? No node has more than 16. Write --world-size 64, or --nodes 8 --gpus 8.\n");
  EXPECT_EQ(errors_of_sizes(8, 2048), "");
  EXPECT_EQ(errors_of_sizes(8, 100'000),
            "--nodes: 800000 GPUs in all are more than 16384, for which collectives and times are known. Write at most "
            "2048 nodes of 8.\n");
}

TEST(Machines, WorldIsSplitIntoRentableNodes) {
  EXPECT_EQ(split_world(5), (MachineSize{5, 1}));
  EXPECT_EQ(split_world(8), (MachineSize{8, 1}));
  EXPECT_EQ(split_world(512), (MachineSize{8, 64}));
  EXPECT_EQ(split_world(12), (MachineSize{4, 3}));
  EXPECT_EQ(split_world(10), (MachineSize{2, 5}));
  EXPECT_EQ(split_world(9), (MachineSize{1, 9}));
}

TEST(Machines, WorldSizeDecidesTheNumberOfNodes) {
  const auto size = [](std::int64_t world, const MachineSize& said, int usual = 8) {
    return size_of_world(world, said, usual).value();
  };
  EXPECT_EQ(size(512, {}), (MachineSize{8, 64}));
  EXPECT_EQ(size(4, {}), (MachineSize{4, 1}));
  EXPECT_EQ(size(16, {4, {}}), (MachineSize{4, 4}));
  EXPECT_EQ(size(12, {{}, 3}), (MachineSize{4, 3}));
  EXPECT_EQ(size(16, {4, 4}), (MachineSize{4, 4}));
  EXPECT_EQ(size(16, {}, 4), (MachineSize{4, 4})) << "as a cluster has them";
}

TEST(Machines, UnevenWorldSizeErrorNamesTheNearest) {
  const auto refusal = [](std::int64_t world, const MachineSize& said) {
    const auto size = size_of_world(world, said);
    return size ? "" : to_string(size.error().front());
  };
  EXPECT_EQ(
      refusal(12, {}),
      "--world-size: 12 GPUs are no whole number of nodes of 8. Write --world-size 8 or 16, or other nodes: --nodes "
      "3 --gpus 4.");
  EXPECT_EQ(refusal(13, {}), "--world-size: 13 GPUs are no whole number of nodes of 8. Write --world-size 8 or 16.");
  EXPECT_EQ(refusal(3, {4, {}}), "--world-size: 3 GPUs are no whole number of nodes of 4. Write --world-size 4.");
  EXPECT_EQ(refusal(512, {{}, 3}),
            "--world-size: 512 GPUs cannot be shared out over 3 nodes alike. Write --world-size 510 or 513.");
  EXPECT_EQ(
      refusal(512, {8, 2}),
      "--world-size: --nodes 2 of --gpus 8 are 16 GPUs, and not 512. Write --world-size 16, or leave out one of the "
      "three.");
  EXPECT_EQ(refusal(800'000, {}),
            "--world-size: 800000 GPUs are more than 16384, for which collectives and times are known. Write at most "
            "--world-size 16384.");
}

TEST(Machines, MissingPartsAreReported) {
  EXPECT_EQ(errors_text(resolved_of("mlp", {.gpus = 4})),
            "The GPU of the machines is missing, or its memory. Add --gpu NAME, such as --gpu \"RTX 4090\" (fsdp-plan "
            "gpus lists them), or --mem 24G.\n");
}

}  // namespace
}  // namespace fsdp::planner
