// Models beside the trained one: the text of the option, their plans, their place in a step, and what is refused.

#include "core/plan/other_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "core/frameworks/check_plan.h"
#include "core/frameworks/layout.h"
#include "core/frameworks/lower.h"
#include "core/frameworks/other_models.h"
#include "core/model/model_index.h"
#include "core/spec/model_spec.h"
#include "tests/support/small_models.h"

namespace fsdp {
namespace {

std::string mistake_in_other(std::string_view text) {
  const auto read = parse_other_model(text, "--also");
  return read ? "it is read" : to_string(read.error().front());
}

TEST(OtherModel, TextIsReadAsItIsWritten) {
  EXPECT_EQ(parse_other_model("qwen3_1_7b", "--also"), OtherModel{.file = "qwen3_1_7b"});
  for (const std::string_view text :
       {"a", "a,wrap=root", "a,wrap=blocks,offload=yes,dtype=bf16,turn=before", "../models/b.json,dtype=fp32"}) {
    EXPECT_EQ(to_text(*parse_other_model(text, "--also")), text);
  }
  EXPECT_EQ(to_text(*parse_other_model("a,training=no,offload=no,turn=after", "--also")), "a");
}

TEST(OtherModel, MistakesInTheTextAreNamed) {
  EXPECT_EQ(mistake_in_other("a,wrop=root"), "--also: Unknown key \"wrop\". Did you mean \"wrap\"?");
  EXPECT_NE(mistake_in_other("a,wrap=layers").find("\"wrap=layers\" is not root, blocks or none."), std::string::npos);
  EXPECT_NE(mistake_in_other("a,dtype=int8").find("\"dtype=int8\" is not bf16, fp16 or fp32."), std::string::npos);
  EXPECT_NE(mistake_in_other("a,offload").find("\"offload\" is not a key and a value."), std::string::npos);
  EXPECT_NE(mistake_in_other("wrap=root").find("does not begin with a model."), std::string::npos);
  EXPECT_NE(mistake_in_other("a,training=yes").find("PPO's critic, is not predicted."), std::string::npos);
}

constexpr planner::SmallTransformer kOtherSizes{.layers = 3, .hidden = 64, .heads = 4, .vocabulary = 128};

Plan plan_with(Framework framework, std::vector<OtherModel> also) {
  Plan plan;
  plan.runtime.framework = framework;
  plan.mesh = framework == Framework::Ddp ? Mesh{4, 1} : Mesh{1, 4};
  if (framework != Framework::Ddp) {
    for (int i = 0; i < kOtherSizes.layers; ++i) plan.units.push_back({{"model.layers." + std::to_string(i)}, {}});
  }
  plan.units.push_back({{""}, {}});
  plan.also = std::move(also);
  return plan;
}

Model model_with(const Plan& plan) {
  const auto spec = std::make_shared<const ModelSpec>(planner::small_transformer(kOtherSizes));
  Workload workload;
  for (const OtherModel& other : plan.also) workload.also.push_back({other, spec});
  return *build_model(*spec, workload);
}

std::string refused_other(const Plan& plan) {
  const Errors errors = check(plan, model_with(plan));
  std::string lines;
  for (const Error& error : errors) lines += to_string(error) + '\n';
  return errors.empty() ? "it is planned" : lines;
}

// TRL's prepare_fsdp: one call of fully_shard under FSDP2, the blocks under FSDP1; accelerate leaves it whole under
// DDP.
TEST(OtherModel, EachFrameworkHasItsOwnDefault) {
  const OtherModel other{.file = "a"};
  for (const auto& [framework, units] :
       {std::pair{Framework::Fsdp2, 1}, std::pair{Framework::Fsdp1, 4}, std::pair{Framework::Ddp, 1}}) {
    const Plan plan = plan_with(framework, {other});
    const Plan of_other = plan_of_other(other, model_with(plan).beside.front(), plan);
    EXPECT_EQ(of_other.units.size(), static_cast<std::size_t>(units));
    EXPECT_EQ(of_other.mesh.world_size(), framework == Framework::Ddp ? 1 : 4);
    EXPECT_EQ(refused_other(plan), "it is planned");
  }
}

TEST(OtherModel, ItsForwardIsOnItsSideOfTheTrainedModels) {
  Plan plan = plan_with(Framework::Fsdp2, {{.file = "a"}, {.file = "b", .turn = OtherTurn::Before}});
  plan.accumulation = 2;
  const Model model = model_with(plan);
  const ModelIndex index = index_of(model);
  const Layout layout = *make_layout(index, plan);
  const Schedule schedule = lower(index, plan, layout);
  EXPECT_TRUE(validate(schedule, index, layout).empty());
  std::vector<int> parts;
  for (std::size_t i = 0; i < schedule.instructions.size(); ++i) {
    const Instruction& step = schedule.instructions[i];
    if (step.kind != InstructionKind::RunOther) continue;
    parts.push_back(step.part);
    if (step.part == 1) {
      EXPECT_EQ(schedule.instructions[i - 1].kind, InstructionKind::LoadInputs);
    } else {
      EXPECT_EQ(schedule.instructions[i + 1].phase, StepPhase::Backward);
    }
  }
  EXPECT_EQ(parts, (std::vector{1, 0, 1, 0}));
}

TEST(OtherModel, WhatIsNotPredictedIsRefused) {
  const OtherModel other{.file = "a"};
  const auto with = [](OtherWrap wrap, bool offload = false) {
    return OtherModel{.file = "a", .wrap = wrap, .offload = offload};
  };
  Plan zero = plan_with(Framework::Zero3, {other});
  zero.units = {{{""}, {}}};
  zero.zero = default_zero_options(Framework::Zero3);
  EXPECT_NE(refused_other(zero).find("not predicted under ZeRO-3"), std::string::npos);
  EXPECT_NE(refused_other(plan_with(Framework::Ddp, {with(OtherWrap::Root)})).find("Write wrap=none."),
            std::string::npos);
  EXPECT_NE(refused_other(plan_with(Framework::Fsdp1, {with(OtherWrap::Root)})).find("Write wrap=blocks."),
            std::string::npos);
  EXPECT_NE(refused_other(plan_with(Framework::Fsdp1, {with(OtherWrap::Blocks, true)})).find("beside one of FSDP1"),
            std::string::npos);
  EXPECT_NE(refused_other(plan_with(Framework::Fsdp2, {with(OtherWrap::None, true)})).find("is not offloaded"),
            std::string::npos);
  Plan autocast = plan_with(Framework::Ddp, {other});
  autocast.parameter_dtype = Dtype::Float32;
  autocast.mixed_precision.autocast = Dtype::BFloat16;
  EXPECT_NE(refused_other(autocast).find("under autocast"), std::string::npos);
  Plan graphed = plan_with(Framework::Fsdp2, {other});
  graphed.cuda_graphs = true;
  EXPECT_NE(refused_other(graphed).find("beside a step that is a CUDA graph"), std::string::npos);
  Plan with_liger = plan_with(Framework::Fsdp2, {other});
  with_liger.liger = LigerKernels{};
  EXPECT_NE(refused_other(with_liger).find("beside one with Liger's kernels"), std::string::npos);
  Plan of_titan = plan_with(Framework::Fsdp2, {other});
  of_titan.runtime.implementations.titan_attention = true;
  EXPECT_NE(refused_other(of_titan).find("torchtitan trains one model"), std::string::npos);
  Plan floats = plan_with(Framework::Fsdp2, {other});
  floats.runtime.implementations.float_logits = true;
  EXPECT_NE(refused_other(floats).find("casts its logits"), std::string::npos);
  Plan capped = plan_with(Framework::Fsdp2, {other});
  Model with_cap = model_with(capped);
  with_cap.beside.front().blocks.front().ops.front().kind = OpKind::Softcap;
  EXPECT_NE(to_string(check(capped, with_cap).front()).find("caps its logits"), std::string::npos);
  Plan unbuilt = plan_with(Framework::Fsdp2, {});
  const Model alone = model_with(unbuilt);
  unbuilt.also = {other};
  EXPECT_EQ(to_string(check(unbuilt, alone).front()),
            "--also: The model was built without the other models of the plan.");
}

}  // namespace
}  // namespace fsdp
