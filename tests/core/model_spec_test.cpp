// What a spec means: dimensions, repetition, wiring, ties, order of registration, recipes, patterns.

#include "core/spec/model_spec.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

ModelSpec parse(const std::string& text) {
  auto spec = parse_model_spec(text, "model.json");
  if (!spec) ADD_FAILURE() << to_string(spec.error().front());
  return spec ? *std::move(spec) : ModelSpec{};
}

Model build(const ModelSpec& spec, const Workload& workload = {}) {
  auto model = build_model(spec, workload);
  if (!model) ADD_FAILURE() << to_string(model.error().front());
  return model ? *std::move(model) : Model{};
}

/// A spec on x [batch, width] with these further top-level members.
std::string spec_with(const std::string& members) {
  return R"({"format_version": "1.0", "name": "Small", "source": "here", "dtype": "bfloat16",
    "inputs": {"x": {"shape": ["batch", "width"]}, "labels": {"shape": ["batch"], "dtype": "int64"}},)" +
         members + "}";
}

constexpr const char* kStack = R"("dimensions": {"batch": 2, "width": 8, "half": "width / 2"},
  "modules": [
    {"name": "blocks.{0..2}", "class": "Mlp", "ops": [
      {"op": "linear", "module": "down", "inputs": ["x"], "out_features": "half"},
      {"op": "gelu", "module": "act", "class": "GELU"},
      {"op": "linear", "module": "up", "out_features": "width", "outputs": ["x"]}]},
    {"name": "head", "block": "lm_head", "vocab_size": 10, "inputs": {"hidden": "x"}},
    {"name": "", "block": "cross_entropy"}])";

TEST(ModelSpec, DimensionsAreDefaultsThatAWorkloadOverrides) {
  const ModelSpec spec = parse(spec_with(kStack));
  const Model model = build(spec);
  EXPECT_EQ(model.dimensions, (std::vector<Dimension>{{"batch", 2}, {"width", 8}, {"half", 4}}));
  EXPECT_EQ(find_parameter(model, "blocks.0.down.weight")->shape, (Shape{4, 8}));

  const Model wider = build(spec, Workload{.dimensions = {{"width", 12}}});
  EXPECT_EQ(find_parameter(wider, "blocks.0.down.weight")->shape, (Shape{6, 12}));
  const Model own_half = build(spec, Workload{.dimensions = {{"half", 3}}});
  EXPECT_EQ(find_parameter(own_half, "blocks.0.down.weight")->shape, (Shape{3, 8}));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ModelSpec, ALossAfterTheRootRunsInNoModule) {
  const std::string text = spec_with(kStack);
  const Model inside = build(parse(text));
  const Model after =
      build(parse(replaced(text, R"("block": "cross_entropy")", R"("block": "cross_entropy", "after_root": true)")));
  EXPECT_EQ(inside.calls.back().module, 0);
  EXPECT_EQ(after.calls.back().module, -1);
  EXPECT_EQ(after.calls.back().modules, std::vector<int>{-1});
  EXPECT_EQ(after.calls.back().inputs, inside.calls.back().inputs);
  EXPECT_EQ(after.parameters, inside.parameters);
  // The runtime of a plan asks for the same of a last entry that is the loss alone.
  EXPECT_EQ(build(parse(text), Workload{.loss_after_root = true}), after);
}

TEST(ModelSpec, CastOfLogitsIsAnOpOfItsOwn) {
  const std::string text = spec_with(kStack);
  const Model model = build(parse(text), Workload{.float_logits = true});
  ASSERT_EQ(model.calls.size(), 6u);
  EXPECT_EQ(model.values[model.calls[5].inputs.front()].dtype, Dtype::Float32);
  EXPECT_EQ(model.calls[4].inputs, model.calls[3].outputs);
  const std::string cast = R"({"name": "", "inputs": ["logits"], "outputs": ["logits"],
    "ops": [{"op": "cast", "inputs": ["logits"], "dtype": "float32", "outputs": ["logits"]}]}, )";
  const std::string loss = R"({"name": "", "block": "cross_entropy"})";
  const Model written = build(parse(replaced(text, loss, cast + loss)));
  ASSERT_EQ(written.calls.size(), 6u);
  EXPECT_EQ(written.blocks[written.calls[4].block].ops, model.blocks[model.calls[4].block].ops);
  EXPECT_EQ(build(parse(replaced(text, loss, cast + loss)), Workload{.float_logits = true}), written)
      << "one cast is enough";
}

