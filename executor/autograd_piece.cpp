// The gradients enter through a node of our own, which gives them away, and not as arguments of the engine, which would
// hold them to the end. They leave at border nodes, which hold nothing.
//
// Source: torch/csrc/autograd/engine.h and graph_task.h (exec_info: with output edges given, the engine runs what leads
// to them and captures what arrives there), torch 2.11.

#include "executor/autograd_piece.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>

#include "executor/counting_allocator.h"

namespace fsdp::executor {

namespace {

class GradientSource final : public torch::autograd::Node {
 public:
  GradientSource(torch::autograd::edge_list next, std::vector<at::Tensor> gradients)
      : Node(std::move(next)), gradients_(std::move(gradients)) {
    add_input_metadata(at::empty({0}));  // The engine hands one tensor in, which nobody reads.
  }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*nothing*/) override {
    return std::move(gradients_);
  }

  std::vector<at::Tensor> gradients_;
};

// An AccumulateGrad would hold the tensor whose gradient it makes.
class Border final : public torch::autograd::Node {
 private:
  // The engine captures what arrives here and goes no further.
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*gradients*/) override { return {}; }
};

class CountAsGradient final : public torch::autograd::FunctionPreHook {
 public:
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    if (gradients[0].defined()) recount(gradients[0], MemoryCategory::UnshardedGrad);
    return gradients;
  }
};

at::Tensor enter(const at::Tensor& tensor, const std::shared_ptr<Border>& border) {
  at::Tensor same = tensor.variable_data();
  border->add_input_metadata(same);
  torch::autograd::impl::set_gradient_edge(same, {border, 0});
  return same;
}

}  // namespace

at::Tensor entering(const at::Tensor& tensor) {
  return enter(tensor, std::make_shared<Border>());
}

at::Tensor entering_parameter(const at::Tensor& tensor) {
  const auto border = std::make_shared<Border>();
  border->add_tensor_pre_hook(std::make_unique<CountAsGradient>());
  return enter(tensor, border);
}

torch::autograd::Edge edge_of(const at::Tensor& tensor) {
  return torch::autograd::impl::gradient_edge(tensor);
}

PieceGradients run_backward(AutogradPiece piece, std::vector<at::Tensor> gradients) {
  torch::autograd::edge_list entries;
  std::vector<at::Tensor> given;
  for (std::size_t i = 0; i < piece.outputs.size(); ++i) {
    if (!gradients[i].defined()) continue;
    entries.push_back(std::move(piece.outputs[i].edge));
    given.push_back(std::move(gradients[i]));
  }
  piece.outputs.clear();
  PieceGradients result;
  if (given.empty()) return result;
  torch::autograd::edge_list exits;
  for (const PieceEdge& each : piece.inputs) exits.push_back(each.edge);
  for (const PieceEdge& each : piece.parameters) exits.push_back(each.edge);
  if (exits.empty()) return result;
  const auto source = std::make_shared<GradientSource>(std::move(entries), std::move(given));
  torch::autograd::variable_list captured = torch::autograd::Engine::get_default_engine().execute(
      {torch::autograd::Edge(source, 0)}, {at::empty({0})}, /*keep_graph=*/false, /*create_graph=*/false,
      /*accumulate_grad=*/false, exits);
  for (std::size_t i = 0; i < captured.size(); ++i) {
    if (!captured[i].defined()) continue;
    const bool is_input = i < piece.inputs.size();
    auto& list = is_input ? result.inputs : result.parameters;
    const int id = is_input ? piece.inputs[i].id : piece.parameters[i - piece.inputs.size()].id;
    list.emplace_back(id, std::move(captured[i]));
  }
  return result;
}

}  // namespace fsdp::executor
