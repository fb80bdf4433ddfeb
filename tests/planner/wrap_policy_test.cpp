// The auto-wrap policies of PyTorch: what they choose, refuse and say. That they choose as PyTorch's own functions do
// is tested in Python, beside those (tests/command/wrap_policies_test.py).

#include "planner/space/wrap_policy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/request/plan_request.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

using Texts = std::vector<std::string>;

/// Adds a module with one parameter of so many elements, or without one.
int add(Model& model, const std::string& name, const std::string& class_name, std::int64_t elements = 0) {
  const int place = static_cast<int>(model.modules.size());
  Module module{.name = name, .class_name = class_name};
  if (place > 0) {
    for (int i = 0; i < place; ++i) {
      if (model.modules[i].name == parent_name(name)) module.parent = i;
    }
    model.modules[module.parent].children.push_back(place);
  }
  if (elements > 0) {
    model.parameters.push_back(
        {.name = name.empty() ? "weight" : name + ".weight", .shape = {elements}, .module = place});
  }
  model.modules.push_back(std::move(module));
  return place;
}

/// The example of planner/space/wrap_policy.cpp.
Model example() {
  Model model{.name = "Example"};
  add(model, "", "Net");
  add(model, "pair", "Sequential");
  add(model, "pair.0", "Linear", 100);
  add(model, "pair.1", "Linear", 100);
  add(model, "single", "Linear", 150);
  add(model, "list", "ModuleList");
  for (const char* name : {"list.0", "list.1", "list.2"}) add(model, name, "Linear", 100);
  add(model, "attention", "MultiheadAttention", 300);
  add(model, "attention.out_proj", "NonDynamicallyQuantizableLinear", 100);
  return model;
}

Texts units(const Model& model, const std::string& wrap) {
  Texts names;
  for (const int module : run_policy(model, *parse_wrap(wrap)).units) names.push_back(model.modules[module].name);
  return names;
}

Texts refusals(const Model& model, const std::string& wrap) {
  const auto wrapping = wrapping_by_name(model, *parse_wrap(wrap));
  Texts texts;
  if (wrapping) return texts;
  for (const Error& error : wrapping.error()) texts.push_back(to_string(error));
  return texts;
}

/// Each row as "modules: elements, remaining, yes: why".
Texts rows(const PolicyExplanation& explanation) {
  Texts texts;
  for (const PolicyRow& row : explanation.rows) {
    texts.push_back(row.modules + ": " + std::to_string(row.elements) + ", " + std::to_string(row.remaining) +
                    (row.is_unit ? ", yes: " : ", no: ") + row.why);
  }
  return texts;
}

TEST(AutoWrap, SizePolicyWorksFromTheLeavesUpInclusive) {
  // pair 200 and single 150 reach 150; what is left of list is 300, but it is a ModuleList; attention is a leaf of 400.
  EXPECT_EQ(units(example(), "size:150"), (Texts{"pair", "single"}));
  EXPECT_EQ(units(example(), "size:151"), (Texts{"pair"}));
  EXPECT_EQ(units(example(), "size:100"), (Texts{"pair.0", "pair.1", "single", "list.0", "list.1", "list.2"}));
  EXPECT_EQ(units(example(), "size:10M"), Texts());
}

TEST(AutoWrap, ExplainsWhyEachModuleIsAUnitOrNot) {
  const PolicyExplanation said = explain_policy(example(), *parse_wrap("size:150"));
  EXPECT_EQ(said.policy, "size:150");
  EXPECT_EQ(rows(said), (Texts{": 1050, 700, yes: the root is a unit in any case",
                               "pair: 200, 200, yes: 200 remain, of at least 150",
                               "pair.{0..1}: 100, 100, no: fewer than 150: not looked into",
                               "single: 150, 150, yes: 150 remain, of at least 150",
                               "list: 300, 300, no: 300 remain, but its class is excluded: ModuleList",
                               "list.{0..2}: 100, 100, no: fewer than 150: not looked into",
                               "attention: 400, 400, no: MultiheadAttention is a forced leaf: neither it nor what is "
                               "inside"}));
  EXPECT_EQ(said.root_elements, 700);
  EXPECT_EQ(said.in_root, (Texts{"list", "attention"}));
}

TEST(AutoWrap, RestOutsideInnerUnitsMayBeTooSmall) {
  // The two Linear are 200 of 250, and 50 are left.
  Model model{.name = "Rest"};
  add(model, "", "Net");
  add(model, "block", "Block", 50);
  add(model, "block.a", "Linear", 100);
  add(model, "block.b", "Linear", 100);
  const PolicyExplanation said = explain_policy(model, *parse_wrap("size:100"));
  EXPECT_EQ(rows(said)[1], "block: 250, 50, no: 50 remain outside nested units, fewer than 100");
  EXPECT_EQ(said.in_root, (Texts{"block"}));
  EXPECT_EQ(said.root_elements, 50);
}

