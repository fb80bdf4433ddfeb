// A step of several passes: a generator and a critic of one linear each, small enough to check by hand.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/frameworks/check_plan.h"
#include "core/frameworks/layout.h"
#include "core/frameworks/lower.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/spec/captured_model.h"
#include "core/spec/model_spec.h"

namespace fsdp {
namespace {

// fake = generator(noise); loss_d = critic(real) + critic(fake.detach()), its backward, its step;
// loss_g = critic(fake), its backward, its step. The critic's gradients of the second backward are there until the next
// step clears them.
constexpr std::string_view kGan = R"({
"format_version": "1.0", "kind": "captured_model", "name": "Generator+Critic", "source": "captured from `python gan.py`",
"accumulation": 1, "optimizer": {"kind": "adam", "class": "Adam", "foreach": true, "fused": false},
"modules": [{"name": "", "class": "Generator+Critic", "called": false}, {"name": "Generator", "class": "Generator"},
            {"name": "Critic", "class": "Critic"}],
"parameters": [
  {"name": "Generator.weight", "shape": [4, 4], "dtype": "float32", "trainable": true, "receives_gradient": true},
  {"name": "Critic.weight", "shape": [4, 4], "dtype": "float32", "trainable": true, "receives_gradient": true}],
"buffers": [],
"points": [{
  "dimensions": {"batch": 2}, "tokens_per_step": 2,
  "values": [{"name": "noise", "shape": [2, 4], "dtype": null}, {"name": "real", "shape": [2, 4], "dtype": null},
             {"name": "fake", "shape": [2, 4], "dtype": null}, {"name": "a", "shape": [2, 4], "dtype": null},
             {"name": "b", "shape": [2, 4], "dtype": null}, {"name": "loss_d", "shape": [], "dtype": null},
             {"name": "c", "shape": [2, 4], "dtype": null}, {"name": "loss_g", "shape": [], "dtype": null}],
  "inputs": [0, 1], "loss": 7,
  "blocks": [
   {"kind": "linear", "modules": [{"name": "", "class": "Linear", "parent": -1}], "parameters": [[4, 4]],
    "values": [{"name": "x", "shape": [2, 4], "dtype": null}, {"name": "y", "shape": [2, 4], "dtype": null}],
    "num_inputs": 1, "outputs": [1],
    "ops": [{"name": "mm", "module": 0, "inputs": [0], "outputs": [1], "parameters": [0], "backward": true, "saves": true}],
    "tapes": [{"dtype": "float32", "checkpointed": false, "storage_op": [0],
      "forward": [[["alloc", 0, 32]]], "backward": [[["param_grad", 0, 64], ["release_input", 0], ["add_grad", 0]]],
      "outputs": [{"storage": 0, "bytes": 32, "kept": false}], "work": [[64, 0, 0, 0, 1, 128, 0, 0, 0, 2]]}]},
   {"kind": "glue", "modules": [{"name": "", "class": "loss", "parent": -1}], "parameters": [],
    "values": [{"name": "x", "shape": [2, 4], "dtype": null}, {"name": "y", "shape": [2, 4], "dtype": null},
               {"name": "loss", "shape": [], "dtype": null}],
    "num_inputs": 2, "outputs": [2],
    "ops": [{"name": "mean", "module": 0, "inputs": [0, 1], "outputs": [2], "parameters": [], "backward": true, "saves": false}],
    "tapes": [{"dtype": "float32", "checkpointed": false, "storage_op": [0],
      "forward": [[["alloc", 0, 4], ["release_input", 0], ["release_input", 1]]], "backward": [[]],
      "outputs": [{"storage": 0, "bytes": 4, "kept": false}], "work": [[0, 0, 0, 18, 1, 0, 0, 0, 18, 1]]}]},
   {"kind": "glue", "modules": [{"name": "", "class": "loss", "parent": -1}], "parameters": [],
    "values": [{"name": "x", "shape": [2, 4], "dtype": null}, {"name": "loss", "shape": [], "dtype": null}],
    "num_inputs": 1, "outputs": [1],
    "ops": [{"name": "mean", "module": 0, "inputs": [0], "outputs": [1], "parameters": [], "backward": true, "saves": false}],
    "tapes": [{"dtype": "float32", "checkpointed": false, "storage_op": [0],
      "forward": [[["alloc", 0, 4], ["release_input", 0]]], "backward": [[]],
      "outputs": [{"storage": 0, "bytes": 4, "kept": false}], "work": [[0, 0, 0, 18, 1, 0, 0, 0, 18, 1]]}]}],
  "calls": [
   {"block": 0, "module": 1, "modules": [1], "parameters": [0], "inputs": [0], "outputs": [2], "backward": 1},
   {"block": 0, "module": 2, "modules": [2], "parameters": [1], "inputs": [1], "outputs": [3], "backward": 0},
   {"block": 1, "module": -1, "modules": [-1], "parameters": [], "inputs": [3, 4], "outputs": [5], "backward": 0},
   {"block": 0, "module": 2, "modules": [2], "parameters": [1], "inputs": [2], "outputs": [6], "backward": 1},
   {"block": 2, "module": -1, "modules": [-1], "parameters": [], "inputs": [6], "outputs": [7], "backward": 1}],
  "stacks": [],
  "passes": [{"calls": 3, "loss": 5, "gradients": ["Critic"], "optimizers": [{"models": ["Critic"]}]},
             {"calls": 5, "loss": 7, "gradients": ["Critic", "Generator"], "optimizers": [{"models": ["Generator"]}]}],
  "clearings": [{"pass": 0, "call": 3, "models": ["Critic"]}, {"pass": 1, "call": 5, "models": ["Generator"]}]}]})";

