#pragma once

// Between the files that hold the shape rules; everybody else includes core/op_shapes.h.

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "core/op_shapes.h"

namespace fsdp::op_shape_rules {

/// Output shapes, or the sentence that says why there are none.
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

/// The rule of a dense layer, a convolution, a norm, attention, experts or a loss; empty for other kinds.
/// REQUIRES: as many inputs and parameters as the kind has.
std::optional<Rule> of_layer(OpKind kind, const OpAttributes& attributes, const OpShapes& shapes);

/// The rule of an op that moves elements or reduces along a dimension; empty for other kinds.
/// REQUIRES: as many inputs as the kind has.
std::optional<Rule> of_view(OpKind kind, const OpAttributes& attributes, const OpShapes& shapes);

}  // namespace fsdp::op_shape_rules
