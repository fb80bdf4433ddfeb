#pragma once

// For the files with shape rules; all others include core/model/op_shapes.h.

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "core/model/op_shapes.h"

namespace fsdp::op_shape_rules {

/// Output shapes, or the error as one sentence.
using Rule = tl::expected<std::vector<Shape>, std::string>;

inline Rule one(Shape shape) {
  return std::vector<Shape>{std::move(shape)};
}

template <class... Args>
tl::unexpected<std::string> wrong(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected(fmt::format(format, std::forward<Args>(args)...));
}

/// Whether `b` broadcasts to `a`: sizes equal or 1, from the end.
bool broadcasts_to(const Shape& b, const Shape& a);

/// The rule of a kind. REQUIRES: the kind's number of inputs and parameters.
using ShapeRule = Rule(const OpAttributes& attributes, const OpShapes& shapes);

ShapeRule linear, linear_4bit, embedding, conv1d, conv2d, norm, group_norm, batch_norm, rotary_table, rotary, attention,
    max_pool2d, adaptive_avg_pool2d, router, experts, grouped_experts, dense_experts, cross_entropy,
    linear_cross_entropy, mse_loss;
ShapeRule reshape, transpose, slice, select, expand, split, cat, stack, set_slice, kv_cache, index, pad, softmax;
ShapeRule causal_conv1d, decay_rate, gated_delta_rule, state_space, gated_rms_norm;
ShapeRule reduction;  ///< Mean, Sum and Std.
ShapeRule gated;      ///< Two inputs of one shape, which the output has.
ShapeRule same;       ///< The shape of the input.
ShapeRule broadcast;  ///< The shape of the first input, to which the second broadcasts.
ShapeRule requested;  ///< The requested shape.
ShapeRule parameter;  ///< The shape of the parameter.

}  // namespace fsdp::op_shape_rules
