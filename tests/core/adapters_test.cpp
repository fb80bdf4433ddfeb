// LoRA adapters of PEFT: the text of the option, the layers that get them, their order and what is trained.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/plan/lora.h"
#include "core/spec/model_spec.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

LoraOptions lora_of(std::string_view text) {
  const auto read = parse_lora(text, "--lora");
  EXPECT_TRUE(read.has_value()) << text;
  return read.value_or(LoraOptions{});
}

std::string mistake_in(std::string_view text) {
  const auto read = parse_lora(text, "--lora");
  return read ? "it is read" : to_string(read.error().front());
}

Model adapted_model(const std::string& spec, std::string_view text) {
  return model_of(spec, Workload{.lora = lora_of(text)});
}

std::string refused_adapters(const std::string& spec, std::string_view text) {
  const auto model = build_model(*read_model_spec("model_specs/" + spec), Workload{.lora = lora_of(text)});
  return model ? "it is built" : to_string(model.error().front());
}

TEST(Adapters, TextIsReadAsItIsWritten) {
  EXPECT_EQ(lora_of("16"), (LoraOptions{.r = 16}));
  const LoraOptions all = {.r = 16, .alpha = 32, .dropout = 0.05, .targets = {"q_proj", "v_proj"}};
  EXPECT_EQ(lora_of("r=16,alpha=32,targets=q_proj+v_proj,dropout=0.05"), all);
  for (const LoraOptions& each :
       {all, LoraOptions{}, LoraOptions{.r = 3, .alpha = 0.5, .input_grads = true}, LoraOptions{.float32_base = true}})
    EXPECT_EQ(lora_of(to_text(each)), each);
  EXPECT_EQ(sentence_of(all), "LoRA r=16 on q_proj and v_proj");
  EXPECT_EQ(python_of(all),
            "LoraConfig(r=16, lora_alpha=32, target_modules=[\"q_proj\", \"v_proj\"], lora_dropout=0.05)");
  EXPECT_EQ(python_of({.r = 8}), "LoraConfig(r=8, lora_alpha=8, target_modules=\"all-linear\")");
}

TEST(Adapters, TheEmbeddingRequiresAGradientIfAsked) {
  const auto requested = [](const Model& model) {
    std::vector<std::string> names;
    for (const Block& block : model.blocks) {
      for (const Value& value : block.values) {
        if (value.requires_grad) names.push_back(value.name);
      }
    }
    return names.size();
  };
  EXPECT_EQ(requested(adapted_model("llama3_2_1b.json", "r=8,input_grads=yes")), 1U);
  EXPECT_EQ(requested(adapted_model("llama3_2_1b.json", "r=8,input_grads=no")), 0U);
  EXPECT_EQ(mistake_in("r=8,input_grads=maybe").substr(0, 45), "--lora: \"input_grads=maybe\" is not yes or no.");
}

TEST(Adapters, TheBaseIsWidenedIfAsked) {
  const auto dtypes = [](const Model& model) {
    std::set<Dtype> found;
    for (const Parameter& parameter : model.parameters) {
      if (!parameter.trainable) found.insert(parameter.dtype);
    }
    return found;
  };
  EXPECT_EQ(dtypes(adapted_model("llama3_2_1b.json", "r=8")), (std::set{Dtype::BFloat16}));
  EXPECT_EQ(dtypes(adapted_model("llama3_2_1b.json", "r=8,base=float32")), (std::set{Dtype::Float32}));
  EXPECT_EQ(mistake_in("r=8,base=fp8").substr(0, 44), "--lora: \"base=fp8\" is not float32 or checkpo");
}

TEST(Adapters, MistakesInTheTextAreNamed) {
  EXPECT_EQ(
      mistake_in("rank=16"),
      "--lora: Unknown key \"rank\". Known are r, alpha, targets, dropout, modules_to_save, input_grads and base.");
  EXPECT_EQ(mistake_in("alhpa=16"), "--lora: Unknown key \"alhpa\". Did you mean \"alpha\"?");
  EXPECT_EQ(mistake_in("0"), "--lora: The rank r is 0. It is at least 1.");
  EXPECT_EQ(mistake_in("r=8,dropout=1"), "--lora: dropout is 1. It is a probability below 1, such as 0.05.");
  EXPECT_EQ(mistake_in("r=8,targets=layers.3.q_proj"),
            "--lora: \"layers.3.q_proj\" names one of several equal blocks. Adapters are predicted in all "
            "blocks of a "
            "row: leave the number out.");
  EXPECT_EQ(parse_lora("r=x,alpha=y", "--lora").error().size(), 2U);
}