// The second call of the critic in the first pass reads what the generator made; a pass of glue lies between the two.
std::string gan_text() {
  std::string text(kGan);
  const std::string_view after = R"("outputs": [3], "backward": 0},)";
  const std::size_t at = text.find(after);
  const std::string more =
      R"({"block": 2, "module": -1, "modules": [-1], "parameters": [], "inputs": [3], "outputs": [8], "backward": 0},
   {"block": 0, "module": 2, "modules": [2], "parameters": [1], "inputs": [2], "outputs": [4], "backward": 0},)";
  text.insert(at + after.size(), more);
  const std::string_view last = R"({"name": "loss_g", "shape": [], "dtype": null}])";
  text.replace(text.find(last), last.size(),
               R"({"name": "loss_g", "shape": [], "dtype": null}, {"name": "mean", "shape": [], "dtype": null}])");
  const auto put = [&](std::string_view before, std::string_view now) {
    const std::size_t place = text.find(before);
    EXPECT_NE(place, std::string::npos) << before;
    text.replace(place, before.size(), now);
  };
  put(R"({"calls": 3, "loss": 5)", R"({"calls": 5, "loss": 5)");
  put(R"({"calls": 5, "loss": 7)", R"({"calls": 7, "loss": 7)");
  put(R"("call": 3, "models")", R"("call": 5, "models")");
  put(R"({"pass": 1, "call": 5)", R"({"pass": 1, "call": 7)");
  return text;
}

std::string changed_gan(std::string_view before, std::string_view after) {
  std::string text = gan_text();
  const std::size_t at = text.find(before);
  EXPECT_NE(at, std::string::npos) << before;
  return text.replace(at, before.size(), after);
}

Model gan_of(std::string text) {
  const auto spec = parse_model_spec(std::move(text), "gan.json");
  if (!spec) {
    ADD_FAILURE() << to_string(spec.error().front());
    return {};
  }
  return spec->captured->points.front();
}

std::string error_of_gan(std::string text) {
  const auto spec = parse_model_spec(std::move(text), "gan.json");
  if (spec) return "none";
  std::string error = to_string(spec.error().front());
  const std::size_t pointer = error.find(": /");
  return pointer == std::string::npos ? error : error.substr(pointer + 2);
}

Plan plan_of_gan(ReshardAfterForward reshard = {}) {
  Plan plan;
  plan.mesh = {1, 2};
  plan.units = {{{"Generator"}, reshard}, {{"Critic"}, reshard}, {{""}, {}}};
  return plan;
}

Schedule lowered_gan(const Model& model, const Plan& plan, std::string* text = nullptr) {
  const ModelIndex index = index_of(model);
  const auto layout = make_layout(index, plan);
  EXPECT_TRUE(layout.has_value()) << to_string(layout.error().front());
  const Schedule schedule = lower(index, plan, *layout);
  for (const Error& error : validate(schedule, index, *layout)) ADD_FAILURE() << to_string(error);
  if (text != nullptr) *text = to_text(schedule, index, *layout);
  return schedule;
}

