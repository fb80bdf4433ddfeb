#include "planner/space/wrap_apart.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fsdp::planner {
namespace {

/// Two blocks with an adapter beside a frozen layer, and a frozen head, as peft makes them: "0.base", "0.lora.default".
/// The ModuleDict "0.lora" is never called.
Model adapted() {
  Model model;
  const auto add = [&](const std::string& name, int parent, bool called) {
    const int number = static_cast<int>(model.modules.size());
    model.modules.push_back({.name = name, .class_name = "M", .parent = parent, .called = called});
    if (parent >= 0) model.modules[static_cast<std::size_t>(parent)].children.push_back(number);
    return number;
  };
  const auto own = [&](int module, std::int64_t elements, bool trainable, Dtype dtype) {
    Parameter parameter;
    parameter.name = model.modules[static_cast<std::size_t>(module)].name + ".weight";
    parameter.module = module;
    parameter.shape = {elements};
    parameter.dtype = dtype;
    parameter.trainable = parameter.receives_gradient = trainable;
    model.parameters.push_back(parameter);
  };
  const int root = add("", -1, true);
  for (const std::string block : {"0", "1"}) {
    const int at = add(block, root, true);
    own(add(block + ".base", at, true), 1000, false, Dtype::BFloat16);
    own(add(block + ".lora.default", add(block + ".lora", at, false), true), 10, true, Dtype::Float32);
  }
  own(add("head", root, true), 1000, false, Dtype::BFloat16);
  return model;
}

TEST(WrapApart, TrainedPartsOfABlockBecomeUnitsBeforeIt) {
  const Model model = adapted();
  Wrapping wrapping{.stacks = {{{{"0"}}, {{"1"}}}}, .others = {}, .roots = {}};
  wrap_apart(model, Plan{}, wrapping);
  const Wrapping wanted{
      .stacks = {{{{"0.lora.default"}, {"0"}}, {{"1.lora.default"}, {"1"}}}}, .others = {}, .roots = {}};
  EXPECT_EQ(wrapping, wanted);
}

TEST(WrapApart, RootAloneIsSplit) {
  Wrapping wrapping;
  wrap_apart(adapted(), Plan{}, wrapping);
  EXPECT_EQ(wrapping.others, (std::vector<UnitModules>{{"0.lora.default"}, {"1.lora.default"}}));
}

TEST(WrapApart, UnitsOfOneKindAreUnchanged) {
  Model model = adapted();
  for (Parameter& parameter : model.parameters) parameter.trainable = true;
  Plan base;
  base.parameter_dtype = Dtype::BFloat16;
  EXPECT_FALSE(has_kinds(model, base));
  EXPECT_TRUE(has_kinds(model, Plan{}));  // Parameters of two dtypes.
  Wrapping wrapping{.stacks = {{{{"0"}}, {{"1"}}}}, .others = {}, .roots = {}};
  const Wrapping before = wrapping;
  wrap_apart(model, base, wrapping);
  EXPECT_EQ(wrapping, before);
}

TEST(WrapApart, ParametersWithoutAModuleOfTheirOwnStay) {
  Model model = adapted();
  Parameter scale = model.parameters[1];  // Trained, and in "0" itself.
  scale.name = "0.scale";
  scale.module = 1;
  model.parameters.push_back(scale);
  Wrapping wrapping{.stacks = {{{{"0"}}, {{"1"}}}}, .others = {}, .roots = {}};
  wrap_apart(model, Plan{}, wrapping);
  EXPECT_EQ(wrapping.stacks[0][0], (UnitGroup{{"0.lora.default"}, {"0"}}));
}

}  // namespace
}  // namespace fsdp::planner
