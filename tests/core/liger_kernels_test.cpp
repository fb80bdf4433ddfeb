// Kernels of Liger: the text of the option, the parts of a model that they replace, and what is refused.

#include "core/plan/liger_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/plan/plan.h"
#include "core/spec/model_spec.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

constexpr LigerKernels kAllOfLiger;
constexpr LigerKernels kNormAlone = {.all = false, .rms_norm = true};

std::string mistakes_in_kernels(std::string_view text) {
  const auto read = parse_liger(text, "--liger");
  if (read) return "it is read";
  std::string all;
  for (const Error& error : read.error()) all += to_string(error) + "\n";
  return all;
}

std::string refused_with_liger(const std::string& spec, const LigerKernels& kernels) {
  const auto model = build_model(*read_model_spec("model_specs/" + spec), {.liger = kernels});
  return model ? "it is built" : to_string(model.error().front());
}

std::int64_t count_ops(const Model& model, const auto& is_such) {
  std::int64_t count = 0;
  for (const Call& call : model.calls) {
    const std::vector<Op>& ops = model.blocks[call.block].ops;
    count += std::count_if(ops.begin(), ops.end(), is_such);
  }
  return count;
}

struct LigerOps {
  std::int64_t norms = 0, in_place = 0, rotary = 0, glu = 0, products = 0;

  bool operator==(const LigerOps&) const = default;
};

LigerOps liger_ops(const std::string& spec, const LigerKernels& kernels) {
  const Model model = model_of(spec, {.liger = kernels});
  const auto of = [&](OpKind kind, bool in_place) {
    return count_ops(model, [&](const Op& op) {
      return op.kind == kind && op.attributes.liger && (!in_place || op.attributes.in_place);
    });
  };
  return {.norms = of(OpKind::RmsNorm, false),
          .in_place = of(OpKind::RmsNorm, true),
          .rotary = of(OpKind::Rotary, false),
          .glu = count_ops(model, [](const Op& op) { return op.kind == OpKind::LigerGlu; }),
          .products = count_ops(model, [](const Op& op) { return op.kind == OpKind::Mul; })};
}

TEST(LigerKernels, TextIsReadAsItIsWritten) {
  EXPECT_EQ(parse_liger("all", "--liger"), kAllOfLiger);
  EXPECT_EQ(parse_liger("swiglu,rope", "--liger"), (LigerKernels{.all = false, .rope = true, .glu = true}));
  for (const std::string_view text : {"all", "rope", "rms_norm", "glu", "rope,rms_norm,glu"}) {
    EXPECT_EQ(to_text(*parse_liger(text, "--liger")), text);
  }
  EXPECT_EQ(sentence_of(kAllOfLiger), "Liger's kernels");
  EXPECT_EQ(sentence_of({.all = false, .rope = true, .glu = true}), "Liger's rope and glu");
}

TEST(LigerKernels, MistakesInTheTextAreNamed) {
  EXPECT_EQ(mistakes_in_kernels("rms_nrom,ropes"),
            "--liger: Unknown kernel \"rms_nrom\". Did you mean \"rms_norm\"?\n"
            "--liger: Unknown kernel \"ropes\". Did you mean \"rope\"?\n");
  EXPECT_NE(mistakes_in_kernels("rope,all").find("\"all\" stands alone."), std::string::npos);
  EXPECT_NE(mistakes_in_kernels("layer_norm").find("no LayerNorm that Liger replaces"), std::string::npos);
  EXPECT_NE(mistakes_in_kernels("fused_linear_cross_entropy").find("write --loss liger"), std::string::npos);
  EXPECT_NE(mistakes_in_kernels("cross_entropy").find("is not predicted"), std::string::npos);
}

// Llama 3.1 8B: 32 layers with two norms each, and the last norm. Qwen3 has two more for queries and keys.
TEST(LigerKernels, ReplaceTheLibrarysPartsOfAFamily) {
  EXPECT_EQ(liger_ops("llama3_1_8b.json", kAllOfLiger), (LigerOps{65, 65, 32, 32, 0}));
  EXPECT_EQ(liger_ops("llama3_1_8b.json", kNormAlone), (LigerOps{65, 65, 0, 0, 32}));
  EXPECT_EQ(liger_ops("qwen3_8b.json", kAllOfLiger), (LigerOps{36 * 4 + 1, 36 * 4 + 1, 36, 36, 0}));
  // Two norms follow each other there, so that their gradients are new tensors.
  EXPECT_EQ(liger_ops("gemma2_9b.json", kAllOfLiger), (LigerOps{42 * 4 + 1, 0, 42, 42, 0}));
}

TEST(LigerKernels, WhatIsNotPredictedIsRefused) {
  EXPECT_EQ(
      refused_with_liger("mixtral_8x7b.json", kAllOfLiger),
      "--liger: Liger's kernels for experts, which \"glu\" switches on for Mixtral-8x7B, are not predicted. Write "
      "--liger rope,rms_norm, or leave it out.");
  EXPECT_EQ(refused_with_liger("qwen3_30b_a3b.json", {.all = false, .glu = true})
                .find("--liger: Liger's kernels for experts"),
            0U);
  EXPECT_NE(refused_with_liger("gpt2.json", kAllOfLiger).find("Liger's kernels are not predicted for GPT-2"),
            std::string::npos);
  EXPECT_EQ(refused_with_liger("mixtral_8x7b.json", {.all = false, .rope = true, .rms_norm = true}), "it is built");
}

TEST(LigerKernels, PlansOfOtherFrameworksAndFlavorsAreRefused) {
  Plan plan;
  plan.liger = kAllOfLiger;
  for (const Framework framework : {Framework::Fsdp2, Framework::Fsdp1, Framework::Ddp}) {
    plan.runtime.framework = framework;
    EXPECT_FALSE(liger_misfit(plan).has_value());
  }
  plan.runtime.framework = Framework::Zero3;
  EXPECT_EQ(liger_misfit(plan)->what, "Liger's kernels are not predicted under ZeRO-3.");
  plan.runtime = *runtime_of_flavor("torchtitan");
  EXPECT_EQ(liger_misfit(plan)->what, "Liger replaces parts of transformers' models, not those of torchtitan.");
}

}  // namespace
}  // namespace fsdp
