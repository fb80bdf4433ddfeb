#pragma once

// A piece of the autograd graph: some ops of one call between two places where the backward may stop. Incoming tensors
// enter the graph anew; only edges of the graph are stored, never a tensor, so only tensors that autograd itself has
// saved stay alive.

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <functional>
#include <utility>
#include <vector>

namespace fsdp::executor {

/// One edge through a piece's border, with the caller's number for its owner.
struct PieceEdge {
  torch::autograd::Edge edge;
  int id = 0;
};

struct AutogradPiece {
  std::vector<PieceEdge> outputs;     ///< Values that receive gradients from later pieces or the loss.
  std::vector<PieceEdge> inputs;      ///< Values of earlier pieces that need gradients.
  std::vector<PieceEdge> parameters;  ///< One for each use of a parameter.
};

/// A tensor with the same memory at the border of a piece: the graph begins here and requires a gradient. Unlike a
/// leaf, the graph does not keep it alive.
at::Tensor entering(const at::Tensor& tensor);
/// The same for a parameter, whose gradient counts as one from its creation.
at::Tensor entering_parameter(const at::Tensor& tensor);
/// The edge at which a tensor's gradient enters or leaves. REQUIRES: it requires a gradient.
torch::autograd::Edge edge_of(const at::Tensor& tensor);

struct PieceGradients {
  std::vector<std::pair<int, at::Tensor>> inputs;  ///< By id; those without one are left out.
  std::vector<std::pair<int, at::Tensor>> parameters;
};

/// Receives the gradient of a parameter as soon as it exists, perhaps on a thread of autograd. True if it has been
/// added, so that the piece drops it.
using TakeParameterGradient = std::function<bool(int id, const at::Tensor& gradient)>;

/// Runs the backward of a piece, and frees its saved tensors. `gradients` [num outputs] may contain undefined ones;
/// each is dropped as soon as it is used.
PieceGradients run_backward(AutogradPiece piece, std::vector<at::Tensor> gradients, const TakeParameterGradient& take);

}  // namespace fsdp::executor
