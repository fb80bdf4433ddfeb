// What SimpleFSDP reads, sends and reduces, on sizes that can be counted in the head. Whole plans that the real one
// trained are in tests/rehearsal/plan_cases_simple_fsdp.py.

#include <gtest/gtest.h>

#include <algorithm>

#include "core/frameworks/check_plan.h"
#include "core/frameworks/simple_fsdp/parameter_reads.h"
#include "core/plan/plan_file.h"
#include "core/plan/schedule.h"
#include "tests/support/collective_models.h"
#include "tests/support/lowered.h"

namespace fsdp {
namespace {

Plan simple_plan(std::int64_t replicate, std::int64_t shard) {
  Plan plan;
  plan.mesh = {replicate, shard};
  plan.units = {{{""}, {}}};
  plan.runtime.framework = Framework::SimpleFsdp;
  return plan;
}

/// stem [5, 6], a block with one linear [5, 5] and a ReLU, head [3, 5], all with biases, and a loss in the root.
Model three_linears() {
  return collective_model("mlp", {{"in", "6"}, {"out", "3"}, {"blocks", "5,5"}}, Dtype::Float32);
}

std::int64_t count_of(const Schedule& schedule, InstructionKind kind, StepPhase phase) {
  return std::count_if(schedule.instructions.begin(), schedule.instructions.end(),
                       [&](const Instruction& step) { return step.kind == kind && step.phase == phase; });
}

// One op reads weight and bias; the bias was read last, and its gradient is reduced first.
TEST(SimpleFsdp, GathersBeforeEachReadAndReducesAfterEachGradient) {
  const Model model = three_linears();
  const Lowered lowered = lowered_of(model, simple_plan(1, 2));
  EXPECT_EQ(to_text(lowered.schedule, lowered.index, lowered.layout), R"(LoadInputs
GatherParameters stem.weight
GatherParameters stem.bias
Forward stem:stem [0, 1)
GatherParameters blocks.0.fcs.0.weight
GatherParameters blocks.0.fcs.0.bias
Forward blocks.0:block [0, 2)
GatherParameters head.weight
GatherParameters head.bias
Forward head:head [0, 1)
Forward :loss [0, 3)
LeaveRoot
PrepareReduce
Backward :loss [0, 3)
Backward head:head [0, 1)
ReduceBucket 0
ReduceBucket 1
Backward blocks.0:block [0, 2)
ReduceBucket 2
ReduceBucket 3
Backward stem:stem [0, 1)
ReduceBucket 4
ReduceBucket 5
FinishReduce
OptimizerStep
ZeroGrad
)");
  std::vector<std::string> reduced;
  for (const GradientBucket& bucket : lowered.layout.buckets) {
    reduced.push_back(model.parameters[bucket.parameters.front()].name);
  }
  EXPECT_EQ(reduced, (std::vector<std::string>{"head.bias", "head.weight", "blocks.0.fcs.0.bias",
                                               "blocks.0.fcs.0.weight", "stem.bias", "stem.weight"}));
}

TEST(SimpleFsdp, ACheckpointedBlockReadsItsParametersAgain) {
  const Model model = three_linears();
  Plan plan = simple_plan(1, 2);
  const Schedule plain = lowered_of(model, plan).schedule;
  EXPECT_EQ(count_of(plain, InstructionKind::GatherParameters, StepPhase::Forward), 6);
  EXPECT_EQ(count_of(plain, InstructionKind::GatherParameters, StepPhase::Backward), 0);
  plan.checkpointing.entries = {{"blocks.0", CheckpointMode::Full}};
  const Schedule again = lowered_of(model, plan).schedule;
  EXPECT_EQ(count_of(again, InstructionKind::GatherParameters, StepPhase::Forward), 6);
  EXPECT_EQ(count_of(again, InstructionKind::GatherParameters, StepPhase::Backward), 2);
}

TEST(SimpleFsdp, ReplicasDoNotGatherAndOneGpuDoesNotReduce) {
  const Model model = three_linears();
  const Schedule replicated = lowered_of(model, simple_plan(2, 1)).schedule;
  EXPECT_EQ(count_of(replicated, InstructionKind::GatherParameters, StepPhase::Forward), 0);
  EXPECT_EQ(count_of(replicated, InstructionKind::ReduceBucket, StepPhase::Backward), 6);
  const Schedule alone = lowered_of(model, simple_plan(1, 1)).schedule;
  EXPECT_EQ(count_of(alone, InstructionKind::ReduceBucket, StepPhase::Backward), 0);
}

// Four ranks have two of five rows each at most: 4 * 2 * 6 of 5 * 6 elements of the stem's weight, the last gradient.
TEST(SimpleFsdp, UnevenRowsArePaddedOnlyInCollectives) {
  const Lowered lowered = lowered_of(three_linears(), simple_plan(1, 4));
  EXPECT_EQ(lowered.layout.buckets.back().elements, 48);
}

TEST(SimpleFsdp, FindsAnOpWithoutItsGather) {
  const Model model = three_linears();
  Lowered lowered = lowered_of(model, simple_plan(1, 2));
  std::vector<Instruction>& steps = lowered.schedule.instructions;
  steps.erase(std::find_if(steps.begin(), steps.end(),
                           [](const Instruction& step) { return step.kind == InstructionKind::GatherParameters; }));
  const Errors errors = validate(lowered.schedule, lowered.index, lowered.layout);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors.front().what, "An op reads other parameters than those gathered before it.");
}

TEST(SimpleFsdp, UnsupportedOptionsAreRefusedAtTheirPlace) {
  const Model model = three_linears();
  const auto place_of = [&](const auto& change) {
    Plan plan = simple_plan(1, 2);
    change(plan);
    const Errors errors = check(plan, model);
    EXPECT_EQ(errors.size(), 1U);
    return errors.empty() ? std::string() : errors.front().where;
  };
  EXPECT_TRUE(check(simple_plan(1, 2), model).empty());
  EXPECT_EQ(place_of([](Plan& plan) { plan.units.insert(plan.units.begin(), Unit{{"stem"}, {}}); }), "units");
  EXPECT_EQ(place_of([](Plan& plan) {
              plan.units.front().reshard_after_forward = {ReshardAfterForward::Kind::Never, 0};
            }),
            "units/0");
  EXPECT_EQ(place_of([](Plan& plan) { plan.forward_prefetch = 1; }), "prefetch");
  EXPECT_EQ(place_of([](Plan& plan) { plan.cpu_offload = true; }), "cpu_offload");
  EXPECT_EQ(place_of([](Plan& plan) { plan.mixed_precision.output_dtype = Dtype::Float32; }),
            "mixed_precision/output_dtype");
  EXPECT_EQ(place_of([](Plan& plan) {
              plan.accumulation = 2;
              plan.sync_every_micro_batch = false;
            }),
            "sync_every_micro_batch");
  EXPECT_EQ(place_of([](Plan& plan) { plan.initialization = Initialization::Cpu; }), "initialization");
  EXPECT_EQ(place_of([](Plan& plan) {
              plan.optimizer = {.kind = OptimizerKind::Sgd, .implementation = OptimizerImplementation::Fused};
            }),
            "optimizer");
  EXPECT_EQ(place_of([](Plan& plan) { plan.runtime.version = "2.13.0"; }), "runtime/version");
  EXPECT_EQ(place_of([](Plan& plan) { plan.zero.overlap_comm = true; }), "zero");
}

TEST(SimpleFsdp, PlanFileNamesTheRuntime) {
  PlanFile file;
  file.plan = simple_plan(2, 4);
  file.plan.model = file.plan.model_file = "gpt2";
  const std::string text = to_text(file);
  EXPECT_NE(text.find("\"torchtitan-simple-fsdp\""), std::string::npos) << text;
  const auto read = read_plan(*parse_json(text, "plan.json"));
  ASSERT_TRUE(read.has_value()) << to_string(read.error().front());
  EXPECT_EQ(read->plan, file.plan);
}

}  // namespace
}  // namespace fsdp
