#include "core/model/model_index.h"

#include <gtest/gtest.h>

#include "tests/support/assemble_model.h"
#include "tests/support/collective_models.h"

namespace fsdp {
namespace {

using Spans = std::vector<Span>;

Spans runs_of(const ModelIndex& index, std::string_view module) {
  return index.runs[index.find(module)];
}

/// stem: 1 op; two blocks of linear, relu, linear, relu, each called twice; head: 1; a loss of 3 ops in the root.
Model called_twice() {
  return collective_model("mlp", {{"in", "6"}, {"blocks", "8,12,8;8,12,8"}, {"reuse", "2"}, {"out", "5"}},
                          Dtype::Float32);
}

TEST(ModelIndex, NumbersAllOpsInForwardOrder) {
  const Model model = called_twice();
  const ModelIndex index = index_of(model);
  EXPECT_EQ(index.call_begin, (std::vector<int>{0, 1, 5, 9, 13, 17, 18, 21}));
  EXPECT_EQ(index.num_positions(), 21);
  EXPECT_EQ(index.call_at(0), 0);
  EXPECT_EQ(index.call_at(4), 1);
  EXPECT_EQ(index.call_at(5), 2);
  EXPECT_EQ(index.call_at(20), 6);
}

TEST(ModelIndex, ModuleCalledTwiceRunsTwiceAndItsParentOnce) {
  const Model model = called_twice();
  const ModelIndex index = index_of(model);
  EXPECT_EQ(runs_of(index, "blocks.0"), (Spans{{1, 5}, {5, 9}}));
  EXPECT_EQ(runs_of(index, "blocks.0.fcs.1"), (Spans{{3, 4}, {7, 8}}));
  EXPECT_EQ(runs_of(index, "blocks"), (Spans{{1, 17}}));
  EXPECT_EQ(runs_of(index, ""), (Spans{{0, 21}}));
}

TEST(ModelIndex, OwnOpsBetweenCallsDoNotSplitAModulesRun) {
  ModelAssembler assembler("outer", Dtype::Float32);
  assembler.input("x", {2, 4}, std::nullopt);
  const auto relu = [&](const std::string& name, const std::string& out) {
    BlockBuilder b = assembler.block("step", "Step");
    b.output(out, b.relu(b.input("x")));
    assembler.call(name, std::move(b));
  };
  relu("body", "x");
  relu("body.layer", "x");
  relu("body", "x");
  BlockBuilder loss = assembler.block("loss", "Loss");
  loss.output("loss", loss.mean(loss.mean(loss.input("x"), -1, false), -1, false));
  assembler.call("", std::move(loss));
  const Model model = assembler.finish("loss");
  const ModelIndex index = index_of(model);
  EXPECT_EQ(runs_of(index, "body"), (Spans{{0, 3}}));
  EXPECT_EQ(runs_of(index, "body.layer"), (Spans{{1, 2}}));
  EXPECT_EQ(runs_of(index, ""), (Spans{{0, 5}}));
}

TEST(ModelIndex, ArgumentOfAParentModuleLivesUntilItReturns) {
  ModelAssembler assembler("outer", Dtype::Float32);
  assembler.input("x", {2, 4}, std::nullopt);
  const auto relu = [&](const std::string& name, const std::string& in, const std::string& out) {
    BlockBuilder b = assembler.block("step", "Step");
    b.output(out, b.relu(b.input(in)));
    assembler.call(name, std::move(b));
  };
  relu("stem", "x", "given");
  relu("body.first", "given", "inside");
  relu("body.second", "inside", "made");
  BlockBuilder loss = assembler.block("loss", "Loss");
  loss.output("loss", loss.mean(loss.mean(loss.input("made"), -1, false), -1, false));
  assembler.call("", std::move(loss));
  Model model = assembler.finish("loss");
  const int body = index_of(model).find("body");
  model.modules[body].called = true;
  const int given = model.calls.front().outputs.front();
  EXPECT_EQ(index_of(model).held_arguments, (std::vector<HeldArgument>{{given, 3, body}}));
  // A list of modules has no forward, and so no arguments.
  model.modules[body].called = false;
  EXPECT_TRUE(index_of(model).held_arguments.empty());

  // What body.first gives is a variable of the forward around it, as the embeddings of a language model are.
  const int inside = model.calls[1].outputs.front();
  model.named = {{inside, model.calls[1].module}};
  EXPECT_TRUE(index_of(model).held_arguments.empty());
  model.modules[body].called = true;
  EXPECT_EQ(index_of(model).held_arguments, (std::vector<HeldArgument>{{given, 3, body}, {inside, 3, body}}));
}

TEST(ModelIndex, FindsModulesAndTheirDescendants) {
  const Model model = called_twice();
  const ModelIndex index = index_of(model);
  EXPECT_EQ(index.find(""), 0);
  EXPECT_EQ(index.find("blocks.2"), -1);
  const int block = index.find("blocks.0");
  EXPECT_TRUE(index.contains(block, index.find("blocks.0.fcs.1")));
  EXPECT_TRUE(index.contains(block, block));
  EXPECT_FALSE(index.contains(block, index.find("blocks.1.fcs.0")));
  EXPECT_FALSE(index.contains(block, index.find("blocks")));
}

TEST(ModelIndex, OnlyOpsFromTrainableParametersToTheLossHaveABackward) {
  Model model = called_twice();
  for (Parameter& parameter : model.parameters) parameter.trainable = parameter.name.starts_with("head");
  derive_gradient_flow(model);
  const ModelIndex index = index_of(model);
  for (int p = 0; p < index.num_positions(); ++p) EXPECT_EQ(index.in_backward[p], p >= 17) << p;
}

}  // namespace
}  // namespace fsdp
