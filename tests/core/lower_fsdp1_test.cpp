// FSDP1: how parameters lie in a flat one, and the order of events of a step, on small models. What the real FSDP1 does
// with many more is in tests/rehearsal/plan_cases_fsdp1.py.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/frameworks/check_plan.h"
#include "core/frameworks/fsdp1/lower_fsdp1.h"
#include "core/frameworks/layout.h"
#include "core/plan/schedule.h"
#include "tests/support/assemble_model.h"
#include "tests/support/collective_models.h"

namespace fsdp {
namespace {

using Kind = ReshardAfterForward::Kind;

/// stem, blocks of two linears each, head, and a loss in the root.
Model flat_chain(int blocks, const std::string& widths = "8,12,8") {
  Words sizes = {{"in", "6"}, {"out", "5"}};
  for (int b = 0; b < blocks; ++b) sizes["blocks"] += b == 0 ? widths : ";" + widths;
  return collective_model("mlp", sizes, Dtype::Float32);
}

Plan flat_plan(int blocks, Kind reshard = Kind::Always) {
  Plan plan;
  plan.runtime.framework = Framework::Fsdp1;
  plan.mesh = {1, 4};
  for (int b = 0; b < blocks; ++b) plan.units.push_back({{fmt::format("blocks.{}", b)}, {reshard, 0}});
  plan.units.push_back({{""}, {}});
  return plan;
}

Schedule lower_flat(const Model& model, const Plan& plan, bool is_first_step = false, std::string* text = nullptr) {
  const ModelIndex index = index_of(model);
  const auto layout = make_layout(index, plan);
  EXPECT_TRUE(layout.has_value()) << to_string(layout.error().front());
  Schedule schedule = lower_fsdp1(index, plan, *layout, is_first_step);
  for (const Error& error : validate(schedule, index, *layout)) ADD_FAILURE() << to_string(error);
  if (text != nullptr) *text = to_text(schedule, index, *layout);
  return schedule;
}

/// Gathers, frees and reductions of one micro-batch: "AG root, AG 0, -0 | RS 0".
std::string flat_events(const Model& model, const Plan& plan, int micro_batch = 0, bool is_first_step = false) {
  std::string text;
  StepPhase phase = StepPhase::Forward;
  for (const Instruction& step : lower_flat(model, plan, is_first_step).instructions) {
    std::string_view word;
    if (step.kind == InstructionKind::Unshard) word = "AG ";
    if (step.kind == InstructionKind::Reshard) word = "-";
    if (step.kind == InstructionKind::ReduceGrads) word = "RS ";
    if (step.kind == InstructionKind::AccumulateGrads) word = "keep ";
    if (word.empty() || step.micro_batch != micro_batch) continue;
    if (step.phase != phase) {
      text += text.empty() ? "| " : " | ";
    } else if (!text.empty()) {
      text += ", ";
    }
    phase = step.phase;
    const std::string name = plan.units[step.unit].modules.front();
    text += fmt::format("{}{}", word, name.empty() ? "root" : name.substr(name.find('.') + 1));
  }
  return text;
}

TEST(LowerFsdp1, StepMatchesItsListing) {
  std::string text;
  lower_flat(flat_chain(1), flat_plan(1), false, &text);
  EXPECT_EQ(text, R"(LoadInputs
Unshard ""
WaitForUnshard ""
Forward stem:stem [0, 1)
Unshard "blocks.0"
WaitForUnshard "blocks.0"
Forward blocks.0:block [0, 4)
Reshard "blocks.0"
Forward head:head [0, 1)
Forward :loss [0, 3)
LeaveRoot
LimitGathers ""
Unshard "blocks.0"
Backward :loss [0, 3)
Backward head:head [0, 1)
WaitForUnshard "blocks.0"
Backward blocks.0:block [0, 4)
FlattenGrads "blocks.0"
Reshard "blocks.0"
ReduceGrads "blocks.0"
Free "blocks.0" reduce-scatter input
Backward stem:stem [0, 1)
FlattenGrads ""
Reshard ""
ReduceGrads ""
Free "" reduce-scatter input
FinishReduce
OptimizerStep
ZeroGrad
)");
}

TEST(LowerFsdp1, BackwardPrefetchMovesAGather) {
  Plan plan = flat_plan(3);
  EXPECT_EQ(flat_events(flat_chain(3), plan),
            "AG root, AG 0, -0, AG 1, -1, AG 2, -2 | AG 2, AG 1, -2, RS 2, AG 0, -1, RS 1, -0, RS 0, -root, RS root");
  plan.fsdp1.backward_prefetch = BackwardPrefetch::Post;
  EXPECT_EQ(flat_events(flat_chain(3), plan),
            "AG root, AG 0, -0, AG 1, -1, AG 2, -2 | AG 2, -2, AG 1, RS 2, -1, AG 0, RS 1, -0, RS 0, -root, RS root");
  plan.fsdp1.backward_prefetch = BackwardPrefetch::None;
  EXPECT_EQ(flat_events(flat_chain(3), plan),
            "AG root, AG 0, -0, AG 1, -1, AG 2, -2 | AG 2, -2, RS 2, AG 1, -1, RS 1, AG 0, -0, RS 0, -root, RS root");
}

// The views of a unit are older than the ops of the unit before it then, and so is what makes its gradient one.
TEST(LowerFsdp1, ForwardPrefetchDelaysReductionsByOneUnit) {
  Plan plan = flat_plan(3);
  plan.fsdp1.forward_prefetch = true;
  EXPECT_EQ(flat_events(flat_chain(3), plan),
            "AG root, AG 0, AG 1, -0, AG 2, -1, -2 | AG 2, AG 1, AG 0, -2, RS 2, -1, RS 1, -0, RS 0, -root, RS root");
  EXPECT_EQ(flat_events(flat_chain(3), plan, 0, true), flat_events(flat_chain(3), flat_plan(3)));
}

TEST(LowerFsdp1, ShardGradOpGathersUnitsOncePerStepWithoutSync) {
  Plan plan = flat_plan(2, Kind::Never);
  EXPECT_EQ(flat_events(flat_chain(2), plan), "AG root, AG 0, AG 1 | -1, RS 1, -0, RS 0, -root, RS root");
  plan.accumulation = 2;
  plan.sync_every_micro_batch = false;
  EXPECT_EQ(flat_events(flat_chain(2), plan, 0), "AG root, AG 0, AG 1 | keep 1, keep 0, keep root");
  EXPECT_EQ(flat_events(flat_chain(2), plan, 1), "| -1, RS 1, -0, RS 0, -root, RS root");
}

TEST(LowerFsdp1, FrozenUnitIsFreedOnceItsInputHasAGradient) {
  Model model = flat_chain(3);
  for (Parameter& parameter : model.parameters) {
    if (parameter.name.starts_with("blocks.1.")) parameter.trainable = false;
  }
  derive_gradient_flow(model);
  EXPECT_EQ(flat_events(model, flat_plan(3)),
            "AG root, AG 0, -0, AG 1, -1, AG 2, -2 | AG 2, AG 1, -2, RS 2, AG 0, -1, -0, RS 0, -root, RS root");
}

// blocks.0 has 5 x 3, 3, 3 x 5 and 5 elements: 38. 16 bytes are 4 elements of fp32: they begin at 0, 16, 20 and 36, and
// end at 41. In bf16 8 elements: at 0, 16, 24 and 40, and end at 45.
TEST(FlatUnits, OriginalParametersBeginAtSixteenBytes) {
  const Model model = flat_chain(1, "5,3,5");
  const ModelIndex index = index_of(model);
  Plan plan = flat_plan(1);
  plan.mesh.dp_shard() = 7;
  const auto is_of = [&](const Plan& of) { return make_layout(index, of)->units.front(); };
  EXPECT_EQ(is_of(plan).true_elements, 38);
  EXPECT_EQ(is_of(plan).shard_elements, 6);  // ceil(38 / 7)
  EXPECT_EQ(is_of(plan).full_elements, 42);
  plan.fsdp1.use_orig_params = true;
  EXPECT_EQ(is_of(plan).true_elements, 42);  // To sevens.
  plan.mixed_precision.param_dtype = Dtype::BFloat16;
  const ShardedUnit bf16 = is_of(plan);
  EXPECT_EQ(bf16.true_elements, 49);
  std::vector<std::int64_t> begins;
  for (const ShardedParameter& p : bf16.parameters) begins.push_back(p.flat_begin);
  std::vector<std::int64_t> local(4);
  for (std::size_t p = 0; p < 4; ++p) {
    for (std::int64_t rank = 0; rank < 7; ++rank) local[p] += bf16.parameters[p].local_elements_of(rank);
  }
  EXPECT_EQ(begins, (std::vector<std::int64_t>{0, 16, 24, 40}));
  EXPECT_EQ(local, (std::vector<std::int64_t>{15, 3, 15, 5}));
  EXPECT_EQ(bf16.parameters[0].local_elements_of(2), 1);  // Rank 2 has 14 to 20 of the flat parameter.
}

std::vector<std::string> refusals(const Plan& plan) {
  const Model model = flat_chain(2);
  std::vector<std::string> texts;
  for (const Error& error : check(plan, model)) texts.push_back(error.what);
  return texts;
}

TEST(FlatUnits, PlansThatFsdp1CannotExpressAreRefused) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(refusals(flat_plan(2)), Texts{});
  Plan mixed = flat_plan(2);
  mixed.units[1].reshard_after_forward.kind = Kind::Never;
  EXPECT_EQ(refusals(mixed), Texts{"FSDP1 has one strategy for all units, and their reshard_after_forward differs."});
  Plan smaller = flat_plan(2);
  smaller.units[0].reshard_after_forward = {Kind::Smaller, 2};
  EXPECT_EQ(refusals(smaller), Texts{"FSDP1 has no number for reshard_after_forward."});
  Plan several = flat_plan(0);
  several.units.insert(several.units.begin(), Unit{{"blocks.0", "blocks.1"}, {}});
  EXPECT_EQ(refusals(several), Texts{"FSDP1 wraps one module at a time, and the unit has several."});
  Plan more = flat_plan(2);
  more.backward_prefetch = 2;
  more.mixed_precision.output_dtype = Dtype::Float32;
  EXPECT_EQ(refusals(more), (Texts{"FSDP1 has no prefetch by a number of units.", "FSDP1 casts no outputs."}));
}

TEST(FlatUnits, AnOffloadThatLosesGradientsIsRefused) {
  using Texts = std::vector<std::string>;
  Plan plan = flat_plan(2);
  plan.cpu_offload = true;
  EXPECT_EQ(refusals(plan), Texts{});
  plan.accumulation = 2;
  EXPECT_EQ(refusals(plan), Texts{"With CPU offload FSDP1 copies each reduced gradient over that of the micro-batch "
                                  "before, which is lost."});
  plan.sync_every_micro_batch = false;
  EXPECT_EQ(refusals(plan), Texts{});
  plan.fsdp1.use_orig_params = true;
  plan.mixed_precision.param_dtype = Dtype::BFloat16;
  plan.parameter_dtype = Dtype::Float32;
  EXPECT_EQ(refusals(plan), Texts{});
  plan.parameter_dtype = Dtype::BFloat16;
  ASSERT_EQ(refusals(plan).size(), 1u);
  EXPECT_TRUE(refusals(plan).front().starts_with("With use_orig_params and"));
}

TEST(FlatUnits, AFlatParameterIsTrainedOrFrozenAsAWhole) {
  Model model = flat_chain(2);
  const auto in_block = [](const Parameter& parameter) { return parameter.name.starts_with("blocks.1."); };
  std::find_if(model.parameters.begin(), model.parameters.end(), in_block)->trainable = false;
  derive_gradient_flow(model);
  const auto layout = make_layout(index_of(model), flat_plan(2));
  ASSERT_FALSE(layout.has_value());
  EXPECT_NE(layout.error().front().what.find("a flat parameter is trained or frozen as a whole"), std::string::npos);
}

}  // namespace
}  // namespace fsdp