/// The first thing that is wrong with a schedule of the model.
std::string wrong_with_gan(const Schedule& schedule) {
  const Model model = gan_of(gan_text());
  const ModelIndex index = index_of(model);
  const auto layout = make_layout(index, plan_of_gan());
  const Errors errors = validate(schedule, index, *layout);
  return errors.empty() ? "nothing" : errors.front().what;
}

TEST(Passes, AreReadFromACapture) {
  const Model model = gan_of(gan_text());
  ASSERT_EQ(model.passes.size(), 2U);
  EXPECT_EQ(model.passes[0], (Pass{.call_end = 5, .loss = 5, .gradients = {2}, .optimizers = {0}}));
  EXPECT_EQ(model.passes[1], (Pass{.call_end = 7, .loss = 7, .gradients = {2, 1}, .optimizers = {1}}));
  EXPECT_EQ(model.optimizers, (std::vector<std::vector<int>>{{2}, {1}}));
  EXPECT_EQ(roots_of(model), (std::vector<int>{1, 2}));
  EXPECT_EQ(optimizer_of(model, 2), 0);
  EXPECT_EQ(model.clearings[1], (Clearing{.pass = 1, .call = 7, .modules = {1}}));
}

TEST(Passes, NoGradientGoesFromOneBackwardToAnother) {
  const ModelIndex index = index_of(gan_of(gan_text()));
  // The critic's inputs: real, fake.detach(), and the fake that the generator learns from.
  EXPECT_FALSE(index.flow.requires_grad[1][0]);
  EXPECT_FALSE(index.flow.requires_grad[3][0]);
  EXPECT_TRUE(index.flow.requires_grad[5][0]);
  const Model model = gan_of(gan_text());
  const auto layout = make_layout(index_of(model), plan_of_gan());
  ASSERT_TRUE(layout.has_value());
  // So FSDP2's post-backward hook of the critic fires in the second backward alone.
  std::vector<bool> hooks;
  for (const Window& window : layout->units[1].windows) hooks.push_back(window.has_post_backward);
  EXPECT_EQ(hooks, (std::vector<bool>{false, false, true}));
}

TEST(Passes, FollowEachOtherInOneStep) {
  std::string text;
  lowered_gan(gan_of(gan_text()), plan_of_gan(), &text);
  EXPECT_EQ(text,
            "LoadInputs\n"
            "Unshard \"Generator\"\n"
            "WaitForUnshard \"Generator\"\n"
            "Forward Generator:linear [0, 1)\n"
            "Free \"Generator\" all-gather output\n"
            "LeaveRoot\n"
            "Unshard \"Critic\"\n"
            "WaitForUnshard \"Critic\"\n"
            "Forward Critic:linear [0, 1)\n"
            "Free \"Critic\" all-gather output\n"
            "LeaveRoot\n"
            "Forward outside:glue [0, 1)\n"
            "Forward Critic:linear [0, 1)\n"
            "LeaveRoot\n"
            "Forward outside:glue [0, 1)\n"
            "ZeroGrad\n"
            "Backward outside:glue [0, 1)\n"
            "Backward Critic:linear [0, 1)\n"
            "Backward Critic:linear [0, 1)\n"
            "Reshard \"Critic\"\n"
            "ReduceGrads \"Critic\", keeps its last gradient\n"
            "Free \"Critic\" reduce-scatter input\n"
            "FinishReduce\n"
            // The generator, a root by itself, is gathered until its own backward.
            "OptimizerStep\n"
            "Unshard \"Critic\"\n"
            "WaitForUnshard \"Critic\"\n"
            "Forward Critic:linear [0, 1)\n"
            "Free \"Critic\" all-gather output\n"
            "LeaveRoot\n"
            "Forward outside:glue [0, 1)\n"
            "ZeroGrad\n"
            "Backward outside:glue [0, 1)\n"
            "Backward Critic:linear [0, 1)\n"
            "Reshard \"Critic\"\n"
            "ReduceGrads \"Critic\", keeps its last gradient\n"
            "Backward Generator:linear [0, 1)\n"
            "Free \"Critic\" reduce-scatter input\n"
            "Reshard \"Generator\"\n"
            "ReduceGrads \"Generator\", keeps its last gradient\n"
            "Free \"Generator\" reduce-scatter input\n"
            "FinishReduce\n"
            "OptimizerStep\n");
}

TEST(Passes, ReshardedModelIsGatheredForItsBackward) {
  using Kind = ReshardAfterForward::Kind;
  const Schedule schedule = lowered_gan(gan_of(gan_text()), plan_of_gan({Kind::Always, 0}));
  int gathers = 0;
  for (const Instruction& step : schedule.instructions) gathers += step.kind == InstructionKind::Unshard ? 1 : 0;
  // The generator: forward, backward. The critic: two forwards and one backward of both, then one of each.
  EXPECT_EQ(gathers, 7);
}

