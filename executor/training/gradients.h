#pragma once

// How gradients of one tensor are added, as autograd does it, and how many there are.

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/model/model_index.h"

namespace fsdp::executor {

/// Adds a gradient to what is there: in place where nobody else sees the sum's memory, else into a new tensor. An
/// undefined sum becomes the gradient, an undefined gradient changes nothing.
/// Source: torch/csrc/autograd/input_buffer.cpp (accumulate), torch 2.11.
void add_gradient_to(at::Tensor& sum, at::Tensor gradient);

/// The gradient as a parameter keeps it: in the order of its elements, and nobody else's tensor.
/// Source: torch/csrc/autograd/functions/accumulate_grad.h (accumulateGrad), torch 2.11.
at::Tensor as_kept(at::Tensor gradient);

/// The same of a gradient that its holder gives up behind this call.
at::Tensor taken_over(const at::Tensor& gradient);

/// How many gradients of each parameter come in one backward. [num parameters]
std::vector<int> gradient_uses(const ModelIndex& index);

}  // namespace fsdp::executor
