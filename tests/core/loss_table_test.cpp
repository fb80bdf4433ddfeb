#include "core/plan/loss_table.h"

#include <gtest/gtest.h>

#include "core/frameworks/check_plan.h"
#include "core/spec/model_spec.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

constexpr Loss kLiger{.kind = LossKind::Liger};

Model model_with(const std::string& file, const Loss& loss, Workload workload = {}) {
  workload.loss_takes_head = loss_row(loss).takes_head;
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

std::vector<std::string> errors_of(const Plan& plan, const Model& model) {
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
  EXPECT_EQ(errors_of(plan_with(model, kLiger), model), std::vector<std::string>{});
}

TEST(Losses, KeepTheCapOfTheLogits) {
  const Model model = model_with("gemma2_9b.json", kLiger);
  EXPECT_EQ(model.blocks[model.calls.back().block].ops.front().attributes.softcap, 30);
}

TEST(Losses, ThatTakeTheHeadAreRefusedWithoutOneOfTheirOwn) {
  const Model speech = model_with("qwen3_tts.json", kLiger);
  EXPECT_EQ(
      errors_of(plan_with(speech, kLiger), speech),
      std::vector<std::string>{"/runtime/implementations/loss: Qwen3-TTS-12Hz-1.7B-Base does not end with one linear "
                               "head and its cross entropy, which Liger's fused linear cross entropy takes "
                               "together. Write \"pytorch\", or leave it out."});
}

TEST(Losses, ThatTakeTheHeadRunInTheRootsForward) {
  const Model model = model_with("qwen3_8b.json", kLiger);
  Plan plan = plan_with(model, kLiger);
  plan.runtime.implementations.loss_after_root = true;
  EXPECT_EQ(
      errors_of(plan, model),
      std::vector<std::string>{"/runtime/implementations/loss: Liger's fused linear cross entropy runs in the "
                               "model's forward, and this plan's loss after it. Plan with --flavor transformers."});
  plan = plan_with(model, kLiger);
  plan.runtime.implementations.keep_logits = true;
  EXPECT_EQ(
      errors_of(plan, model),
      std::vector<std::string>{"/runtime/implementations/loss: Liger's fused linear cross entropy makes no logits "
                               "to keep or to cast. Leave \"keep_logits\" and \"float_logits\" out."});
  // The root gathers no unit of the head alone; one with the norm has been gathered by it, and waits for the head.
  plan = plan_with(model, kLiger);
  plan.units = {{{"lm_head"}}, {{""}}};
  EXPECT_EQ(errors_of(plan, model).size(), 1U);
  plan.units = {{{"model.norm", "lm_head"}}, {{""}}};
  EXPECT_EQ(errors_of(plan, model), std::vector<std::string>{});
}

TEST(Losses, OfLigerTrainNoHeadAlone) {
  const Model model = model_with("qwen3_8b.json", kLiger, {.trainable = {"lm_head.*"}});
  EXPECT_EQ(errors_of(plan_with(model, kLiger), model).size(), 1U);
  const Loss chunked{.kind = LossKind::ChunkedNll};
  EXPECT_EQ(errors_of(plan_with(model, chunked), model), std::vector<std::string>{});
}

TEST(Losses, OfAnotherKindThanTheModelsAreRefused) {
  const Model model = model_with("qwen3_8b.json", kLiger);
  EXPECT_EQ(errors_of(plan_with(model, Loss{}), model).size(), 1U);
}

}  // namespace
}  // namespace fsdp
