#pragma once

// Strides of tensors: whether a view can be made of memory as it lies, or must be copied first.

#include <optional>

#include "core/model/model.h"

namespace fsdp::simulator {

/// Strides of a tensor that lies in the order of its shape, in elements.
Shape dense_strides(const Shape& shape);

/// The strides of a tensor of `shape` and `strides` seen as `other`; none where it must be copied for that.
/// Source: aten/src/ATen/TensorUtils.cpp (computeStride_impl).
std::optional<Shape> strides_as(const Shape& shape, const Shape& strides, const Shape& other);

/// How the result of an elementwise function lies whose first operand is of `shape` and `strides`: without gaps, in the
/// operand's order of dimensions. Source: aten/src/ATen/TensorIterator.cpp (reorder_dimensions).
Shape strides_of_result(const Shape& shape, const Shape& strides);

/// True when the elements lie in the order of the shape without gaps: dimensions of one element do not matter.
bool is_dense(const Shape& shape, const Shape& strides);

}  // namespace fsdp::simulator
