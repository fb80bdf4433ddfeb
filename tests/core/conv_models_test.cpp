// ResNet-18: totals, torchvision's names, buffers, and the sizes of its feature maps.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <set>

#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

std::set<std::string> parameter_names_of(const Model& model) {
  std::set<std::string> names;
  for (const Parameter& parameter : model.parameters) names.insert(parameter.name);
  return names;
}

void add_norm(std::set<std::string>& names, const std::string& name) {
  names.insert(name + ".weight");
  names.insert(name + ".bias");
}

TEST(ResNet18, HasTheTotalsOfTorchvision) {
  EXPECT_EQ(num_parameters(model_of("resnet18.json")), 11'689'512);
  // Ten classes: 990 fewer rows of 512 and their biases. One channel: 2 * 49 * 64 fewer weights in the stem.
  EXPECT_EQ(num_parameters(model_of("resnet18.json", {.dimensions = {{"classes", 10}}})), 11'689'512 - 990 * 513);
  EXPECT_EQ(num_parameters(model_of("resnet18.json", {.dimensions = {{"classes", 10}}})), 11'181'642);
  EXPECT_EQ(num_parameters(model_of("resnet18.json", {.dimensions = {{"classes", 10}, {"channels", 1}}})), 11'175'370);
}

TEST(ResNet18, EveryParameterHasTorchvisionsName) {
  std::set<std::string> expected = {"conv1.weight", "fc.weight", "fc.bias"};
  add_norm(expected, "bn1");
  for (int layer = 1; layer <= 4; ++layer) {
    for (int block = 0; block < 2; ++block) {
      const std::string name = fmt::format("layer{}.{}", layer, block);
      for (int i = 1; i <= 2; ++i) {
        expected.insert(fmt::format("{}.conv{}.weight", name, i));
        add_norm(expected, fmt::format("{}.bn{}", name, i));
      }
      if (layer > 1 && block == 0) {
        expected.insert(name + ".downsample.0.weight");
        add_norm(expected, name + ".downsample.1");
      }
    }
  }
  EXPECT_EQ(expected.size(), 62U);
  EXPECT_EQ(parameter_names_of(model_of("resnet18.json")), expected);
}

TEST(ResNet18, EachNormKeepsRunningStatisticsAndACounter) {
  const Model model = model_of("resnet18.json");
  EXPECT_EQ(model.buffers.size(), 60U);  // 20 norms of three buffers.
  const Buffer* mean = find_buffer(model, "layer4.1.bn2.running_mean");
  const Buffer* variance = find_buffer(model, "layer2.0.downsample.1.running_var");
  const Buffer* counter = find_buffer(model, "bn1.num_batches_tracked");
  ASSERT_TRUE(mean != nullptr && variance != nullptr && counter != nullptr);
  EXPECT_EQ(*mean, (Buffer{.name = "layer4.1.bn2.running_mean", .shape = {512}, .dtype = Dtype::Float32}));
  EXPECT_EQ(variance->shape, Shape{128});
  EXPECT_EQ(counter->dtype, Dtype::Int64);
  EXPECT_EQ(counter->shape, Shape{});
}

TEST(ResNet18, FeatureMapsHalveFiveTimes) {
  const Model model = model_of("resnet18.json", {.dimensions = {{"batch", 2}}});
  EXPECT_EQ(op_of(model, "conv1", OpKind::Conv2d).outputs[0], (Shape{2, 64, 112, 112}));
  EXPECT_EQ(op_of(model, "maxpool", OpKind::MaxPool2d).outputs[0], (Shape{2, 64, 56, 56}));
  EXPECT_EQ(op_of(model, "layer1.1.conv2", OpKind::Conv2d).outputs[0], (Shape{2, 64, 56, 56}));
  EXPECT_EQ(op_of(model, "layer2.0.conv1", OpKind::Conv2d).outputs[0], (Shape{2, 128, 28, 28}));
  EXPECT_EQ(op_of(model, "layer2.0.downsample.0", OpKind::Conv2d).outputs[0], (Shape{2, 128, 28, 28}));
  EXPECT_EQ(op_of(model, "layer3.1.conv2", OpKind::Conv2d).outputs[0], (Shape{2, 256, 14, 14}));
  EXPECT_EQ(op_of(model, "layer4.1.conv2", OpKind::Conv2d).outputs[0], (Shape{2, 512, 7, 7}));
  EXPECT_EQ(op_of(model, "avgpool", OpKind::AdaptiveAvgPool2d).outputs[0], (Shape{2, 512, 1, 1}));
  EXPECT_EQ(op_of(model, "fc", OpKind::Linear).outputs[0], (Shape{2, 1000}));
}

TEST(ResNet18, AllParametersReceiveAGradientAndImagesAreCounted) {
  const Model model = model_of("resnet18.json", {.dimensions = {{"batch", 8}}});
  EXPECT_EQ(num_gradient_parameters(model), num_parameters(model));
  EXPECT_EQ(model.tokens_per_step, 8);
}

}  // namespace
}  // namespace fsdp
