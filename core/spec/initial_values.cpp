// The published classes initialize weights in three ways: one standard deviation for all (initializer_range), one for
// each kind of matrix (T5), or one that follows from a matrix's shape (torchvision, PyTorch's own layers). All are
// expressed as a standard deviation s, divided by the square root of a fan if there is one:
//
//   a matrix [out, in, kernel...]      fan in = in * kernel, fan out = out * kernel
//   xavier_uniform                     uniform, s = 1, mean of both fans
//   kaiming_normal of a ReLU           normal, s = sqrt(2)
//   PyTorch's default of linear layers uniform, s = sqrt(1/3), fan in
//
// A sinusoid [positions, 2 n] is sin(p t_i), then cos(p t_i), with t_i = 10000^(-i / (n - 1)) for i of 0 to n - 1.
//
// Not modeled: a truncated normal becomes a normal one. The published classes cut at two, for weights with standard
// deviations of at most 0.15.
//
// Sources: torch/nn/init.py (_calculate_fan_in_and_fan_out, xavier_uniform_, kaiming_normal_, trunc_normal_),
// torch/nn/modules/linear.py (reset_parameters), torch 2.11; transformers 4.57.3, modeling_utils.py (_init_weights:
// ones and zeros of norms and biases, the padding row) and models/whisper/modeling_whisper.py (sinusoids).

#include "core/spec/initial_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/name_pattern.h"
#include "core/base/object_fields.h"
#include "core/model/op_shapes.h"
#include "core/spec/adapters.h"

namespace fsdp {

namespace {

constexpr EnumName<Fan> kFans[] = {{Fan::None, "none"}, {Fan::In, "in"}, {Fan::Out, "out"}, {Fan::Average, "average"}};
constexpr EnumTable<Fan> kFanTable{"fan", kFans};
constexpr RealRange kNotNegative{0, 1e9};

void draw_fields(Fields& fields, SpecDraw& draw) {
  fields.optional("distribution", "The distribution that is drawn; a sinusoid is of positions.", draw.distribution,
                  kDistributionTable);
  fields.optional("std", "Standard deviation of the draw.", draw.std, kNotNegative);
  fields.optional("fan",
                  "The count whose square root divides the standard deviation: the inputs of a result, the results "
                  "that an input goes to, or the mean of both.",
                  draw.fan, kFanTable);
  fields.optional("value", "The value of a constant.", draw.value);
}

void rule_fields(Fields& fields, SpecInitialRule& rule) {
  fields.required("pattern", "Parameters: * stands for any characters, ? for one, and a module for all below it.",
                  rule.pattern);
  draw_fields(fields, rule.draw);
}

void read_rules(const JsonValue& value, const SpecDraw& usual, std::vector<SpecInitialRule>& out, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Array, "a list of exceptions", errors)) return;
  for (const JsonValue& element : value.elements) {
    SpecInitialRule& rule = out.emplace_back();
    rule.draw = {.distribution = usual.distribution, .std = usual.std, .value = 0, .fan = Fan::None};
    rule.where = errors.document().where(element.offset);
    ObjectReader object(element, errors);
    Fields fields(object);
    rule_fields(fields, rule);
    object.finish();
  }
}

void initial_fields(Fields& fields, SpecInitialValues& out) {
  fields.required("source", "Their source: a key of config.json, the code that draws.", out.source);
  draw_fields(fields, out.weights);
  fields.optional_as(
      "exceptions", "Parameters with other initial values; the last one that matches counts.",
      R"("type": "array", "items": {"$ref": "#/definitions/initial_values_exception"})",
      [&](const JsonValue& value, JsonErrors& errors) { read_rules(value, out.weights, out.rules, errors); });
}

bool is_norm(OpKind kind) {
  return kind == OpKind::RmsNorm || kind == OpKind::LayerNorm || kind == OpKind::GroupNorm ||
         kind == OpKind::BatchNorm || kind == OpKind::GatedRmsNorm;
}

/// By the role of a parameter in the op that reads it first.
InitialValues usual_of(const Op& op, std::size_t index, const InitialValues& weights) {
  if (is_norm(op.kind) && index == 0) {
    // Nemotron's LayerNorm multiplies by 2 at first: its class draws ones too.
    const bool is_zero = op.kind == OpKind::RmsNorm && op.attributes.unit_offset;
    return {.distribution = Distribution::Constant, .std = 0, .value = is_zero ? 0.0 : 1.0};
  }
  const bool has_bias = is_norm(op.kind) || op.kind == OpKind::Linear || op.kind == OpKind::Conv1d ||
                        op.kind == OpKind::Conv2d || op.kind == OpKind::CausalConv1d;
  if (has_bias && index == 1) return {.distribution = Distribution::Constant, .std = 0, .value = 0};
  InitialValues values = weights;
  if (op.kind == OpKind::Embedding && index == 0) values.zero_row = op.attributes.padding_idx;
  return values;
}

