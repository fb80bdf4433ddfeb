// The order of events of a step under FSDP2, on small models. What the real FSDP2 issued for many more is in
// tests/simulator/fsdp2_collectives_test.cpp.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/frameworks/fsdp2/lower_fsdp2.h"
#include "core/frameworks/layout.h"
#include "core/frameworks/lower.h"
#include "core/plan/schedule.h"
#include "core/plan/torch_version.h"
#include "tests/support/assemble_model.h"
#include "tests/support/collective_models.h"

namespace fsdp {
namespace {

using Kind = ReshardAfterForward::Kind;

/// stem, blocks of two linears each, head, and a loss in the root.
Model chain(int blocks, Words more = {}) {
  Words sizes = {{"in", "6"}, {"out", "5"}};
  for (int b = 0; b < blocks; ++b) sizes["blocks"] += b == 0 ? "8,12,8" : ";8,12,8";
  for (const auto& [key, value] : more) sizes[key] = value;
  return collective_model("mlp", sizes, Dtype::Float32);
}

Model llama(int layers) {
  const Words sizes = {{"hidden", "32"}, {"layers", std::to_string(layers)},
                       {"heads", "4"},   {"kv_heads", "2"},
                       {"ffn", "88"},    {"vocab", "101"}};
  return collective_model("llama", sizes, Dtype::Float32);
}

void freeze(Model& model, const std::string& prefix) {
  for (Parameter& parameter : model.parameters) {
    if (parameter.name.starts_with(prefix)) parameter.trainable = false;
  }
  derive_gradient_flow(model);
}

Plan plan_of(const std::vector<std::vector<std::string>>& units) {
  Plan plan;
  plan.mesh = {1, 4};
  for (const auto& modules : units) plan.units.push_back({modules, {}});
  plan.units.push_back({{""}, {}});
  return plan;
}

Plan plan_of_blocks(int blocks) {
  std::vector<std::vector<std::string>> units;
  for (int b = 0; b < blocks; ++b) units.push_back({fmt::format("blocks.{}", b)});
  return plan_of(units);
}

Schedule lower(const Model& model, const Plan& plan, std::string* text = nullptr) {
  const ModelIndex index = index_of(model);
  const auto layout = make_layout(index, plan);
  EXPECT_TRUE(layout.has_value()) << to_string(layout.error().front());
  Schedule schedule = lower_fsdp2(index, plan, *layout);
  for (const Error& error : validate(schedule, index, *layout)) ADD_FAILURE() << to_string(error);
  if (text != nullptr) *text = to_text(schedule, index, *layout);
  return schedule;
}

/// What happens to units in one phase of one micro-batch: "AG" for Unshard, "use" for WaitForUnshard, "free" for
/// Reshard, "RS" for ReduceGrads, "keep" for AccumulateGrads, with the last part of the unit's name ("root" for "").
std::string events(const Model& model, const Plan& plan, StepPhase phase, std::string_view wanted,
                   int micro_batch = 0) {
  const Schedule schedule = lower(model, plan);
  std::string text;
  for (const Instruction& step : schedule.instructions) {
    if (step.phase != phase || step.micro_batch != micro_batch || step.unit < 0) continue;
    std::string_view word;
    if (step.kind == InstructionKind::Unshard) word = "AG";
    if (step.kind == InstructionKind::WaitForUnshard) word = "use";
    if (step.kind == InstructionKind::Reshard) word = "free";
    if (step.kind == InstructionKind::ReduceGrads) word = "RS";
    if (step.kind == InstructionKind::AccumulateGrads) word = "keep";
    if (word.empty() || wanted.find(word) == std::string_view::npos) continue;
    std::string name = plan.units[step.unit].modules.front();
    name = name.empty() ? "root" : name.starts_with("blocks.") ? name.substr(7) : name;
    if (name.starts_with("model.layers.")) name = name.substr(13);
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", word, name, step.ranks.is_part() ? " small" : "");
  }
  return text;
}

std::string collectives(const Model& model, const Plan& plan, int micro_batch = 0) {
  return events(model, plan, StepPhase::Forward, "AG", micro_batch) + " | " +
         events(model, plan, StepPhase::Backward, "AG RS", micro_batch);
}

TEST(LowerFsdp2, StepMatchesItsListing) {
  std::string text;
  lower(chain(2), plan_of_blocks(2), &text);
  EXPECT_EQ(text, R"(LoadInputs
Unshard ""
WaitForUnshard ""
Forward stem:stem [0, 1)
Unshard "blocks.0"
WaitForUnshard "blocks.0"
Free "" all-gather output
Forward blocks.0:block [0, 4)
Reshard "blocks.0"
Unshard "blocks.1"
WaitForUnshard "blocks.1"
Free "blocks.0" all-gather output
Forward blocks.1:block [0, 4)
Reshard "blocks.1"
Forward head:head [0, 1)
Forward :loss [0, 3)
Free "blocks.1" all-gather output
LeaveRoot
Unshard "blocks.1"
Backward :loss [0, 3)
Backward head:head [0, 1)
WaitForUnshard "blocks.1"
Free "blocks.1" all-gather output
Unshard "blocks.0"
Backward blocks.1:block [0, 4)
Reshard "blocks.1"
ReduceGrads "blocks.1", keeps its last gradient
WaitForUnshard "blocks.0"
Free "blocks.0" all-gather output
Backward blocks.0:block [0, 4)
Reshard "blocks.0"
Free "blocks.1" reduce-scatter input
ReduceGrads "blocks.0", keeps its last gradient
Backward stem:stem [0, 1)
Reshard ""
Free "blocks.0" reduce-scatter input
ReduceGrads "", keeps its last gradient
Free "" reduce-scatter input
FinishReduce
OptimizerStep
ZeroGrad
)");
}

TEST(LowerFsdp2, GathersComeInForwardOrderAndBackwardOneAhead) {
  EXPECT_EQ(collectives(chain(3), plan_of_blocks(3)),
            "AG root, AG 0, AG 1, AG 2 | AG 2, AG 1, RS 2, AG 0, RS 1, RS 0, RS root");
}

TEST(LowerFsdp2, UnitsAreFreedAfterTheirForwardAndBeforeTheirReduction) {
  EXPECT_EQ(events(chain(2), plan_of_blocks(2), StepPhase::Forward, "AG use free"),
            "AG root, use root, AG 0, use 0, free 0, AG 1, use 1, free 1");
  EXPECT_EQ(events(chain(2), plan_of_blocks(2), StepPhase::Backward, "AG use free RS"),
            "AG 1, use 1, AG 0, free 1, RS 1, use 0, free 0, RS 0, free root, RS root");
}

TEST(LowerFsdp2, WithoutReshardingBackwardGathersNothing) {
  Plan plan = plan_of_blocks(3);
  for (Unit& unit : plan.units) unit.reshard_after_forward = {Kind::Never, 0};
  EXPECT_EQ(collectives(chain(3), plan), "AG root, AG 0, AG 1, AG 2 | RS 2, RS 1, RS 0, RS root");
}

TEST(LowerFsdp2, AnIntegerGathersFromTheSmallerGroupInBackward) {
  Plan plan = plan_of_blocks(2);
  for (Unit& unit : plan.units) unit.reshard_after_forward = {Kind::Smaller, 2};
  EXPECT_EQ(collectives(chain(2), plan),
            "AG root, AG 0, AG 1 | AG root small, AG 1 small, AG 0 small, RS 1, RS 0, RS root");
}

TEST(LowerFsdp2, ARootThatReshardsIsGatheredAgainFirst) {
  Plan plan = plan_of_blocks(2);
  plan.units.back().reshard_after_forward = {Kind::Always, 0};
  EXPECT_EQ(collectives(chain(2), plan), "AG root, AG 0, AG 1 | AG root, AG 1, AG 0, RS 1, RS 0, RS root");
}

TEST(LowerFsdp2, WithoutSyncOnlyTheLastMicroBatchReduces) {
  Plan plan = plan_of_blocks(2);
  plan.accumulation = 2;
  plan.sync_every_micro_batch = false;
  EXPECT_EQ(events(chain(2), plan, StepPhase::Backward, "AG RS keep", 0), "AG 1, AG 0, keep 1, keep 0, keep root");
  EXPECT_EQ(events(chain(2), plan, StepPhase::Backward, "AG RS keep", 1), "AG 1, AG 0, RS 1, RS 0, RS root");
}

TEST(LowerFsdp2, WithSyncEveryMicroBatchReduces) {
  Plan plan = plan_of_blocks(2);
  plan.accumulation = 2;
  EXPECT_EQ(collectives(chain(2), plan, 0), collectives(chain(2), plan, 1));
  EXPECT_EQ(collectives(chain(2), plan, 1), "AG root, AG 0, AG 1 | AG 1, AG 0, RS 1, RS 0, RS root");
}

TEST(LowerFsdp2, ForwardPrefetchGathersNextUnitsAfterTheCopyOut) {
  Plan plan = plan_of_blocks(3);
  plan.forward_prefetch = 1;
  EXPECT_EQ(events(chain(3), plan, StepPhase::Forward, "AG use"),
            "AG root, use root, AG 0, use 0, AG 1, use 1, AG 2, use 2");
  plan.forward_prefetch = 2;
  EXPECT_EQ(events(chain(3), plan, StepPhase::Forward, "AG use"),
            "AG root, use root, AG 0, AG 1, use 0, AG 2, use 1, use 2");
}

TEST(LowerFsdp2, BackwardPrefetchReachesFurtherBack) {
  Plan plan = plan_of_blocks(3);
  plan.backward_prefetch = 2;
  EXPECT_EQ(collectives(chain(3), plan), "AG root, AG 0, AG 1, AG 2 | AG 2, AG 1, AG 0, RS 2, RS 1, RS 0, RS root");
}

TEST(LowerFsdp2, FrozenPrefixHasOneUselessPrefetch) {
  Model model = chain(3);
  for (const char* name : {"stem", "blocks.0", "blocks.1"}) freeze(model, name);
  EXPECT_EQ(events(model, plan_of_blocks(3), StepPhase::Backward, "AG use free RS"),
            "AG 2, use 2, AG 1, free root, RS root, free 1, free 2, RS 2");
}

TEST(LowerFsdp2, AFrozenUnitInTheMiddleIsGatheredAndNotReduced) {
  Model model = chain(3);
  freeze(model, "blocks.1");
  EXPECT_EQ(collectives(model, plan_of_blocks(3)), "AG root, AG 0, AG 1, AG 2 | AG 2, AG 1, RS 2, AG 0, RS 0, RS root");
}

TEST(LowerFsdp2, AFirstBlockOnRawDataIsReducedAfterTheRoot) {
  EXPECT_EQ(collectives(chain(2, {{"in", "0"}}), plan_of_blocks(2)),
            "AG root, AG 0, AG 1 | AG 1, AG 0, RS 1, RS root, RS 0");
}

TEST(LowerFsdp2, AModuleThatIsCalledTwiceIsGatheredTwiceAndReducedOnce) {
  EXPECT_EQ(collectives(chain(2, {{"reuse", "2"}}), plan_of_blocks(2)),
            "AG root, AG 0, AG 0, AG 1, AG 1 | AG 1, AG 1, AG 0, RS 1, AG 0, RS 0, RS root");
}

TEST(LowerFsdp2, ReusedModuleReducesEarlierGradientsAfterFirstBackward) {
  Plan plan = plan_of_blocks(1);
  plan.accumulation = 2;
  plan.sync_every_micro_batch = false;
  EXPECT_EQ(collectives(chain(1, {{"reuse", "2"}}), plan, 1), "AG root, AG 0, AG 0 | AG 0, RS 0, AG 0, RS 0, RS root");
}

TEST(LowerFsdp2, ReusedFirstBlockOnRawDataReducesAtEndOfBackward) {
  EXPECT_EQ(collectives(chain(1, {{"reuse", "2"}, {"in", "0"}}), plan_of_blocks(1)),
            "AG root, AG 0, AG 0 | AG 0, AG 0, RS root, RS 0");
}

Plan nested_plan() {
  return plan_of({{"model.layers.0.self_attn"},
                  {"model.layers.0.mlp"},
                  {"model.layers.0"},
                  {"model.layers.1.self_attn"},
                  {"model.layers.1.mlp"},
                  {"model.layers.1"}});
}

/// Two tables, the second of which is used again after the layer between; neither reads anything that needs a gradient.
Model two_tables() {
  ModelAssembler model("two tables", Dtype::Float32);
  model.input("ids", {1, 4}, Dtype::Int64);
  model.input("labels", {1, 4}, Dtype::Int64);
  const auto table = [&](const std::string& name, const std::string& output) {
    BlockBuilder b = model.block("table", "Embedding");
    b.output(output, b.embedding("", b.input("ids"), 16, 8));
    model.call(name, std::move(b));
  };
  table("first", "a");
  table("second", "b");
  BlockBuilder layer = model.block("layer", "Linear");
  layer.output("c", layer.linear("", layer.add(layer.input("a"), layer.input("b")), 8));
  model.call("layer", std::move(layer));
  table("second", "d");
  BlockBuilder head = model.block("head", "Linear");
  head.output("logits", head.linear("", head.add(head.input("c"), head.input("d")), 5));
  model.call("head", std::move(head));
  BlockBuilder loss = model.block("loss", "Loss");
  loss.output("loss", loss.cross_entropy(loss.input("logits"), loss.input("labels"), false));
  model.call("", std::move(loss), false, true);
  return model.finish("loss");
}

TEST(LowerFsdp2, UnitReenteredByBackwardPrefetchesOnce) {
  Model model = two_tables();
  freeze(model, "first");
  // Its second use prefetches the layer. Its first use would prefetch the frozen table, which nobody needs.
  EXPECT_EQ(events(model, plan_of({{"first"}, {"second"}, {"layer"}}), StepPhase::Backward, "AG"),
            "AG second, AG layer");
}

TEST(LowerFsdp2, NestedUnitsBeginOutsideInAndEndInsideOut) {
  EXPECT_EQ(events(llama(2), nested_plan(), StepPhase::Forward, "AG free"),
            "AG root, AG 0, AG 0.self_attn, free 0.self_attn, AG 0.mlp, free 0.mlp, free 0, AG 1, AG 1.self_attn, free "
            "1.self_attn, AG 1.mlp, free 1.mlp, free 1");
  EXPECT_EQ(events(llama(2), nested_plan(), StepPhase::Backward, "AG RS"),
            "AG 1, AG 1.mlp, AG 1.self_attn, RS 1.mlp, AG 0, RS 1.self_attn, RS 1, AG 0.mlp, AG 0.self_attn, RS 0.mlp, "
            "RS 0.self_attn, RS 0, RS root");
}

TEST(LowerFsdp2, RecomputationGathersInnerUnitsNotYetEntered) {
  Plan plan = nested_plan();
  plan.checkpointing.entries = {{"model.layers.0", CheckpointMode::Full}, {"model.layers.1", CheckpointMode::Full}};
  // The feed-forward is entered with the gradient of its output, before anything is recomputed.
  EXPECT_EQ(events(llama(2), plan, StepPhase::Backward, "AG use RS"),
            "AG 1, use 1, AG 1.mlp, use 1.mlp, AG 1.self_attn, use 1.self_attn, RS 1.mlp, AG 0, RS 1.self_attn, RS 1, "
            "use 0, AG 0.mlp, use 0.mlp, AG 0.self_attn, use 0.self_attn, RS 0.mlp, RS 0.self_attn, RS 0, RS root");
}

TEST(LowerFsdp2, CheckpointingOfWholeUnitsChangesNothing) {
  Plan plan = plan_of({{"model.layers.0"}, {"model.layers.1"}});
  const std::string without = collectives(llama(2), plan);
  plan.checkpointing.entries = {{"model.layers.0", CheckpointMode::Full}, {"model.layers.1", CheckpointMode::Full}};
  EXPECT_EQ(collectives(llama(2), plan), without);
}

TEST(LowerFsdp2, AUnitOfSeveralModulesLivesFromItsFirstToItsLast) {
  const Plan plan = plan_of({{"stem"}, {"blocks.0", "blocks.1"}, {"blocks.2"}});
  EXPECT_EQ(events(chain(3), plan, StepPhase::Forward, "AG free"),
            "AG root, AG stem, free stem, AG 0, free 0, AG 2, free 2");
  EXPECT_EQ(events(chain(3), plan, StepPhase::Backward, "AG RS"), "AG 2, AG 0, RS 2, AG stem, RS 0, RS root, RS stem");
}

TEST(LowerFsdp2, UnfinishedPassHasNoPreBackwardHook) {
  // The second block alone runs again: FSDP2 still waits for the first, so the post-forward hook does not run, nothing
  // hangs on what comes out, and the unit stays unsharded until the post-backward hook of that pass. Only then the
  // gather.
  const Plan plan = plan_of({{"stem"}, {"blocks.0", "blocks.1"}});
  EXPECT_EQ(events(chain(2, {{"reuse", "2"}}), plan, StepPhase::Forward, "AG free"),
            "AG root, AG stem, free stem, AG 0, free 0, AG 0");
  EXPECT_EQ(events(chain(2, {{"reuse", "2"}}), plan, StepPhase::Backward, "AG free RS"),
            "free 0, AG 0, AG stem, free 0, RS 0, free root, RS root, free stem, RS stem");
}

TEST(LowerFsdp2, AUnitWithoutParametersIssuesNothing) {
  const Plan plan = plan_of({{"stem"}, {"blocks.0"}, {"head"}});
  EXPECT_EQ(collectives(chain(1), plan), "AG stem, AG 0, AG head | AG head, AG 0, RS head, AG stem, RS 0, RS stem");
}

TEST(LowerFsdp2, HsdpDoesNotChangeTheOrder) {
  Plan hybrid = plan_of_blocks(3);
  hybrid.mesh = {2, 4};
  const std::vector<Instruction> plain = actions_of(lower(chain(3), plan_of_blocks(3)));
  std::vector<Instruction> steps = actions_of(lower(chain(3), hybrid));
  for (Instruction& step : steps) {
    const bool reduces = step.kind == InstructionKind::ReduceGrads;
    EXPECT_EQ(step.copies, reduces ? ranks_along(MeshAxis::DpReplicate) : RankGroup{});
    step.copies = {};
    step.keeps_all_reduce_output = false;
  }
  EXPECT_EQ(steps, plain);
}

// ---- buffers --------------------------------------------------------------------------------------------------------

/// Gathers, copies and reductions of one phase with the buffers that go: "use 0, -AG root".
std::string buffers(const Model& model, const Plan& plan, StepPhase phase, int micro_batch = 0) {
  std::string text;
  const auto add = [&](std::string_view word, const Instruction& step) {
    std::string name = step.unit < 0 ? "" : plan.units[step.unit].modules.front();
    name = step.unit < 0 ? "" : name.empty() ? " root" : " " + name.substr(name.find('.') + 1);
    text += fmt::format("{}{}{}{}", text.empty() ? "" : ", ", word, name, step.slot == 1 ? "'" : "");
  };
  for (const Instruction& step : lower(model, plan).instructions) {
    if (step.phase != phase || step.micro_batch != micro_batch) continue;
    if (step.kind == InstructionKind::Unshard) add("AG", step);
    if (step.kind == InstructionKind::WaitForUnshard) add("use", step);
    if (step.kind == InstructionKind::ReduceGrads) add("RS", step);
    if (step.kind == InstructionKind::LeaveRoot) add("left", step);
    if (step.kind == InstructionKind::FinishReduce) add("end", step);
    if (step.kind != InstructionKind::Free) continue;
    const bool gathers = step.buffer == BufferKind::AllGatherOutput;
    add(gathers ? "-AG" : step.buffer == BufferKind::ReduceInput ? "-RS" : "-AR", step);
  }
  return text;
}

TEST(LowerFsdp2, ForwardFreesAGatherAfterTheNextCopyOut) {
  EXPECT_EQ(buffers(chain(2), plan_of_blocks(2), StepPhase::Forward),
            "AG root, use root, AG 0, use 0, -AG root, AG 1, use 1, -AG 0, -AG 1, left");
  Plan before = plan_of_blocks(2);
  before.runtime.quirks.forward_all_gather_output_kept = false;
  EXPECT_EQ(buffers(chain(2), before, StepPhase::Forward),
            "AG root, use root, AG 0, -AG root, use 0, AG 1, -AG 0, use 1, -AG 1, left");
}

TEST(LowerFsdp2, BackwardFreesGathersAtOnceAndInputsAtTheNextReduction) {
  EXPECT_EQ(buffers(chain(2), plan_of_blocks(2), StepPhase::Backward),
            "AG 1, use 1, -AG 1, AG 0, RS 1, use 0, -AG 0, -RS 1, RS 0, -RS 0, RS root, -RS root, end");
}

TEST(LowerFsdp2, PlanWithSeveralReduceBuffersKeepsSeveralInputs) {
  Plan plan = plan_of_blocks(3);
  plan.reduce_scatter_buffers = 2;
  EXPECT_EQ(
      buffers(chain(3), plan, StepPhase::Backward),
      "AG 2, use 2, -AG 2, AG 1, RS 2, use 1, -AG 1, AG 0, RS 1, use 0, -AG 0, -RS 2, RS 0, -RS 1, RS root, -RS 0, "
      "-RS root, end");
}

// The loop variable of post_backward.
TEST(LowerFsdp2, Torch212FreesAReduceInputAfterTheNextReduction) {
  Plan plan = plan_of_blocks(2);
  set_torch_version(plan.runtime, *find_torch_version("2.12"));
  EXPECT_EQ(buffers(chain(2), plan, StepPhase::Backward),
            "AG 1, use 1, -AG 1, AG 0, RS 1, use 0, -AG 0, RS 0, -RS 1, RS root, -RS 0, -RS root, end");
}

// post_backward recycles inputs before it asks whether there are gradients.
TEST(LowerFsdp2, FrozenUnitFreesAReduceInputSinceTorch212) {
  Model model = chain(3);
  freeze(model, "blocks.1");
  Plan plan = plan_of_blocks(3);
  EXPECT_EQ(buffers(model, plan, StepPhase::Backward),
            "AG 2, use 2, -AG 2, AG 1, RS 2, use 1, -AG 1, AG 0, use 0, -AG 0, -RS 2, RS 0, -RS 0, RS root, -RS root, "
            "end");
  set_torch_version(plan.runtime, *find_torch_version("2.14"));
  EXPECT_EQ(buffers(model, plan, StepPhase::Backward),
            "AG 2, use 2, -AG 2, AG 1, RS 2, use 1, -AG 1, AG 0, -RS 2, use 0, -AG 0, RS 0, -RS 0, RS root, -RS root, "
            "end");
}

TEST(LowerFsdp2, AUnitThatIsCalledTwiceInARowHasTwoGathersAtOnce) {
  EXPECT_EQ(buffers(chain(1, {{"reuse", "2"}}), plan_of_blocks(1), StepPhase::Forward),
            "AG root, use root, AG 0, use 0, -AG root, AG 0', use 0', -AG 0, -AG 0', left");
}

TEST(LowerFsdp2, UnusedGatherIsFreedByTheReshard) {
  Model model = chain(3);
  for (const char* name : {"stem", "blocks.0", "blocks.1"}) freeze(model, name);
  EXPECT_EQ(buffers(model, plan_of_blocks(3), StepPhase::Backward),
            "AG 2, use 2, -AG 2, AG 1, RS root, -AG 1, -RS root, RS 2, -RS 2, end");
}

TEST(LowerFsdp2, HsdpKeepsAllReduceOutputsUntilTheEndOfBackward) {
  Plan plan = plan_of_blocks(1);
  plan.mesh = {2, 4};
  EXPECT_EQ(buffers(chain(1), plan, StepPhase::Backward),
            "AG 0, use 0, -AG 0, RS 0, -RS 0, RS root, -RS root, -AR 0, -AR root, end");
  plan.runtime.quirks.all_reduce_output_kept = false;
  EXPECT_EQ(buffers(chain(1), plan, StepPhase::Backward), "AG 0, use 0, -AG 0, RS 0, -RS 0, RS root, -RS root, end");
}

// FSDPParamGroup.post_backward calls _wait_for_post_backward before it makes the input of the reduction.
TEST(LowerFsdp2, SecondReductionOfAUnitFreesItsFirstAllReduceOutput) {
  Plan plan = plan_of_blocks(1);
  plan.mesh = {2, 4};
  plan.accumulation = 2;
  plan.sync_every_micro_batch = false;
  EXPECT_EQ(buffers(chain(1, {{"reuse", "2"}}), plan, StepPhase::Backward, 1),
            "AG 0, use 0, -AG 0, RS 0, AG 0, use 0, -AG 0, -RS 0, -AR 0, RS 0, -RS 0, RS root, -RS root, -AR 0, -AR "
            "root, end");
}

TEST(LowerFsdp2, InstructionsCarryDifferencesOfReleases) {
  Plan plan = plan_of_blocks(1);
  plan.optimizer.clip_grad_norm = 1.0;
  const auto all = [&](auto&& holds) {
    const std::vector<Instruction> steps = lower(chain(1), plan).instructions;
    return std::all_of(steps.begin(), steps.end(), holds);
  };
  const auto is_new = [](const Instruction& step) {
    const bool reduces = step.kind == InstructionKind::ReduceGrads;
    return step.reduces_each_norm && step.keeps_last_gradient == reduces;
  };
  const auto is_old = [](const Instruction& step) {
    const bool clips = step.kind == InstructionKind::ClipGradNorm;
    return step.reduces_each_norm == !clips && !step.keeps_last_gradient;
  };
  EXPECT_TRUE(all(is_new));
  plan.runtime.quirks.last_gradient_kept_in_reduce = false;
  plan.runtime.quirks.clip_reduces_each_norm = false;
  EXPECT_TRUE(all(is_old));
}

// What calls a group names it; one rank is a group in old runtimes alone.
TEST(LowerFsdp2, CollectivesNameTheirRanks) {
  Plan plan = plan_of_blocks(1);
  plan.optimizer.clip_grad_norm = 1.0;
  const auto calls = [&](const RankGroup& ranks) {
    for (const Instruction& step : lower(chain(1), plan).instructions) {
      const bool has_collective = step.kind == InstructionKind::Unshard || step.kind == InstructionKind::ReduceGrads ||
                                  step.kind == InstructionKind::ClipGradNorm;
      EXPECT_EQ(step.ranks, has_collective ? ranks : RankGroup{}) << name_of(step.kind);
    }
  };
  calls(ranks_along(MeshAxis::DpShard));
  plan.mesh = {1, 1};
  calls({});
  plan.runtime.quirks.skip_collectives_of_one = false;
  plan.runtime.quirks.skip_reductions_of_one = false;
  calls(ranks_along(MeshAxis::DpShard));
}

TEST(LowerFsdp2, ClippingPrecedesTheOptimizer) {
  Plan plan = plan_of_blocks(1);
  const auto tail = [&] {
    std::vector<InstructionKind> kinds;
    for (const Instruction& step : lower(chain(1), plan).instructions) {
      if (step.phase == StepPhase::Optimizer) kinds.push_back(step.kind);
    }
    return kinds;
  };
  EXPECT_EQ(tail(), (std::vector<InstructionKind>{InstructionKind::OptimizerStep, InstructionKind::ZeroGrad}));
  plan.optimizer.clip_grad_norm = 1.0;
  EXPECT_EQ(tail(), (std::vector<InstructionKind>{InstructionKind::ClipGradNorm, InstructionKind::OptimizerStep,
                                                  InstructionKind::ZeroGrad}));
}

}  // namespace
}  // namespace fsdp
