#include "core/spec/initial_values.h"

#include <gtest/gtest.h>

#include <string>

#include "core/base/result.h"
#include "core/spec/model_spec.h"

namespace fsdp {
namespace {

/// Two linear layers and a norm, with what a spec says of initial values; empty: nothing.
Result<Model> model_beginning(const std::string& initial) {
  std::string text = R"({
    "format_version": "1.0", "name": "Small", "source": "here", "dtype": "float32", "dimensions": {"batch": 2},
    "inputs": {"features": {"shape": ["batch", 12]}, "labels": {"shape": ["batch"], "dtype": "int64"}},
    "modules": [
      {"name": "a", "ops": [{"op": "linear", "module": "up", "inputs": ["features"], "out_features": 48},
                            {"op": "linear", "module": "down", "out_features": 12, "outputs": ["hidden"]}]},
      {"name": "norm", "block": "layer_norm"},
      {"name": "b", "ops": [{"op": "linear", "inputs": ["hidden"], "out_features": 5, "outputs": ["logits"]}]},
      {"name": "", "block": "cross_entropy"}])";
  if (!initial.empty()) text += R"(, "initial_values": )" + initial;
  const Result<ModelSpec> spec = parse_model_spec(text + "}", "small.json");
  if (!spec) return tl::unexpected(spec.error());
  return build_model(*spec);
}

InitialValues initial_of(const Result<Model>& model, const std::string& name) {
  if (!model) return {};
  for (const Parameter& parameter : model->parameters) {
    if (parameter.name == name) return parameter.initial;
  }
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

std::string errors_with(const std::string& initial) {
  const Result<Model> model = model_beginning(initial);
  std::string text;
  if (model) return text;
  for (const Error& error : model.error()) text += to_string(error) + "\n";
  return text;
}

TEST(InitialValues, DefaultsAreUniformWeightsUnitNormsZeroBiases) {
  const Result<Model> model = model_beginning("");
  EXPECT_EQ(initial_of(model, "a.up.weight"), (InitialValues{.distribution = Distribution::Uniform, .std = 0.02}));
  EXPECT_EQ(initial_of(model, "a.up.bias"), (InitialValues{.distribution = Distribution::Constant, .std = 0}));
  EXPECT_EQ(initial_of(model, "norm.weight"),
            (InitialValues{.distribution = Distribution::Constant, .std = 0, .value = 1}));
}

TEST(InitialValues, TheLastExceptionThatMatchesCounts) {
  const Result<Model> model = model_beginning(R"({"source": "x", "distribution": "normal", "std": 0.5, "exceptions": [
      {"pattern": "a", "std": 0.25}, {"pattern": "*.down.*", "distribution": "constant", "value": 3}]})");
  EXPECT_EQ(initial_of(model, "a.up.weight"), (InitialValues{.distribution = Distribution::Normal, .std = 0.25}));
  EXPECT_EQ(initial_of(model, "a.up.bias"), (InitialValues{.distribution = Distribution::Normal, .std = 0.25}));
  EXPECT_EQ(initial_of(model, "a.down.weight").value, 3);
  EXPECT_EQ(initial_of(model, "b.weight").std, 0.5);
}

// a.up.weight is [48, 12]: 1 / sqrt(12), 1 / sqrt(48), 1 / sqrt(30).
TEST(InitialValues, FanDividesByItsSquareRoot) {
  const auto up = [](const std::string& fan) {
    return initial_of(model_beginning(R"({"source": "x", "std": 1, "fan": ")" + fan + R"("})"), "a.up.weight").std;
  };
  EXPECT_DOUBLE_EQ(up("in"), 0.28867513459481287);
  EXPECT_DOUBLE_EQ(up("out"), 0.14433756729740643);
  EXPECT_DOUBLE_EQ(up("average"), 0.18257418583505536);
}

TEST(InitialValues, ReportsImpossibleExceptions) {
  EXPECT_EQ(
      errors_with(R"({"source": "x", "exceptions": [{"pattern": "nobody", "std": 1}]})"),
      "small.json:9:97: /initial_values/exceptions/0: The pattern \"nobody\" matches no parameter of Small. Write "
      "a module or a parameter, with * for any characters.\n");
  EXPECT_NE(errors_with(R"({"source": "x", "exceptions": [{"pattern": "*.bias", "fan": "in"}]})")
                .find("a.up.bias is [48]. A fan needs a matrix: write the standard deviation itself."),
            std::string::npos);
  EXPECT_NE(errors_with(R"({"source": "x", "exceptions": [{"pattern": "b.weight", "distribution": "sinusoid"}, 
                                                         {"pattern": "norm.weight", "distribution": "sinusoid"}]})")
                .find("norm.weight is [12]. A sinusoid has rows of positions"),
            std::string::npos);
  EXPECT_NE(errors_with(R"({"std": 1})").find("\"source\""), std::string::npos);
  EXPECT_NE(errors_with(R"({"source": "x", "distribution": "gaussian"})").find("Unknown distribution \"gaussian\""),
            std::string::npos);
  EXPECT_NE(errors_with(R"({"source": "x", "std": -1})"), "");
}

// What a plan or a checkpoint fits does not depend on it.
TEST(InitialValues, FingerprintDoesNotDependOnThem) {
  const Result<Model> usual = model_beginning("");
  const Result<Model> other = model_beginning(R"({"source": "x", "std": 0.5})");
  ASSERT_TRUE(usual && other);
  EXPECT_EQ(fingerprint_of(*usual), fingerprint_of(*other));
}

}  // namespace
}  // namespace fsdp
