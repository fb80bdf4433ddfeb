#pragma once

// Strides of tensors: whether an existing memory order allows a view, or needs a copy first.

#include <optional>

#include "core/model/model.h"

namespace fsdp::simulator {

/// Strides of a contiguous tensor, in elements.
Shape dense_strides(const Shape& shape);

/// The strides of a tensor of `shape` and `strides` seen as `other`. nullopt if that needs a copy.
/// Source: aten/src/ATen/TensorUtils.cpp (computeStride_impl).
std::optional<Shape> strides_as(const Shape& shape, const Shape& strides, const Shape& other);

/// The strides of the result of an elementwise function whose first operand has `shape` and `strides`: without gaps, in
/// the operand's order of dimensions. Source: aten/src/ATen/TensorIterator.cpp (reorder_dimensions).
Shape strides_of_result(const Shape& shape, const Shape& strides);

/// True if the tensor is contiguous: dimensions of one element do not matter.
bool is_dense(const Shape& shape, const Shape& strides);

}  // namespace fsdp::simulator
