// A base in four bits below adapters: the text of the option, the layers that are packed and their bytes, and what is
// refused.

#include "core/spec/quantized_base.h"

#include <gtest/gtest.h>

#include "core/plan/quantization.h"
#include "core/spec/model_spec.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

constexpr Quantization kNf4;
constexpr Quantization kDouble = {.is_double = true};
constexpr Quantization kBytes = {.is_stored_in_bytes = true};

// Llama 3.1 8B: 32 blocks of q and o 4096 x 4096, k and v 1024 x 4096, and three of 14336 x 4096. Seven layers each.
constexpr std::int64_t kNumbers = std::int64_t{32} * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336);
constexpr std::int64_t kLayers = 32 * 7;

Workload quantized(const Quantization& quantization) {
  return {.lora = LoraOptions{.r = 16}, .quantization = quantization};
}

std::string mistake_in_bits(std::string_view text) {
  const auto read = parse_quantization(text, "--quantize");
  return read ? "it is read" : to_string(read.error().front());
}

std::string refused(const std::string& spec, const Workload& workload) {
  const auto model = build_model(*read_model_spec("model_specs/" + spec), workload);
  return model ? "it is built" : to_string(model.error().front());
}

TEST(QuantizedBase, TextIsReadAsItIsWritten) {
  EXPECT_EQ(parse_quantization("nf4", "--quantize"), kNf4);
  EXPECT_EQ(parse_quantization("nf4,uint8,double", "--quantize"),
            (Quantization{.is_double = true, .is_stored_in_bytes = true}));
  for (const std::string_view text : {"nf4", "fp4", "nf4,double", "fp4,double,uint8"}) {
    EXPECT_EQ(to_text(*parse_quantization(text, "--quantize")), text);
  }
  EXPECT_EQ(sentence_of(kDouble), "NF4 base with double quantization");
  EXPECT_EQ(python_of(kDouble, Dtype::BFloat16, Dtype::BFloat16),
            "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"nf4\", bnb_4bit_use_double_quant=True, "
            "bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_quant_storage=torch.bfloat16)");
}

TEST(QuantizedBase, MistakesInTheTextAreNamed) {
  EXPECT_EQ(mistake_in_bits("nf5"), "--quantize: Unknown word \"nf5\". Did you mean \"nf4\"?");
  EXPECT_NE(mistake_in_bits("int8").find("8-bit weights of bitsandbytes (Linear8bitLt) are not predicted."),
            std::string::npos);
  EXPECT_NE(mistake_in_bits("double").find("\"double\" names no kind of numbers."), std::string::npos);
  EXPECT_NE(mistake_in_bits("nf4,fp4").find("\"nf4,fp4\" names two kinds of numbers."), std::string::npos);
}

// Half a byte a number, an fp32 scale for each 64 and a table of 16 fp32 numbers a layer. With double quantization a
// byte for each 64, an fp32 number for each 64 x 256, a second table of 256, and an offset.
TEST(QuantizedBase, BytesAreThoseOfBitsandbytes) {
  const QuantizedBytes plain = bytes_of_quantized(model_of("llama3_1_8b.json", quantized(kNf4)));
  EXPECT_EQ(plain.weights, Bytes(kNumbers / 2));
  EXPECT_EQ(plain.whole, Bytes(kNumbers / 64 * 4 + kLayers * 16 * 4));
  const QuantizedBytes nested = bytes_of_quantized(model_of("llama3_1_8b.json", quantized(kDouble)));
  EXPECT_EQ(nested.weights, plain.weights);
  EXPECT_EQ(nested.whole, Bytes(kNumbers / 64 + kNumbers / 64 / 256 * 4 + kLayers * (16 + 256 + 1) * 4));
}

