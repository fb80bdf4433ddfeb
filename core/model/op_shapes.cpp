#include "core/model/op_shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/model/op_shape_rules.h"
#include "core/model/op_table.h"

namespace fsdp {

using op_shape_rules::broadcasts_to;
using op_shape_rules::one;
using op_shape_rules::Rule;
using op_shape_rules::wrong;

bool op_shape_rules::broadcasts_to(const Shape& b, const Shape& a) {
  if (b.size() > a.size()) return false;
  return std::equal(b.rbegin(), b.rend(), a.rbegin(),
                    [](std::int64_t from, std::int64_t to) { return from == to || from == 1; });
}

Rule op_shape_rules::same(const OpAttributes& /*unused*/, const OpShapes& s) {
  return one(s.inputs[0]);
}

Rule op_shape_rules::broadcast(const OpAttributes& /*unused*/, const OpShapes& s) {
  if (!broadcasts_to(s.inputs[1], s.inputs[0])) {
    return wrong("{} does not broadcast to {}.", to_string(s.inputs[1]), to_string(s.inputs[0]));
  }
  return one(s.inputs[0]);
}

Rule op_shape_rules::gated(const OpAttributes& /*unused*/, const OpShapes& s) {
  if (s.inputs[0] != s.inputs[1]) return wrong("{} and {} differ.", to_string(s.inputs[0]), to_string(s.inputs[1]));
  return one(s.inputs[0]);
}

Rule op_shape_rules::requested(const OpAttributes& /*unused*/, const OpShapes& s) {
  return one(s.requested);
}

Rule op_shape_rules::parameter(const OpAttributes& /*unused*/, const OpShapes& s) {
  return one(s.parameters[0]);
}

namespace {

/// "2", "1 to 3" or "at least 1".
std::string count_text(int min, int max) {
  if (min == max) return fmt::format("{}", min);
  if (max == kAnyNumber) return fmt::format("at least {}", min);
  return fmt::format("{} to {}", min, max);
}

Rule check_arity(const OpRow& row, const OpShapes& s) {
  const OpArity& arity = row.arity;
  const auto inputs = static_cast<int>(s.inputs.size());
  const auto parameters = static_cast<int>(s.parameters.size());
  if (inputs < arity.min_inputs || inputs > arity.max_inputs) {
    return wrong("It takes {} inputs, not {}.", count_text(arity.min_inputs, arity.max_inputs), inputs);
  }
  if (parameters < arity.min_parameters || parameters > arity.max_parameters) {
    return wrong("It takes {} parameters, not {}.", count_text(arity.min_parameters, arity.max_parameters), parameters);
  }
  for (const Shape& input : s.inputs) {
    if (input.empty() && !row.takes_scalars) return wrong("An input is a scalar.");
  }
  return std::vector<Shape>{};
}

}  // namespace

Result<std::vector<Shape>> infer_output_shapes(OpKind kind, const OpAttributes& attributes, const OpShapes& shapes) {
  const std::string where(name_of(kind));
  const OpRow& row = op_row(kind);
  Rule outputs = check_arity(row, shapes);
  if (outputs) outputs = row.shape(attributes, shapes);
  if (!outputs) return failure(where, outputs.error());
  for (const Shape& shape : *outputs) {
    for (const std::int64_t size : shape) {
      if (size < 1) return failure(where, fmt::format("The output {} has a size below 1.", to_string(shape)));
    }
    if (!checked_num_elements(shape)) {
      return failure(where, fmt::format("The output {} has more than 2^53 elements.", to_string(shape)));
    }
  }
  return *std::move(outputs);
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::optional<std::int64_t> checked_num_elements(const Shape& shape) {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size > 0 && product > kMostElements / size) return std::nullopt;
    product *= size;
  }
  return product;
}

namespace {

/// Whether all indices are below `size`. Adds an error for the first that is not.
bool are_below(std::span<const int> indices, std::size_t size, std::string_view what, std::size_t op, Errors& errors) {
  for (const int index : indices) {
    if (index >= 0 && static_cast<std::size_t>(index) < size) continue;
    errors.push_back(Error{fmt::format("op {}", op), fmt::format("It points to {} {} of {}.", what, index, size), {}});
    return false;
  }
  return true;
}

}  // namespace

Errors check_block(const Block& block) {
  Errors errors;
  for (std::size_t i = 0; i < block.ops.size(); ++i) {
    const Op& op = block.ops[i];
    const int module[] = {op.module};
    const bool points_well = are_below(op.inputs, block.values.size(), "value", i, errors) &&
                             are_below(op.outputs, block.values.size(), "value", i, errors) &&
                             are_below(op.parameters, block.parameters.size(), "parameter", i, errors) &&
                             are_below(module, block.modules.size(), "module", i, errors);
    if (!points_well || op.kind == OpKind::Recorded) continue;
    std::vector<Shape> inputs;
    std::vector<Shape> parameters;
    std::vector<Shape> outputs;
    for (const int id : op.inputs) inputs.push_back(block.values[id].shape);
    for (const int id : op.outputs) outputs.push_back(block.values[id].shape);
    for (const int id : op.parameters) parameters.push_back(block.parameters[id]);
    const auto inferred = infer_output_shapes(op.kind, op.attributes,
                                              OpShapes{.inputs = inputs,
                                                       .parameters = parameters,
                                                       .requested = outputs.empty() ? Shape{} : outputs[0],
                                                       .num_outputs = static_cast<int>(outputs.size())});
    const std::string where = fmt::format("op {} ({})", i, name_of(op.kind));
    if (!inferred) {
      errors.push_back(Error{where, inferred.error().front().what, inferred.error().front().hint});
    } else if (*inferred != outputs) {
      errors.push_back(Error{where, "Its outputs do not have the shapes that its rule gives.", {}});
    }
  }
  return errors;
}

}  // namespace fsdp
