#pragma once

// How gradients of one tensor are added, as autograd does it.

#include <ATen/core/Tensor.h>

namespace fsdp::executor {

/// Adds a gradient to a sum: in place if no other tensor shares the sum's memory, else into a new tensor. An undefined
/// sum becomes the gradient, an undefined gradient changes nothing.
/// Source: torch/csrc/autograd/input_buffer.cpp (accumulate), torch 2.11.
void add_gradient_to(at::Tensor& sum, at::Tensor gradient);

/// The gradient as a parameter keeps it: contiguous, in a tensor of its own.
/// Source: torch/csrc/autograd/functions/accumulate_grad.h (accumulateGrad), torch 2.11.
at::Tensor as_kept(at::Tensor gradient);

}  // namespace fsdp::executor
