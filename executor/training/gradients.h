#pragma once

// Adds gradients of one tensor as autograd does.

#include <ATen/core/Tensor.h>

namespace fsdp::executor {

/// Adds a gradient to a sum: in place if no other tensor shares the sum's memory, else into a new tensor. An undefined
/// sum becomes the gradient, an undefined gradient changes nothing.
/// Source: torch/csrc/autograd/input_buffer.cpp (accumulate), torch 2.11.
void add_gradient_to(at::Tensor& sum, at::Tensor gradient);

/// The gradient in a parameter's form: contiguous, in its own tensor.
/// Source: torch/csrc/autograd/functions/accumulate_grad.h (accumulateGrad), torch 2.11.
at::Tensor as_kept(at::Tensor gradient);

}  // namespace fsdp::executor
