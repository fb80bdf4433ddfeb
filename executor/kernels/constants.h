#pragma once

// Numbers in a model's computation that are neither parameters nor data: positions, masks, buckets, and the values of
// buffers. Each follows from the model spec (core/model/op.h: ConstantFill, RotaryFrequencies).

#include <ATen/core/Tensor.h>

#include "core/model/model.h"

namespace fsdp::executor {

/// The lowest finite number of a dtype, which hides a position from attention.
double lowest_number(c10::ScalarType dtype);

/// The tensor of a `constant`. Its making needs no device memory beyond the tensor itself.
at::Tensor make_constant(const OpAttributes& attributes, const Shape& shape, c10::ScalarType dtype, c10::Device device);

/// The inverse frequencies of a rotary table, fp32 [head_dim / 2], on the host. Reads `head_dim` and `rotary`.
at::Tensor rotary_frequencies(const OpAttributes& attributes);

/// First values of a buffer, on the host: the inverse frequencies of the rotary table of its module, ones for running
/// variances, otherwise zeros.
at::Tensor make_buffer(const Model& model, const Buffer& buffer);

}  // namespace fsdp::executor