TEST(Passes, ModelFrozenInABackwardIsNotReducedInIt) {
  const auto reductions = [](const Model& model) {
    const Schedule schedule = lowered_gan(model, plan_of_gan());
    return std::count_if(schedule.instructions.begin(), schedule.instructions.end(),
                         [](const Instruction& step) { return step.kind == InstructionKind::ReduceGrads; });
  };
  Model model = gan_of(gan_text());
  EXPECT_EQ(reductions(model), 3);
  model.passes[1].gradients = {1};  // The critic lets gradients through to the generator.
  EXPECT_EQ(reductions(model), 2);
}

TEST(Passes, NextStepReusesGatheredUnits) {
  // The generator learns first; the critic from images that the generator makes after its step, without a backward.
  Model model = gan_of(gan_text());
  Call again = model.calls.front();
  again.backward = -1;
  again.outputs = {static_cast<int>(model.values.size())};
  model.values.push_back(model.values[2]);
  Model turned = model;
  turned.calls = {model.calls[0], model.calls[5], model.calls[6], again,
                  model.calls[1], model.calls[2], model.calls[3], model.calls[4]};
  for (Call& call : turned.calls) call.backward = call.backward < 0 ? -1 : 1 - call.backward;
  turned.passes = {{.call_end = 3, .loss = 7, .gradients = {1, 2}, .optimizers = {1}},
                   {.call_end = 8, .loss = 5, .gradients = {2}, .optimizers = {0}}};
  turned.calls[6].inputs = again.outputs;
  turned.clearings = {};
  const ModelIndex index = index_of(turned);
  const auto layout = make_layout(index, plan_of_gan());
  ASSERT_TRUE(layout.has_value());
  const auto [first, steady, second] = lower_steps(index, plan_of_gan(), *layout);
  const auto gathers = [](const Schedule& schedule) {
    return std::count_if(schedule.instructions.begin(), schedule.instructions.end(),
                         [](const Instruction& step) { return step.kind == InstructionKind::Unshard; });
  };
  EXPECT_EQ(gathers(first), gathers(steady) + 1);
  EXPECT_TRUE(validate(steady, index, *layout).empty());
}

TEST(Passes, InvalidScheduleIsFound) {
  const Schedule good = lowered_gan(gan_of(gan_text()), plan_of_gan());
  EXPECT_EQ(wrong_with_gan(good), "nothing");
  const auto place_of = [](const Schedule& schedule, InstructionKind kind, int which) {
    auto at = schedule.instructions.begin();
    for (int left = which; at != schedule.instructions.end(); ++at) {
      if (at->kind == kind && left-- == 0) break;
    }
    return at - schedule.instructions.begin();
  };
  Schedule early = good;  // The generator's optimizer steps where the critic's does.
  early.instructions[place_of(good, InstructionKind::OptimizerStep, 0)].part = 1;
  EXPECT_EQ(wrong_with_gan(early), "The optimizer runs while a unit is unsharded.");
  Schedule skipped = good;
  skipped.instructions.erase(skipped.instructions.begin() + place_of(good, InstructionKind::Backward, 0));
  EXPECT_EQ(wrong_with_gan(skipped), "An op is skipped in backward.");
  Schedule other = good;  // The generator's backward runs in the critic's pass.
  other.instructions[place_of(good, InstructionKind::Backward, 3)].call = 0;
  EXPECT_EQ(wrong_with_gan(other), "An op is skipped in backward.");
  Schedule unreduced = good;
  unreduced.instructions.erase(unreduced.instructions.begin() + place_of(good, InstructionKind::ReduceGrads, 1));
  EXPECT_EQ(wrong_with_gan(unreduced), "The reduce-scatter input of \"Critic\" is freed twice.");
  Schedule short_one = good;
  short_one.instructions.erase(short_one.instructions.begin() + place_of(good, InstructionKind::FinishReduce, 1));
  EXPECT_EQ(wrong_with_gan(short_one), "A backward is missing.");
}

TEST(Passes, EachModelIsAUnit) {
  const Model model = gan_of(gan_text());
  Plan plan = plan_of_gan();
  plan.units.erase(plan.units.begin());
  const auto layout = make_layout(index_of(model), plan);
  ASSERT_FALSE(layout.has_value());
  EXPECT_EQ(to_string(layout.error().front()),
            "units: \"Generator\" is a model by itself, which the script trains by turns with others. Add a unit with "
            "the module \"Generator\" after those inside it.");
}