// peft prints these for Llama 3 8B: 4096 x 14336, 8 of 32 heads for keys and values, 32 layers. r = 16 on all: 16 * (q
// 8192 + k 5120 + v 5120 + o 8192 + three times 18432) * 32.
TEST(Adapters, TrainAsManyParametersAsPeftPrints) {
  EXPECT_EQ(num_trainable_parameters(adapted_model("llama3_1_8b.json", "16")), 41'943'040);
  EXPECT_EQ(num_trainable_parameters(adapted_model("llama3_1_8b.json", "r=8,targets=q_proj+v_proj")), 3'407'872);
  EXPECT_EQ(num_parameters(adapted_model("llama3_1_8b.json", "16")), 8'030'261'248 + 41'943'040);
}

TEST(Adapters, StandBehindTheirLayerAsPeftRegistersThem) {
  const Model model = adapted_model("qwen2_5_7b.json", "r=4,targets=q_proj");
  std::vector<std::string> names;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.name.starts_with("model.layers.1.self_attn.q") ||
        parameter.name.starts_with("model.layers.1.self_attn.k")) {
      names.push_back(parameter.name.substr(std::string("model.layers.1.self_attn.").size()));
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"q_proj.base_layer.weight", "q_proj.base_layer.bias",
                                             "q_proj.lora_A.default.weight", "q_proj.lora_B.default.weight",
                                             "k_proj.weight", "k_proj.bias"}));
  EXPECT_EQ(find_parameter(model, "model.layers.1.self_attn.q_proj.lora_A.default.weight")->shape, (Shape{4, 3584}));
  EXPECT_FALSE(find_parameter(model, "lm_head.weight")->trainable);
}

TEST(Adapters, LeaveTheHeadOutUnlessItIsNamed) {
  EXPECT_EQ(num_trainable_parameters(adapted_model("llama3_1_8b.json", "r=1,targets=lm_head")), 4096 + 128'256);
  EXPECT_EQ(find_parameter(adapted_model("llama3_1_8b.json", "1"), "lm_head.base_layer.weight"), nullptr);
}

// A frozen original and a trained copy each: 128256 x 4096.
TEST(Adapters, ModulesToSaveAreTrainedBesideTheirOriginals) {
  const Model model = adapted_model("llama3_1_8b.json", "r=16,modules_to_save=lm_head+embed_tokens");
  constexpr std::int64_t kTable = std::int64_t{128'256} * 4096;
  EXPECT_EQ(num_trainable_parameters(model), 41'943'040 + 2 * kTable);
  EXPECT_EQ(num_parameters(model), 8'030'261'248 + 41'943'040 + 2 * kTable);
  EXPECT_FALSE(find_parameter(model, "lm_head.original_module.weight")->trainable);
  EXPECT_TRUE(find_parameter(model, "model.embed_tokens.modules_to_save.default.weight")->receives_gradient);
  EXPECT_NE(refused_adapters("llama3_1_8b.json", "r=16,modules_to_save=norm").find("no linear layer or embedding"),
            std::string::npos);
  EXPECT_NE(refused_adapters("llama3_2_1b.json", "r=16,modules_to_save=embed_tokens").find("is tied"),
            std::string::npos);
}

// Patterns of the user apply after PEFT's.
TEST(Adapters, PatternsFreezeSomeOfThem) {
  const Model model = model_of("llama3_1_8b.json", Workload{.frozen = {"*.mlp.*"}, .lora = lora_of("16")});
  EXPECT_EQ(num_trainable_parameters(model), std::int64_t{16} * (8192 + 5120 + 5120 + 8192) * 32);
}

TEST(Adapters, LayersThatPeftWrapsOtherwiseAreRefused) {
  EXPECT_EQ(refused_adapters("llama3_1_8b.json", "r=8,targets=q_porj"),
            "--lora: Llama-3.1-8B has no linear layer \"q_porj\". Did you mean \"q_proj\"?");
  EXPECT_NE(refused_adapters("llama3_1_8b.json", "r=8,targets=embed_tokens").find("whose adapters are not predicted"),
            std::string::npos);
  EXPECT_NE(refused_adapters("llama3_2_1b.json", "r=8,targets=lm_head").find("adapters of a tied layer"),
            std::string::npos);
  EXPECT_NE(refused_adapters("mixtral_8x7b.json", "8").find("Adapters of experts are not predicted"),
            std::string::npos);
  EXPECT_EQ(refused_adapters("mixtral_8x7b.json", "r=8,targets=q_proj+v_proj"), "it is built");
  EXPECT_NE(refused_adapters("vit_b_16.json", "8").find("MultiheadAttention"), std::string::npos);
}

}  // namespace
}  // namespace fsdp