/// The root of a fan; 0 if the shape has none.
double root_of(Fan fan, const Shape& shape) {
  if (fan == Fan::None) return 1;
  if (shape.size() < 2) return 0;
  double kernel = 1;
  for (std::size_t i = 2; i < shape.size(); ++i) kernel *= static_cast<double>(shape[i]);
  const double in = static_cast<double>(shape[1]) * kernel;
  const double out = static_cast<double>(shape[0]) * kernel;
  return std::sqrt(fan == Fan::In ? in : fan == Fan::Out ? out : (in + out) / 2);
}

InitialValues drawn(const SpecDraw& draw, double root) {
  const bool is_random = draw.distribution == Distribution::Uniform || draw.distribution == Distribution::Normal;
  return {.distribution = draw.distribution, .std = is_random ? draw.std / root : 0, .value = draw.value};
}

/// A parameter that no op reads is registered but not called; its name and shape decide its kind.
InitialValues usual_of_unread(const Parameter& parameter, const SpecDraw& weights) {
  if (parameter.shape.size() == 1) {
    const bool is_bias = parameter.name.ends_with("bias");
    return {.distribution = Distribution::Constant, .std = 0, .value = is_bias ? 0.0 : 1.0};
  }
  return drawn(weights, root_of(weights.fan, parameter.shape));
}

bool is_even_table(const Shape& shape) {
  return shape.size() == 2 && shape[1] % 2 == 0 && shape[1] > 2;
}

bool means(const SpecInitialRule& rule, const Parameter& parameter) {
  return matches(rule.pattern, name_before_adapters(parameter.name)) ||
         std::any_of(parameter.tied_names.begin(), parameter.tied_names.end(),
                     [&](const std::string& name) { return matches(rule.pattern, name); });
}

}  // namespace

void read_initial_values(const JsonValue& value, SpecInitialValues& out, JsonErrors& errors) {
  ObjectReader object(value, errors);
  Fields fields(object);
  initial_fields(fields, out);
  object.finish();
}

std::vector<std::pair<std::string, std::string>> schemas_of_initial_values() {
  return {{"initial_values", schema_of_fields([](Fields& fields) {
             SpecInitialValues values;
             initial_fields(fields, values);
           })},
          {"initial_values_exception", schema_of_fields([](Fields& fields) {
             SpecInitialRule rule;
             rule_fields(fields, rule);
           })}};
}

Errors set_initial_values(const SpecInitialValues& spec, Model& model) {
  std::vector<bool> is_set(model.parameters.size(), false);
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[call.block].ops) {
      for (std::size_t i = 0; i < op.parameters.size(); ++i) {
        const int id = call.parameters[op.parameters[i]];
        if (is_set[id]) continue;
        is_set[id] = true;
        const double root = root_of(spec.weights.fan, model.parameters[id].shape);
        model.parameters[id].initial = usual_of(op, i, drawn(spec.weights, root == 0 ? 1 : root));
      }
    }
  }
  for (std::size_t id = 0; id < model.parameters.size(); ++id) {
    if (!is_set[id]) model.parameters[id].initial = usual_of_unread(model.parameters[id], spec.weights);
  }
  Errors errors;
  for (const SpecInitialRule& rule : spec.rules) {
    bool found = false;
    for (Parameter& parameter : model.parameters) {
      if (!means(rule, parameter)) continue;
      found = true;
      const double root = root_of(rule.draw.fan, parameter.shape);
      if (root == 0 || (rule.draw.distribution == Distribution::Sinusoid && !is_even_table(parameter.shape))) {
        errors.push_back(Error{rule.where, fmt::format("{} is {}.", parameter.name, to_string(parameter.shape)),
                               root == 0
                                   ? "A fan needs a matrix: write the standard deviation itself."
                                   : "A sinusoid has rows of positions, and an even number of columns above two."});
        break;
      }
      parameter.initial = drawn(rule.draw, root);
    }
    if (!found) {
      errors.push_back(Error{rule.where,
                             fmt::format("The pattern \"{}\" matches no parameter of {}.", rule.pattern, model.name),
                             "Write a module or a parameter, with * for any characters."});
    }
  }
  return errors;
}

}  // namespace fsdp
