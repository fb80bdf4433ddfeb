// Which parameters receive a gradient, on small models written as specs.

#include <gtest/gtest.h>

#include <algorithm>

#include "core/spec/model_spec.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

/// A model of plain ops on x [batch, 4] with labels; `modules` are the entries between.
Model model_with(const std::string& modules, const Workload& workload = {}) {
  const std::string text = R"({"format_version": "1.0", "name": "Small", "source": "here", "dtype": "float32",
    "dimensions": {"batch": 2},
    "inputs": {"x": {"shape": ["batch", 4]}, "ids": {"shape": ["batch"], "dtype": "int64"},
               "labels": {"shape": ["batch"], "dtype": "int64"}},
    "modules": [)" + modules +
                           R"(, {"name": "", "block": "cross_entropy"}]})";
  const auto spec = parse_model_spec(text, "small.json");
  EXPECT_TRUE(spec.has_value()) << to_string(spec.error().front());
  auto model = build_model(*spec, workload);
  EXPECT_TRUE(model.has_value()) << to_string(model.error().front());
  return *std::move(model);
}

bool receives(const Model& model, const std::string& name) {
  return find_parameter(model, name)->receives_gradient;
}

constexpr const char* kTwoLinears = R"({"name": "first", "class": "Linear", "ops": [
    {"op": "linear", "inputs": ["x"], "out_features": 4, "outputs": ["h"]}]},
  {"name": "second", "class": "Linear", "ops": [
    {"op": "linear", "inputs": ["h"], "out_features": 3, "outputs": ["logits"]}]})";

TEST(GradientFlow, AFrozenLayerPassesGradientsThrough) {
  const Model model = model_with(kTwoLinears, Workload{.frozen = {"second"}});
  EXPECT_TRUE(receives(model, "first.weight"));
  EXPECT_FALSE(receives(model, "second.weight"));
  EXPECT_EQ(num_trainable_parameters(model), 4 * 4 + 4);
  EXPECT_EQ(num_gradient_parameters(model), 4 * 4 + 4);
  const GradientFlow flow = gradient_flow(model);
  EXPECT_EQ(flow.requires_grad[1], (std::vector<bool>{true, true}));  // h and the logits.
}

TEST(GradientFlow, OutputOfAFrozenFirstLayerRequiresNoGradient) {
  const Model model = model_with(kTwoLinears, Workload{.frozen = {"first"}});
  EXPECT_TRUE(receives(model, "second.weight"));
  const GradientFlow flow = gradient_flow(model);
  EXPECT_EQ(flow.requires_grad[0], (std::vector<bool>{false, false}));
  EXPECT_EQ(flow.requires_grad[1], (std::vector<bool>{false, true}));
  EXPECT_EQ(flow.reaches_loss[1], (std::vector<bool>{true, true}));
}

TEST(GradientFlow, DetachStopsGradientsBeforeIt) {
  const Model model = model_with(R"({"name": "side", "class": "Linear", "ops": [
      {"op": "linear", "inputs": ["x"], "out_features": 4, "outputs": ["side"]}, {"op": "detach", "outputs": ["cut"]}]},
    {"name": "main", "class": "Linear", "ops": [
      {"op": "add", "inputs": ["x", "cut"]}, {"op": "linear", "out_features": 3, "outputs": ["logits"]}]})");
  EXPECT_TRUE(find_parameter(model, "side.weight")->trainable);
  EXPECT_FALSE(receives(model, "side.weight"));
  EXPECT_TRUE(receives(model, "main.weight"));
  // The branch runs under autograd all the same: its output requires a gradient up to the detach.
  EXPECT_EQ(gradient_flow(model).requires_grad[0], (std::vector<bool>{false, true, false}));
}

TEST(GradientFlow, UnusedModuleGetsNoGradient) {
  const Model model = model_with(std::string(R"({"name": "idle", "class": "Linear", "ops": [
      {"op": "linear", "inputs": ["x"], "out_features": 4, "outputs": ["unused"]}]},)") +
                                 kTwoLinears);
  EXPECT_FALSE(receives(model, "idle.weight"));
  EXPECT_TRUE(receives(model, "first.weight"));
}