TEST(ModelSpec, ModuleFirstSeenAsAParentKeepsItsClass) {
  const std::string text = spec_with(R"("dimensions": {"batch": 2, "width": 8},
    "modules": [{"name": "mlp", "class": "Mlp", "ops": [
      {"op": "linear", "module": "gate.up", "inputs": ["x"], "out_features": 8},
      {"op": "gelu", "module": "gate", "class": "Gate", "outputs": ["x"]}]},
    {"name": "head", "block": "lm_head", "vocab_size": 10, "inputs": {"hidden": "x"}},
    {"name": "", "block": "cross_entropy"}])");
  const Model model = build(parse(text));
  const auto gate =
      std::find_if(model.modules.begin(), model.modules.end(), [](const Module& m) { return m.name == "mlp.gate"; });
  ASSERT_NE(gate, model.modules.end());
  EXPECT_EQ(gate->class_name, "Gate");
  EXPECT_TRUE(gate->called);
}

TEST(ModelSpec, VariableKeepsItsValueUntilReassignedOrForwardReturns) {
  const std::string text = spec_with(R"("dimensions": {"batch": 2, "width": 8},
    "modules": [{"name": "mix", "class": "Mix", "ops": [
      {"op": "linear", "module": "attn.q", "inputs": ["x"], "out_features": 8, "outputs": ["q"], "variables": ["attn.q"]},
      {"op": "linear", "module": "attn.k", "inputs": ["x"], "out_features": 8, "outputs": ["k"], "variables": ["attn.k"]},
      {"op": "gelu", "module": "attn", "class": "Attention", "inputs": ["q"], "outputs": ["q"], "variables": ["attn.q"]},
      {"op": "add", "module": "attn", "inputs": ["q", "k"]},
      {"op": "linear", "module": "out", "out_features": 8, "variables": ["x"]},
      {"op": "gelu", "outputs": ["x"]}]},
    {"name": "head", "block": "lm_head", "vocab_size": 10, "inputs": {"hidden": "x"}},
    {"name": "", "block": "cross_entropy"}])");
  const Model model = build(parse(text));
  const Block& block = model.blocks[model.calls[0].block];
  const auto output_of = [&](int op) { return block.ops[op].outputs.front(); };
  const int attn = block.modules[block.ops[0].module].parent;
  EXPECT_EQ(block.locals, (std::vector<LocalVariable>{{output_of(0), attn, 2},  // Until the gelu's output is q,
                                                      {output_of(1), attn, 3},  // until attn returns with the sum,
                                                      {output_of(2), attn, 3},  // as the second q,
                                                      {output_of(4), 0, 5}}));  // and until mix itself returns.

  const Result<Model> elsewhere =
      build_model(parse(replaced(text, R"("variables": ["x"])", R"("variables": ["attn.x"])")));
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().front().what,
            "The variable \"attn.x\" names a value that is not made in the forward of \"attn\".");
}

TEST(ModelSpec, ARepetitionSharesOneBlockAndBindsItsOwnParameters) {
  const Model model = build(parse(spec_with(kStack)));
  ASSERT_EQ(model.stacks.size(), 1u);
  EXPECT_EQ(model.stacks[0], (Stack{"blocks", "Mlp", {0, 1, 2}}));
  EXPECT_EQ(model.calls[0].block, model.calls[2].block);
  EXPECT_NE(model.calls[0].parameters, model.calls[2].parameters);
  EXPECT_EQ(model.calls[1].inputs, model.calls[0].outputs);
  EXPECT_TRUE(model.calls[1].repeated);
  EXPECT_FALSE(model.calls[3].repeated);
  EXPECT_EQ(find_module(model, "blocks")->class_name, "ModuleList");
  EXPECT_EQ(model.parameters[0].dtype, Dtype::BFloat16);
}

