#include "core/plan/loss_table.h"

#include <gtest/gtest.h>

#include "core/frameworks/check_plan.h"
#include "core/frameworks/layout.h"
#include "core/frameworks/lower.h"
#include "core/plan/torch_version.h"
#include "core/spec/model_spec.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

constexpr Loss kLiger{.kind = LossKind::Liger};
constexpr Loss kTitan{.kind = LossKind::TitanChunked};

/// torchtitan's units of a model without blocks of their own, on a release whose root leaves the last one.
Plan titan_plan(const Model& model) {
  Plan plan;
  plan.model = model.name;
  plan.mesh.dp_shard() = 2;
  plan.units = {{{"model.embed_tokens"}}, {{"model.norm", "lm_head"}, {ReshardAfterForward::Kind::Never, 0}}, {{""}}};
  set_torch_version(plan.runtime, *find_torch_version("2.13"));
  set_loss(plan, kTitan);
  return plan;
}

Model model_with(const std::string& file, const Loss& loss, Workload workload = {}) {
  workload.loss_takes_head = loss_row(loss).takes_head;
  workload.loss_calls_head = loss_row(loss).calls_head;
  return model_of(file, workload);
}

Plan plan_with(const Model& model, const Loss& loss) {
  Plan plan;
  plan.model = model.name;
  plan.mesh.dp_shard() = 2;
  plan.units = {{{""}}};
  set_loss(plan, loss);
  return plan;
}

std::vector<std::string> errors_of_loss(const Plan& plan, const Model& model) {
  std::vector<std::string> lines;
  for (const Error& error : check(plan, model)) lines.push_back(to_string(error));
  return lines;
}

TEST(Losses, AreReadByName) {
  for (const LossRow& row : kLossRows) {
    EXPECT_EQ(parse_loss(row.name)->kind, row.kind);
    EXPECT_EQ(to_text({.kind = row.kind}), row.name);
  }
  const auto error = [](std::string_view text) { return to_string(parse_loss(text).error().front()); };
  EXPECT_EQ(error("ligr"), "--loss: Unknown loss \"ligr\". Did you mean \"liger\"?");
  EXPECT_EQ(error("liger,chunks=8"),
            "--loss: Liger's fused linear cross entropy has no option \"chunks=8\". Write liger.");
}

TEST(Losses, ThatTakeTheHeadEndTheModelWithOneOpOfTheRoot) {
  const Model model = model_with("qwen3_8b.json", kLiger);
  const Call& last = model.calls.back();
  const Op& op = model.blocks[last.block].ops.front();
  EXPECT_EQ(op.kind, OpKind::LinearCrossEntropy);
  EXPECT_TRUE(op.attributes.shift);
  EXPECT_EQ(last.modules[op.module], 0);
  const Parameter& weight = model.parameters[last.parameters[op.parameters.front()]];
  EXPECT_EQ(weight.name, "lm_head.weight");
  EXPECT_TRUE(weight.receives_gradient);
  EXPECT_EQ(fingerprint_of(model), fingerprint_of(model_with("qwen3_8b.json", Loss{})));
  EXPECT_EQ(errors_of_loss(plan_with(model, kLiger), model), std::vector<std::string>{});
}

TEST(Losses, OfLigersOlderReleaseNeedATrainedHead) {
  const Loss older = *parse_loss("liger-0.8.1");
  EXPECT_EQ(to_text(older), "liger-0.8.1");
  Model model = model_with("qwen3_8b.json", older);
  EXPECT_EQ(errors_of_loss(plan_with(model, older), model), std::vector<std::string>{});
  for (Parameter& parameter : model.parameters) {
    if (parameter.name == "lm_head.weight") parameter.trainable = parameter.receives_gradient = false;
  }
  EXPECT_EQ(
      errors_of_loss(plan_with(model, older), model),
      std::vector<std::string>{"/runtime/implementations/loss: Liger's fused linear cross entropy of 0.8.1 is not "
                               "predicted with a frozen head, as \"lm_head.weight\" is. Write \"pytorch\", or "
                               "leave it out."});
}

