#include "core/spec/block_builder.h"

#include <gtest/gtest.h>

namespace fsdp {
namespace {

const std::vector<Value> kHidden = {Value{.name = "hidden", .shape = {2, 3, 8}}};

std::vector<std::string> module_names(const Block& block) {
  std::vector<std::string> names;
  for (const BlockModule& module : block.modules) names.push_back(module.name);
  return names;
}

std::vector<std::string> parameter_names(const BlockDefinition& definition) {
  std::vector<std::string> names;
  for (const BlockParameter& parameter : definition.parameters) names.push_back(parameter.name);
  return names;
}

TEST(BlockBuilder, NamesFollowTheScopes) {
  BlockBuilder b("layer", "Layer", kHidden);
  const BlockValue hidden = b.input("hidden");
  BlockValue x;
  {
    const auto scope = b.enter("self_attn", "Attention");
    x = b.linear("q_proj", hidden, 8, {.bias = true});
  }
  x = b.layer_norm("norm", x);
  b.output("hidden", b.add(hidden, x));
  const auto definition = b.finish();
  ASSERT_TRUE(definition.has_value());

  EXPECT_EQ(module_names(definition->block), (std::vector<std::string>{"", "self_attn", "self_attn.q_proj", "norm"}));
  EXPECT_EQ(parameter_names(*definition),
            (std::vector<std::string>{"self_attn.q_proj.weight", "self_attn.q_proj.bias", "norm.weight", "norm.bias"}));
  EXPECT_EQ(definition->block.parameters, (std::vector<Shape>{{8, 8}, {8}, {8}, {8}}));
  ASSERT_EQ(definition->block.ops.size(), 3u);
  EXPECT_EQ(definition->block.ops[0].module, 2);  // The Linear's own forward,
  EXPECT_EQ(definition->block.ops[1].module, 3);  // the LayerNorm's
  EXPECT_EQ(definition->block.ops[2].module, 0);  // and the layer's.
  EXPECT_TRUE(check_block(definition->block).empty());
}

// def forward(self, hidden):
//   x = self.norm(hidden)          op 0
//   y = self.part(x)               op 1: z = silu(x); op 2: return relu(z)
//   x = y + hidden                 op 3
//   return x
TEST(BlockBuilder, VariableKeepsItsValueUntilReassignedOrForwardReturns) {
  BlockBuilder b("layer", "Layer", kHidden);
  const BlockValue hidden = b.input("hidden");
  const BlockValue x = b.local("x", b.layer_norm("norm", hidden));
  BlockValue y;
  {
    const auto scope = b.enter("part", "Part");
    y = b.relu(b.local("z", b.silu(x)));
  }
  b.local("y", y);
  b.output("hidden", b.local("x", b.add(y, hidden)));
  const auto definition = b.finish();
  ASSERT_TRUE(definition.has_value());
  const auto made_by = [&](std::size_t op) { return definition->block.ops[op].outputs[0]; };
  EXPECT_EQ(definition->block.locals, (std::vector<LocalVariable>{{.value = made_by(1), .module = 2, .until = 2},
                                                                  {.value = made_by(0), .module = 0, .until = 3},
                                                                  {.value = made_by(3), .module = 0, .until = 3},
                                                                  {.value = made_by(2), .module = 0, .until = 3}}));
}

TEST(BlockBuilder, DeclaredModulesKeepTheOrderOfRegistration) {
  BlockBuilder b("layer", "Layer", kHidden);
  const BlockValue hidden = b.input("hidden");
  b.declare("mlp", "Linear");
  b.declare("norm", "LayerNorm");
  b.output("hidden", b.linear("mlp", b.layer_norm("norm", hidden), 8));
  const auto definition = b.finish();
  EXPECT_EQ(module_names(definition->block), (std::vector<std::string>{"", "mlp", "norm"}));
  EXPECT_EQ(definition->block.ops[0].kind, OpKind::LayerNorm);
}

TEST(BlockBuilder, InputsComeFirstInAnyOrderOfUse) {
  BlockBuilder b("layer", "Layer", {Value{.name = "a", .shape = {2, 4}}, Value{.name = "b", .shape = {2, 4}}});
  const BlockValue a = b.silu(b.input("a"));
  b.output("sum", b.add(a, b.input("b")));
  const auto definition = b.finish();
  const Block& block = definition->block;
  EXPECT_EQ(block.num_inputs, 2);
  EXPECT_EQ(block.values[0].name, "a");
  EXPECT_EQ(block.values[1].name, "b");
  EXPECT_EQ(block.ops[0].inputs, std::vector<int>{0});
  EXPECT_EQ(block.ops[1].inputs, (std::vector<int>{2, 1}));
  EXPECT_EQ(block.outputs, std::vector<int>{3});
  EXPECT_EQ(definition->input_names, (std::vector<std::string>{"a", "b"}));
}

TEST(BlockBuilder, AModuleThatIsCalledTwiceSharesItsParameters) {
  BlockBuilder b("layer", "Layer", kHidden);
  const BlockValue hidden = b.input("hidden");
  b.output("hidden", b.linear("fc", b.linear("fc", hidden, 8), 8));
  const auto definition = b.finish();
  EXPECT_EQ(definition->parameters.size(), 1u);
  EXPECT_EQ(definition->block.ops[0].parameters, definition->block.ops[1].parameters);
}

TEST(BlockBuilder, TransposedAndPackedWeightsHaveTheirOwnShapesAndNames) {
  BlockBuilder b("layer", "Layer", kHidden);
  const BlockValue hidden = b.input("hidden");
  const BlockValue conv1d =
      b.linear("c_attn", hidden, 24, {.bias = true, .transposed_weight = true, .class_name = "Conv1D"});
  const BlockValue packed =
      b.linear("", hidden, 24, {.bias = true, .weight_name = "in_proj_weight", .bias_name = "in_proj_bias"});
  b.output("sum", b.add(conv1d, packed));
  const auto definition = b.finish();
  EXPECT_EQ(parameter_names(*definition),
            (std::vector<std::string>{"c_attn.weight", "c_attn.bias", "in_proj_weight", "in_proj_bias"}));
  EXPECT_EQ(definition->block.parameters, (std::vector<Shape>{{8, 24}, {24}, {24, 8}, {24}}));
}

TEST(BlockBuilder, IdsKeepTheirTypeAndActivationsHaveNone) {
  BlockBuilder b("layer", "Layer", {Value{.name = "ids", .shape = {2, 3}, .dtype = Dtype::Int64}});
  const BlockValue ids = b.input("ids");
  const BlockValue first = b.slice(ids, 1, 0, 2);
  b.output("hidden", b.embedding("embed", first, 10, 4));
  b.output("floats", b.cast(first, Dtype::Float32));
  const auto definition = b.finish();
  const auto& values = definition->block.values;
  EXPECT_EQ(values[1].dtype, Dtype::Int64);
  EXPECT_EQ(values[2].dtype, std::nullopt);
  EXPECT_EQ(values[3].dtype, Dtype::Float32);
}

TEST(BlockBuilder, BatchNormKeepsItsRunningStatistics) {
  BlockBuilder b("stem", "Stem", {Value{.name = "x", .shape = {2, 4, 8, 8}}});
  b.output("x", b.batch_norm("bn1", b.input("x")));
  const auto definition = b.finish();
  ASSERT_EQ(definition->buffers.size(), 3u);
  EXPECT_EQ(definition->buffers[0], (Buffer{"bn1.running_mean", {4}, Dtype::Float32, true}));
  EXPECT_EQ(definition->buffers[2], (Buffer{"bn1.num_batches_tracked", {}, Dtype::Int64, true}));
}

TEST(BlockBuilder, DropoutOfZeroLeavesAModuleButNoOp) {
  BlockBuilder b("layer", "Layer", kHidden);
  b.output("hidden", b.dropout("drop", b.input("hidden"), 0));
  const auto definition = b.finish();
  EXPECT_TRUE(definition->block.ops.empty());
  EXPECT_EQ(module_names(definition->block), (std::vector<std::string>{"", "drop"}));
}

TEST(BlockBuilder, ModuleListsAreNotCalledAndUndeclaredParentsAreContainers) {
  BlockBuilder b("layer", "Layer", kHidden);
  b.declare("experts", "ModuleList");
  b.output("hidden", b.linear("blocks.0.fc", b.input("hidden"), 8));
  const auto definition = b.finish();
  const auto& modules = definition->block.modules;
  EXPECT_EQ(module_names(definition->block),
            (std::vector<std::string>{"", "experts", "blocks", "blocks.0", "blocks.0.fc"}));
  EXPECT_FALSE(modules[1].called);
  EXPECT_FALSE(modules[2].called);
  EXPECT_TRUE(modules[4].called);
  EXPECT_EQ(modules[4].parent, 3);
}

TEST(BlockBuilder, ReportsEveryMistake) {
  BlockBuilder b("layer", "Layer", kHidden);
  const BlockValue hidden = b.input("hidde");
  b.linear("fc", b.input("hidden"), 4);
  b.linear("fc", b.input("hidden"), 5);
  b.reshape(b.input("hidden"), {7});
  b.output("hidden", b.add(hidden, b.input("hidden")));
  const auto definition = b.finish();
  ASSERT_FALSE(definition.has_value());
  std::vector<std::string> messages;
  for (const Error& error : definition.error()) messages.push_back(to_string(error));
  EXPECT_EQ(messages, (std::vector<std::string>{
                          "It needs a value \"hidde\", which no module before it produces. Did you mean \"hidden\"?",
                          "The parameter \"fc.weight\" is used as [4, 8] and as [5, 8].",
                          "The op reshape in \"\" does not work: [2, 3, 8] does not reshape to [7]."}));
  // The sum with the missing value would only repeat the first message.
}

}  // namespace
}  // namespace fsdp
