#pragma once

// A piece of the autograd graph: some ops of one call between two places where the backward may stop. Tensors that come
// in enter the graph anew; only edges of the graph are kept, never a tensor, so only tensors that autograd itself has
// saved live.

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <functional>
#include <utility>
#include <vector>

namespace fsdp::executor {

/// One way through a piece's border, with the caller's number for what it belongs to.
struct PieceEdge {
  torch::autograd::Edge edge;
  int id = 0;
};

struct AutogradPiece {
  std::vector<PieceEdge> outputs;     ///< Values that later pieces or the loss give gradients.
  std::vector<PieceEdge> inputs;      ///< Values of earlier pieces that want gradients.
  std::vector<PieceEdge> parameters;  ///< One per use of a parameter.
};

/// A tensor with the same memory at the border of a piece: the graph begins here and asks for a gradient. Unlike a
/// leaf, the graph does not hold it.
at::Tensor entering(const at::Tensor& tensor);
/// The same for a parameter, whose gradient is counted as one as soon as it is there.
at::Tensor entering_parameter(const at::Tensor& tensor);
/// The edge at which a tensor's gradient enters or leaves. REQUIRES: it requires a gradient.
torch::autograd::Edge edge_of(const at::Tensor& tensor);

struct PieceGradients {
  std::vector<std::pair<int, at::Tensor>> inputs;  ///< By id; those that got none are left out.
  std::vector<std::pair<int, at::Tensor>> parameters;
};

/// Receives the gradient of a parameter as soon as it exists, perhaps on a thread of autograd. True if it has been
/// added, so that the piece drops it.
using TakeParameterGradient = std::function<bool(int id, const at::Tensor& gradient)>;

/// The backward of a piece; its saved tensors are freed. `gradients` [num outputs] may have undefined ones; each is
/// dropped as soon as it is used.
PieceGradients run_backward(AutogradPiece piece, std::vector<at::Tensor> gradients, const TakeParameterGradient& take);

}  // namespace fsdp::executor