TEST(Losses, ThatCallTheHeadRunAfterTheRoot) {
  EXPECT_EQ(*parse_loss("torchtitan_chunked,chunks=16"), (Loss{.kind = LossKind::TitanChunked, .chunks = 16}));
  EXPECT_EQ(num_chunks(kTitan), 8);
  const Model model = model_with("qwen3_8b.json", kTitan);
  EXPECT_EQ(model.calls.back().module, -1);
  EXPECT_EQ(fingerprint_of(model), fingerprint_of(model_with("qwen3_8b.json", Loss{})));
  EXPECT_EQ(errors_of_loss(titan_plan(model), model), std::vector<std::string>{});
  // The root gathers the head with all else that has no unit.
  Plan plan = plan_with(model, kTitan);
  EXPECT_EQ(errors_of_loss(plan, model), std::vector<std::string>{});
  EXPECT_EQ(make_layout(index_of(model), plan)->loss.unit, -1);
}

TEST(Losses, ThatCallTheHeadReduceItsGradientInTheForward) {
  const Model model = model_with("qwen3_8b.json", kTitan);
  const ModelIndex index = index_of(model);
  const Plan plan = titan_plan(model);
  const Layout layout = *make_layout(index, plan);
  const ShardedUnit& unit = layout.units[1];
  // 151936 x 4096 of the head in the loss, 4096 of the norm in the backward.
  EXPECT_EQ(layout.loss.true_elements, 622'329'856);
  EXPECT_EQ(unit.reduced_true_elements, 4096);
  const StepSchedules steps = lower_steps(index, plan, layout);
  const auto events_of = [&](const Schedule& schedule) {
    std::string text;
    for (const Instruction& step : actions_of(schedule)) {
      if (step.unit != 1) continue;
      text += std::string(name_of(step.kind)) + (step.reduces_loss() ? " of the loss" : "") + "\n";
    }
    return text;
  };
  const std::string loss_and_backward =
      "ReduceGrads of the loss\nReshard\nUnshard\nWaitForUnshard\nReshard\nReduceGrads\n";
  EXPECT_EQ(events_of(steps.first), "Unshard\nWaitForUnshard\n" + loss_and_backward);
  EXPECT_EQ(events_of(steps.steady), "Unshard\nWaitForUnshard\nReshard\nUnshard\nWaitForUnshard\n" + loss_and_backward);
  EXPECT_EQ(validate(steps.first, index, layout).size(), 0U);
  EXPECT_EQ(validate(steps.steady, index, layout).size(), 0U);
}

TEST(Losses, ThatCallTheHeadAreRefusedWhereTheirLibraryFails) {
  const Model model = model_with("qwen3_8b.json", kTitan);
  const auto error_of = [&](const Plan& plan) {
    const std::vector<std::string> lines = errors_of_loss(plan, model);
    return lines.size() == 1 ? lines.front() : std::string("not one error");
  };
  Plan plan = titan_plan(model);
  set_torch_version(plan.runtime, *find_torch_version("2.12"));
  EXPECT_EQ(error_of(plan),
            "units/1: PyTorch 2.12 ends with an error: torchtitan's loss in chunks has freed the unit of "
            "\"model.norm\" when its backward begins. Plan for --torch 2.13 or later, or leave the head to the root.");
  plan = titan_plan(model);
  plan.units[1].modules = {"lm_head"};
  EXPECT_EQ(error_of(plan),
            "units/1: A unit of the head alone is not predicted under torchtitan's loss in chunks. Wrap the norm "
            "before the head with it, as torchtitan does, or leave the head to the root.");
  plan = titan_plan(model);
  plan.units[1].reshard_after_forward = {ReshardAfterForward::Kind::Smaller, 1};
  EXPECT_EQ(errors_of_loss(plan, model), std::vector<std::string>{});  // One rank has all of it.
  plan.runtime.implementations.loss.chunks = 7;
  EXPECT_EQ(error_of(plan).substr(0, 55), "/runtime/implementations/loss: 7 parts of a sequence ar");
  plan = titan_plan(model);
  plan.accumulation = 2;
  plan.sync_every_micro_batch = false;
  EXPECT_EQ(error_of(plan),
            "sync_every_micro_batch: torchtitan's loss in chunks reduces the head's gradient in every micro-batch. "
            "Plan with --gradient-sync every.");
  plan = plan_with(model, kTitan);
  plan.units.back().reshard_after_forward = {ReshardAfterForward::Kind::Always, 0};
  EXPECT_EQ(error_of(plan).substr(0, 8), "units/0:");
  const Model capped = model_with("gemma2_9b.json", kTitan);
  EXPECT_EQ(errors_of_loss(plan_with(capped, kTitan), capped).size(), 1U);
}

