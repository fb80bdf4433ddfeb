#include "core/frameworks/zero/zero_quantization.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/model/model.h"

namespace fsdp {
namespace {

// What CUDAQuantizer.quantize of DeepSpeed 0.19.8 hands to its kernel.
TEST(ZeroQuantization, GroupsAreDeepSpeedsOwn) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> groups = {
      {8, 1},       {16, 1},        {192, 1},         {384, 1},           {8000, 1},      {8008, 7},    {16000, 2},
      {24576, 4},   {64000, 8},     {72000, 9},       {8072, 1009},       {24216, 1009},  {442944, 72}, {9649344, 1733},
      {147648, 24}, {126704, 7919}, {16777216, 4096}, {65667584, 128257}, {8388608, 2048}};
  for (const auto& [elements, expected] : groups) EXPECT_EQ(quantization_groups(elements), expected) << elements;
}

Model model_of(const std::vector<Shape>& shapes) {
  Model model;
  for (const Shape& shape : shapes) {
    model.parameters.push_back({.name = "p" + std::to_string(model.parameters.size()), .shape = shape});
  }
  return model;
}

Plan plan_on(std::int64_t ranks) {
  Plan plan;
  plan.runtime.framework = Framework::Zero3;
  plan.mesh = {1, ranks};
  plan.mixed_precision = {.param_dtype = Dtype::Float16, .reduce_dtype = Dtype::Float16};
  return plan;
}

std::vector<std::string> refusals(const Plan& plan, const std::vector<Shape>& shapes) {
  std::vector<std::string> texts;
  for (const Error& error : check_quantization(plan, model_of(shapes)))
    texts.push_back(error.where + ": " + error.what);
  return texts;
}

TEST(ZeroQuantization, PartsOfWeightsAreWholeVectors) {
  Plan plan = plan_on(4);
  plan.zero.quantized_weights = true;
  EXPECT_EQ(refusals(plan, {{32}, {4, 8}}), std::vector<std::string>{});
  EXPECT_EQ(
      refusals(plan, {{32}, {4, 12}, {5}}),
      std::vector<std::string>{"zero/quantized_weights: DeepSpeed quantizes 8 elements at a time, and the 48 of p1 "
                               "are not 4 equal parts of such."});
}

TEST(ZeroQuantization, GradientsAreFp16InGroupsThatNoRankShares) {
  Plan plan = plan_on(8);
  plan.zero.quantized_gradients = true;
  // What has one dimension, or is no multiple of 16, is reduced as it is.
  EXPECT_EQ(refusals(plan, {{50257}, {3, 5}, {128, 64}, {64, 3, 16, 16}}), std::vector<std::string>{});
  EXPECT_EQ(refusals(plan, {{50257, 768}}).size(), 1U);  // 50257 groups.
  EXPECT_EQ(refusals(plan, {{2, 768}}).size(), 1U);      // Groups of two.
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::BFloat16};
  EXPECT_EQ(refusals(plan, {{128, 64}}),
            std::vector<std::string>{"zero/quantized_gradients: DeepSpeed's kernel reads any gradient as fp16, and "
                                     "would train on other numbers."});
}

TEST(ZeroQuantization, NeedsStage3OnSeveralGpus) {
  const auto places = [](Framework stage, std::int64_t ranks, bool offloads) {
    Plan plan = plan_on(ranks);
    plan.runtime.framework = stage;
    plan.zero.quantized_weights = plan.zero.quantized_gradients = true;
    plan.cpu_offload = plan.zero.offload_param = offloads;
    std::vector<std::string> where;
    for (const Error& error : check_quantization(plan, model_of({{128, 64}}))) where.push_back(error.where);
    return where;
  };
  using Places = std::vector<std::string>;
  EXPECT_EQ(places(Framework::Zero3, 4, false), Places{});
  EXPECT_EQ(places(Framework::Zero3, 1, false), Places{"zero/quantized_weights"});
  EXPECT_EQ(places(Framework::Zero2, 4, false), (Places{"zero/quantized_weights", "zero/quantized_gradients"}));
  EXPECT_EQ(places(Framework::Zero3, 4, true), (Places{"zero/quantized_weights", "zero/quantized_gradients"}));
}

TEST(ZeroQuantization, OnOneNodeNothingIsExchanged) {
  Plan plan = plan_on(8);
  plan.zero.quantized_gradients = true;
  EXPECT_FALSE(exchanges_gradients(plan, 8));
  EXPECT_TRUE(exchanges_gradients(plan, 4));
  plan.zero.quantized_gradients = false;
  EXPECT_FALSE(exchanges_gradients(plan, 4));
}

TEST(ZeroQuantization, ABucketIsExchangedInTheOrderOfItsParameters) {
  const Model model = model_of({{64, 16}, {24}, {16, 128}});
  Layout layout;
  layout.zero.ranks = 16;
  layout.units.emplace_back();
  for (int p = 0; p < 3; ++p) layout.units.front().parameters.push_back({.parameter = p});
  const GradientBucket bucket{.parameters = {2, 0, 1}};
  EXPECT_EQ(exchanges_of(bucket, layout, model),
            (std::vector<GradientExchange>{{0, 1024, 64}, {1, 32, 0}, {2, 2048, 128}}));
}

}  // namespace
}  // namespace fsdp