TEST(Passes, UnpredictedFeaturesAreRefused) {
  const Model model = gan_of(gan_text());
  EXPECT_FALSE(passes_misfit(plan_of_gan(), model).has_value());
  const auto why = [&](auto change) {
    Plan plan = plan_of_gan();
    change(plan);
    const auto misfit = passes_misfit(plan, model);
    return misfit ? misfit->where + ": " + misfit->what : "none";
  };
  EXPECT_EQ(why([](Plan& plan) { plan.accumulation = 2; }),
            "accumulation: The script trains its models by turns, so that a step has the micro-batches that it was "
            "captured with.");
  EXPECT_EQ(why([](Plan& plan) { plan.runtime.framework = Framework::Ddp; }),
            "runtime: The script trains its models by turns, which is predicted for FSDP2, not for pytorch-ddp.");
  EXPECT_EQ(why([](Plan& plan) { plan.cpu_offload = true; }),
            "cpu_offload: The script trains its models by turns, whose states on the host are not predicted.");
  EXPECT_EQ(
      why([](Plan& plan) { plan.mixed_precision.param_dtype = Dtype::BFloat16; }),
      "mixed_precision: The script trains its models by turns, and FSDP2's casts for each of them are not predicted.");
  EXPECT_EQ(
      why([](Plan& plan) { plan.optimizer.clip_grad_norm = 1.0; }),
      "optimizer/clip_grad_norm: The script trains its models by turns, and norms of one model's gradients are not "
      "predicted.");
  EXPECT_EQ(why([](Plan& plan) { plan.forward_prefetch = 1; }),
            "prefetch: The script trains its models by turns, and explicit prefetches from one to another are not "
            "predicted.");
  Plan plan = plan_of_gan();
  plan.accumulation = 2;
  EXPECT_EQ(check(plan, model).front().where, "accumulation");
}

TEST(Passes, BrokenFilesAreRefused) {
  EXPECT_EQ(error_of_gan(changed_gan(R"("calls": 7)", R"("calls": 6)")),
            "/points/0/passes: The passes do not have all calls. Capture the script again.");
  EXPECT_EQ(error_of_gan(changed_gan(R"("calls": 5, "loss")", R"("calls": 8, "loss")")),
            "/points/0/passes/0/calls: 8 is out of range. Write an integer from 0 to 7.");
  EXPECT_EQ(
      error_of_gan(changed_gan(R"("models": ["Generator"]}]})", R"("models": ["Painter"]}]})")),
      "/points/0/passes/1/optimizers/0/models: \"Painter\" is no module below the root. Capture the script again.");
  EXPECT_EQ(error_of_gan(changed_gan(R"({"models": ["Generator"]})", R"({"models": ["Generator", "Critic"]})")),
            "/points/0/passes: Two optimizers step one model. Capture the script again.");
  EXPECT_EQ(error_of_gan(changed_gan(R"("optimizers": [{"models": ["Generator"]}])", R"("optimizers": [])")),
            "/points/0/passes: No optimizer steps \"Generator\", or nothing calls it. Capture the script again.");
  EXPECT_EQ(error_of_gan(changed_gan(R"("loss": 5, "gradients": ["Critic"], "optimizers")",
                                     R"("loss": 4, "gradients": ["Critic"], "optimizers")")),
            "/points/0/passes/0/loss: A loss is a scalar.");
  EXPECT_EQ(
      error_of_gan(changed_gan(R"("gradients": ["Critic", "Generator"])", R"("gradients": ["Generator"])")),
      "/points/0/passes: A call makes a gradient of \"Critic.weight\" in a backward without any of its model. Capture "
      "the script again.");
  EXPECT_EQ(error_of_gan(changed_gan(R"("inputs": [6], "outputs": [7], "backward": 1)",
                                     R"("inputs": [6], "outputs": [7], "backward": 2)")),
            "/points/0/passes: Call 6 has a backward before its forward, or none. Capture the script again.");
  EXPECT_EQ(error_of_gan(changed_gan(R"({"pass": 1, "call": 7)", R"({"pass": 0, "call": 1)")),
            "/points/0/clearings/1/call: It is before that of the clearing before. Capture the script again.");
}

}  // namespace
}  // namespace fsdp