TEST(Losses, KeepTheCapOfTheLogits) {
  const Model model = model_with("gemma2_9b.json", kLiger);
  EXPECT_EQ(model.blocks[model.calls.back().block].ops.front().attributes.softcap, 30);
}

TEST(Losses, ThatTakeTheHeadAreRefusedWithoutOneOfTheirOwn) {
  const Model speech = model_with("qwen3_tts.json", kLiger);
  EXPECT_EQ(
      errors_of_loss(plan_with(speech, kLiger), speech),
      std::vector<std::string>{"/runtime/implementations/loss: Qwen3-TTS-12Hz-1.7B-Base does not end with one linear "
                               "head and its cross entropy, which Liger's fused linear cross entropy takes "
                               "together. Write \"pytorch\", or leave it out."});
}

TEST(Losses, ThatTakeTheHeadRunInTheRootsForward) {
  const Model model = model_with("qwen3_8b.json", kLiger);
  Plan plan = plan_with(model, kLiger);
  plan.runtime.implementations.loss_after_root = true;
  EXPECT_EQ(
      errors_of_loss(plan, model),
      std::vector<std::string>{"/runtime/implementations/loss: Liger's fused linear cross entropy runs in the "
                               "model's forward, and this plan's loss after it. Plan with --flavor transformers."});
  plan = plan_with(model, kLiger);
  plan.runtime.implementations.keep_logits = true;
  EXPECT_EQ(
      errors_of_loss(plan, model),
      std::vector<std::string>{"/runtime/implementations/loss: Liger's fused linear cross entropy makes no logits "
                               "to keep or to cast. Leave \"keep_logits\" and \"float_logits\" out."});
  // The root gathers no unit of the head alone; one with the norm has been gathered by it, and waits for the head.
  plan = plan_with(model, kLiger);
  plan.units = {{{"lm_head"}}, {{""}}};
  EXPECT_EQ(errors_of_loss(plan, model).size(), 1U);
  plan.units = {{{"model.norm", "lm_head"}}, {{""}}};
  EXPECT_EQ(errors_of_loss(plan, model), std::vector<std::string>{});
}

TEST(Losses, OfLigerTrainNoHeadAlone) {
  const Model model = model_with("qwen3_8b.json", kLiger, {.trainable = {"lm_head.*"}});
  EXPECT_EQ(errors_of_loss(plan_with(model, kLiger), model).size(), 1U);
  const Loss chunked{.kind = LossKind::ChunkedNll};
  EXPECT_EQ(errors_of_loss(plan_with(model, chunked), model), std::vector<std::string>{});
}

TEST(Losses, OfAnotherKindThanTheModelsAreRefused) {
  const Model model = model_with("qwen3_8b.json", kLiger);
  EXPECT_EQ(errors_of_loss(plan_with(model, Loss{}), model).size(), 1U);
}

}  // namespace
}  // namespace fsdp