TEST(GradientFlow, AModuleThatIsNeverCalledIsRegisteredWithoutACall) {
  const Model model = model_with(std::string(R"({"name": "spare", "class": "Linear", "called": false, "ops": [
      {"op": "linear", "inputs": ["x"], "out_features": 4, "outputs": ["spare"]}]},)") +
                                 kTwoLinears);
  EXPECT_EQ(model.calls.size(), 3u);
  EXPECT_TRUE(find_module(model, "spare")->called);  // It may be a unit, which stays sharded.
  EXPECT_TRUE(find_parameter(model, "spare.weight")->trainable);
  EXPECT_FALSE(receives(model, "spare.weight"));
}

TEST(GradientFlow, AnIdleEntryHasParametersAndNoCall) {
  const Model model = model_with(std::string(R"({"name": "tower.{0..1}", "block": "idle", "class": "TowerLayer",
      "called": false,
      "layers": "norm LayerNorm 4 bias; fc Linear 6 4; probe Parameter 1 4; steps Buffer 3"},)") +
                                 kTwoLinears);
  EXPECT_EQ(model.calls.size(), 3u);
  // A norm of 4 + 4, a layer of 24 and a parameter of 4, twice.
  EXPECT_EQ(num_parameters(model) - num_gradient_parameters(model), 2 * 36);
  EXPECT_EQ(find_parameter(model, "tower.1.fc.weight")->shape, (Shape{6, 4}));
  EXPECT_EQ(find_module(model, "tower.1.norm")->class_name, "LayerNorm");
  EXPECT_TRUE(find_module(model, "tower.1")->called);  // It may be a unit, which stays sharded.
  EXPECT_EQ(model.buffers.size(), 2u);
}

TEST(GradientFlow, IdsCarryNoGradientButTheirTableGetsOne) {
  const Model model = model_with(R"({"name": "embed", "class": "Embedding", "ops": [
      {"op": "embedding", "inputs": ["ids"], "num_embeddings": 10, "embedding_dim": 3, "outputs": ["logits"]}]})");
  EXPECT_TRUE(receives(model, "embed.weight"));
  const GradientFlow flow = gradient_flow(model);
  EXPECT_EQ(flow.requires_grad[0], (std::vector<bool>{false, true}));
  EXPECT_EQ(flow.reaches_loss[0], (std::vector<bool>{false, true}));
}

TEST(GradientFlow, RoutingWeightsCarryGradientsButIndicesDoNot) {
  const Model model = model_of("mixtral_8x7b.json");
  const Call& call = model.calls[model.stacks[0].calls[3]];
  const Block& block = model.blocks[call.block];
  const GradientFlow flow = gradient_flow(model);
  const auto index = static_cast<std::size_t>(model.stacks[0].calls[3]);
  bool found = false;
  for (const Op& op : block.ops) {
    if (op.kind != OpKind::Router) continue;
    found = true;
    EXPECT_TRUE(flow.requires_grad[index][op.outputs[0]]);
    EXPECT_FALSE(flow.requires_grad[index][op.outputs[1]]);
    EXPECT_FALSE(flow.reaches_loss[index][op.outputs[1]]);
  }
  EXPECT_TRUE(found);
  EXPECT_TRUE(receives(model, "model.layers.3.block_sparse_moe.gate.weight"));
}

TEST(GradientFlow, TheSameBlockFlowsDifferentlyByCall) {
  const Model model = model_of("llama3_2_1b.json", Workload{.trainable = {"model.layers.8.*"}});
  const GradientFlow flow = gradient_flow(model);
  const auto& calls = model.stacks[0].calls;
  const auto any = [](const std::vector<bool>& values) {
    return std::find(values.begin(), values.end(), true) != values.end();
  };
  EXPECT_FALSE(any(flow.requires_grad[calls[7]]));
  EXPECT_TRUE(any(flow.requires_grad[calls[8]]));
  EXPECT_TRUE(any(flow.requires_grad[calls[15]]));
  // 2048 * (2048 + 512 + 512 + 2048) + 3 * 2048 * 8192 + 2 * 2048
  EXPECT_EQ(num_gradient_parameters(model), 60'821'504);
}

}  // namespace
}  // namespace fsdp