TEST(ModelSpec, InputsOfAnotherShapeNeedABlockOfTheirOwn) {
  const Model model = build(parse(spec_with(R"("dimensions": {"batch": 2, "width": 8},
    "modules": [
      {"name": "grow.{0..1}", "class": "Grow", "ops": [
        {"op": "cat", "inputs": ["x", "x"], "dim": 1}, {"op": "linear", "out_features": 16, "outputs": ["x"]}]},
      {"name": "head", "block": "lm_head", "vocab_size": 10, "inputs": {"hidden": "x"}},
      {"name": "", "block": "cross_entropy"}])")));
  EXPECT_NE(model.calls[0].block, model.calls[1].block);
  EXPECT_EQ(find_parameter(model, "grow.0.weight")->shape, (Shape{16, 16}));  // From x [2, 8] twice,
  EXPECT_EQ(find_parameter(model, "grow.1.weight")->shape, (Shape{16, 32}));  // then from x [2, 16] twice.
}

TEST(ModelSpec, TiedParametersAreOne) {
  const std::string text = spec_with(std::string(kStack) + R"(,
    "tied": {"blocks.1.down.weight": "blocks.0.down.weight", "blocks.2.down.weight": "blocks.1.down.weight"})");
  const Model model = build(parse(text));
  const Parameter* kept = find_parameter(model, "blocks.0.down.weight");
  EXPECT_EQ(kept->tied_names, (std::vector<std::string>{"blocks.1.down.weight", "blocks.2.down.weight"}));
  EXPECT_EQ(find_parameter(model, "blocks.1.down.weight"), nullptr);
  // All three calls read it, and it stands in the list of each module that registers it.
  EXPECT_EQ(model.calls[0].parameters[0], model.calls[2].parameters[0]);
  EXPECT_EQ(find_module(model, "blocks.2.down")->parameters[0], find_module(model, "blocks.0.down")->parameters[0]);
  EXPECT_EQ(num_parameters(model), num_parameters(build(parse(spec_with(kStack)))) - 2 * 32);
}

TEST(ModelSpec, RegistrationOrdersModulesAndParameters) {
  const Model model = build(parse(spec_with(std::string(kStack) + R"(, "registration": ["head"])")));
  EXPECT_EQ(model.parameters[0].name, "head.weight");
  EXPECT_EQ(model.modules[1].name, "head");
  EXPECT_EQ(model.calls[0].module, 3);  // The root, head, blocks, blocks.0.
  EXPECT_EQ(model.modules[3].name, "blocks.0");
}

TEST(ModelSpec, RecipesSetDimensionsPatternsAndPrecision) {
  const ModelSpec spec = parse(spec_with(std::string(kStack) + R"(, "notes": ["One."],
    "recipes": {"all": {},
                "head_only": {"dimensions": {"batch": 16}, "trainable": ["head"], "notes": ["Two."],
                              "parameter_dtype": "float32",
                              "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32"},
                              "optimizer": {"kind": "sgd", "momentum": 0.9}}})"));
  const Model all = build(spec);
  EXPECT_EQ(num_trainable_parameters(all), num_parameters(all));
  const Model head_only = build(spec, Workload{.recipe = "head_only"});
  EXPECT_EQ(num_trainable_parameters(head_only), 80);
  EXPECT_EQ(head_only.dimensions[0].value, 16);
  EXPECT_EQ(head_only.notes, (std::vector<std::string>{"One.", "Two."}));
  EXPECT_EQ(build(spec, Workload{.recipe = "head_only", .dimensions = {{"batch", 3}}}).dimensions[0].value, 3);

  const auto recipe = find_recipe(spec, "head_only");
  EXPECT_EQ(recipe->parameter_dtype, Dtype::Float32);
  EXPECT_EQ(recipe->mixed_precision.param_dtype, Dtype::BFloat16);
  EXPECT_EQ(recipe->mixed_precision.reduce_dtype, Dtype::Float32);
  EXPECT_EQ(recipe->optimizer.kind, OptimizerKind::Sgd);
  EXPECT_EQ(find_recipe(spec, "")->name, "all");
}

TEST(ModelSpec, TheLaterLevelOfPatternsWins) {
  const ModelSpec spec = parse(spec_with(std::string(kStack) + R"(, "frozen": ["blocks.0"])"));
  EXPECT_FALSE(find_parameter(build(spec), "blocks.0.up.bias")->trainable);
  const Model thawed = build(spec, Workload{.trainable = {"blocks.0.up", "head"}, .frozen = {"*.bias"}});
  EXPECT_TRUE(find_parameter(thawed, "blocks.0.up.weight")->trainable);
  EXPECT_FALSE(find_parameter(thawed, "blocks.0.up.bias")->trainable);
  EXPECT_FALSE(find_parameter(thawed, "blocks.1.up.weight")->trainable);
  EXPECT_TRUE(find_parameter(thawed, "head.weight")->trainable);
}

TEST(ModelSpec, EntriesCanBelongToRecipes) {
  const ModelSpec spec = parse(spec_with(R"("dimensions": {"batch": 2, "width": 8},
    "modules": [
      {"name": "extra", "class": "Linear", "recipes": ["long"], "ops": [
        {"op": "linear", "inputs": ["x"], "out_features": 8, "outputs": ["x"]}]},
      {"name": "head", "block": "lm_head", "vocab_size": 10, "inputs": {"hidden": "x"}},
      {"name": "", "block": "cross_entropy"}],
    "recipes": {"short": {}, "long": {}})"));
  EXPECT_EQ(build(spec).calls.size(), 2u);
  EXPECT_EQ(build(spec, Workload{.recipe = "long"}).calls.size(), 3u);
}

TEST(ModelSpec, TokensAreThePositionsOfTheMainStack) {
  EXPECT_EQ(model_of("llama3_2_1b.json", Workload{.dimensions = {{"batch", 3}, {"seq", 100}}}).tokens_per_step, 300);
  EXPECT_EQ(model_of("mlp.json").tokens_per_step, 64);
  EXPECT_EQ(model_of("vit_b_16.json", Workload{.dimensions = {{"batch", 2}}}).tokens_per_step, 2 * 197);
}

TEST(ModelSpec, TheSameInputGivesTheSameModel) {
  EXPECT_EQ(model_of("qwen3_30b_a3b.json"), model_of("qwen3_30b_a3b.json"));
}

}  // namespace
}  // namespace fsdp