TEST(AutoWrap, ClassPolicyWrapsNestedModulesToo) {
  EXPECT_EQ(units(example(), "class:Sequential"), (Texts{"pair"}));
  // torch.nn derives the output projection of attention from Linear.
  EXPECT_EQ(units(example(), "class:Linear,Sequential"),
            (Texts{"pair.0", "pair.1", "pair", "single", "list.0", "list.1", "list.2", "attention.out_proj"}));
  const PolicyExplanation said = explain_policy(example(), *parse_wrap("class:Sequential"));
  EXPECT_EQ(rows(said),
            (Texts{": 1050, 850, yes: the root is a unit in any case", "pair: 200, 200, yes: its class is named"}));
  EXPECT_EQ(said.in_root, (Texts{"single", "list", "attention"}));
}

TEST(AutoWrap, AdaptersAreTrainedModulesWithoutChildren) {
  Model model = example();
  for (Parameter& parameter : model.parameters) {
    model.modules[parameter.module].parameters = {static_cast<int>(&parameter - model.parameters.data())};
    parameter.trainable = parameter.module == 2 || parameter.module == 4;
  }
  EXPECT_EQ(units(model, "class:adapters"), (Texts{"pair.0", "single"}));
  EXPECT_EQ(units(model, "class:Sequential,adapters"), (Texts{"pair.0", "pair", "single"}));
}

TEST(AutoWrap, NestedModuleListsFoldIntoOneRow) {
  Model model{.name = "Rows"};
  add(model, "", "Net");
  for (const std::string layer : {"layer_0", "layer_1"}) {
    add(model, layer, "Layer");
    for (const std::string part : {".0", ".1", ".2"}) add(model, layer + part, "Linear", 10);
    add(model, layer + ".norm", "Norm", 1);
  }
  const PolicyExplanation said = explain_policy(model, *parse_wrap("size:10"));
  EXPECT_EQ(said.rows[2].modules, "layer_{0..1}.{0..2}");
  EXPECT_EQ(said.rows[2].count, 6);
  EXPECT_EQ(said.in_root, (Texts{"layer_{0..1}.norm"}));
}

TEST(AutoWrap, EveryImpossibleUnitIsRefused) {
  Model model = *build_model(small_transformer({.layers = 2, .tied = true}));
  const std::string tie = R"("model.embed_tokens.weight" is the parameter "lm_head.weight", which lies outside of it.)";
  // 256 x 64 = 16,384 elements each.
  const Texts said = refusals(model, "class:Embedding,ModuleList,Transformer,Mod");
  ASSERT_EQ(said.size(), 4U);
  EXPECT_TRUE(said[0].find("is a \"Transformer\".") != std::string::npos) << said[0];
  EXPECT_TRUE(said[1].find("is a \"Mod\".") != std::string::npos) << said[1];
  EXPECT_EQ(said[2],
            "--wrap: class:Embedding,ModuleList,Transformer,Mod chooses \"model.embed_tokens\", which cannot be "
            "a unit: " +
                tie);
  EXPECT_EQ(said[3],
            "--wrap: class:Embedding,ModuleList,Transformer,Mod chooses \"model.layers\", which cannot be a unit: "
            "its forward is never called. Take another class, or write the names of the units.");
}

TEST(AutoWrap, UnknownClassErrorListsKnownOnesNearestFirst) {
  const Model model = *build_model(small_transformer());
  const Texts said = refusals(model, "class:RMSNorn");
  ASSERT_EQ(said.size(), 1U);
  const std::size_t nearest = said[0].find("Did you mean \"");
  ASSERT_NE(nearest, std::string::npos) << said[0];
  EXPECT_NE(said[0].find("Known are ", nearest), std::string::npos) << said[0];
  EXPECT_EQ(said[0].find("ModuleList"), std::string::npos) << "cannot be a unit: " << said[0];
}

TEST(AutoWrap, PlanHasTheUnitsOfThePolicyChildrenFirst) {
  const Model model = *build_model(small_transformer({.layers = 2}));
  const auto wrapping = wrapping_by_name(model, *parse_wrap("size:16K"));
  ASSERT_TRUE(wrapping.has_value());
  Texts names;
  for (const UnitModules& unit : wrapping->others) names.insert(names.end(), unit.begin(), unit.end());
  EXPECT_EQ(names, units(model, "size:16K"));
  EXPECT_EQ(names.front(), "model.embed_tokens");
}

TEST(AutoWrap, WrapEndsWithAPolicyAreRefused) {
  PlanRequest request{.model = "mlp"};
  request.choices.wrap = *parse_wrap("size:1K");
  request.choices.wrap_ends = true;
  const Errors errors = check_request(request, "model_specs");
  ASSERT_FALSE(errors.empty());
  EXPECT_EQ(to_string(errors.front()), "--wrap-ends: --wrap size:1K already defines the units. Give one of the two.");
}

}  // namespace
}  // namespace fsdp::planner