TEST(QuantizedBase, PacksLinearLayersButTheHead) {
  const Model model = model_of("llama3_1_8b.json", quantized(kNf4));
  const Parameter* packed = find_parameter(model, "model.layers.0.self_attn.k_proj.base_layer.weight");
  ASSERT_NE(packed, nullptr);
  EXPECT_EQ(packed->shape, (Shape{1024 * 4096 / 4, 1}));
  EXPECT_EQ(packed->dtype, Dtype::BFloat16);
  EXPECT_EQ(packed->stands_for, 1024 * 4096);
  EXPECT_FALSE(packed->trainable);
  EXPECT_EQ(find_parameter(model, "lm_head.weight")->stands_for, 0);
  EXPECT_EQ(num_parameters(model), 8'030'261'248 + 41'943'040);
  EXPECT_EQ(num_trainable_parameters(model), 41'943'040);
  const Buffer* scales = find_buffer(model, "model.layers.31.mlp.down_proj.base_layer.absmax");
  ASSERT_NE(scales, nullptr);
  EXPECT_FALSE(scales->registered);
  EXPECT_EQ(scales->shape, Shape{14336 * 4096 / 64});

  // Layers without adapters are packed, too.
  Workload attention = quantized(kBytes);
  attention.lora->targets = {"q_proj"};
  const Model partly = model_of("llama3_1_8b.json", attention);
  const Parameter* other = find_parameter(partly, "model.layers.0.mlp.down_proj.weight");
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(other->shape, (Shape{14336 * 4096 / 2, 1}));
  EXPECT_EQ(other->dtype, Dtype::UInt8);
}

TEST(QuantizedBase, WhatCannotBeTrainedOrIsNotPredictedIsRefused) {
  EXPECT_NE(refused("llama3_1_8b.json", {.quantization = kNf4}).find("there are no adapters"), std::string::npos);
  EXPECT_NE(refused("mixtral_8x7b.json", {.lora = LoraOptions{.targets = {"q_proj"}}, .quantization = kNf4})
                .find("A quantized base of experts is not predicted."),
            std::string::npos);
  EXPECT_NE(refused("t5_3b.json", quantized(kNf4)).find("keeps T5's layers \"wo\" in float32"), std::string::npos);
  Workload copied = quantized(kNf4);
  copied.lora->modules_to_save = {"down_proj"};
  EXPECT_NE(refused("llama3_1_8b.json", copied).find("a copy of packed weights cannot be trained"), std::string::npos);
  Workload trained = quantized(kNf4);
  trained.trainable = {"*.q_proj.*"};
  EXPECT_EQ(refused("llama3_1_8b.json", trained),
            "--quantize: \"model.layers.0.self_attn.q_proj.base_layer.weight\" belongs to a quantized layer, which "
            "cannot be trained. Train its adapters alone.");
}

Plan plan_for(Framework framework, const Quantization& quantization) {
  Plan plan;
  plan.runtime.framework = framework;
  plan.quantization = quantization;
  return plan;
}

TEST(QuantizedBase, FrameworksRefuseWhatTheyCannotShard) {
  const Model floats = model_of("llama3_2_1b.json", quantized(kNf4));
  const Model bytes = model_of("llama3_2_1b.json", quantized(kBytes));
  for (const Framework framework : {Framework::Fsdp2, Framework::Fsdp1}) {
    EXPECT_FALSE(quantization_misfit(plan_for(framework, kNf4), floats).has_value());
    EXPECT_NE(quantization_misfit(plan_for(framework, kBytes), bytes)->what.find("cannot shard uint8"),
              std::string::npos);
    Plan half = plan_for(framework, kNf4);
    half.mixed_precision.param_dtype = Dtype::Float16;
    EXPECT_NE(quantization_misfit(half, floats)->what.find("stored in bfloat16, to float16, and destroy them"),
              std::string::npos);
    half.mixed_precision.param_dtype = Dtype::BFloat16;
    EXPECT_FALSE(quantization_misfit(half, floats).has_value());
  }
  EXPECT_FALSE(quantization_misfit(plan_for(Framework::Ddp, kBytes), bytes).has_value());
  for (const Framework framework : {Framework::Zero1, Framework::Zero3, Framework::SimpleFsdp}) {
    EXPECT_NE(quantization_misfit(plan_for(framework, kNf4), floats)->what.find("is not predicted under"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace fsdp
