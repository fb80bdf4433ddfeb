// The gradients enter through our own node, which releases them; as arguments of the engine they would live to the end.
// They leave at border nodes, which pass them on. Captures of the engine would be referenced by its task as well, which
// on a GPU ends at an unknown time in another thread; and a gradient with a second owner must be copied.
//
// Source: torch/csrc/autograd/engine.cpp and graph_task.h, torch 2.11.

#include "executor/training/autograd_piece.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <iterator>
#include <memory>

#include "executor/memory/counting_allocator.h"

namespace fsdp::executor {

namespace {

class GradientSource final : public torch::autograd::Node {
 public:
  GradientSource(torch::autograd::edge_list next, std::vector<at::Tensor> gradients)
      : Node(std::move(next)), gradients_(std::move(gradients)) {
    add_input_metadata(at::empty({0}));  // The engine passes one tensor, which nobody reads.
  }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*nothing*/) override {
    return std::move(gradients_);
  }

  std::vector<at::Tensor> gradients_;
};

// An AccumulateGrad would keep the tensor whose gradient it makes.
class Border final : public torch::autograd::Node {
 public:
  /// Where the gradient goes, unless `take` accepts it. REQUIRES: both outlive the backward.
  void deliver_to(at::Tensor* gradient, int id, const TakeParameterGradient* take) {
    gradient_ = gradient;
    id_ = id;
    take_ = take;
  }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (gradient_ == nullptr || (take_ != nullptr && gradients[0].defined() && (*take_)(id_, gradients[0]))) return {};
    *gradient_ = std::move(gradients[0]);
    return {};
  }

  at::Tensor* gradient_ = nullptr;
  int id_ = -1;
  const TakeParameterGradient* take_ = nullptr;
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

PieceGradients run_backward(AutogradPiece piece, std::vector<at::Tensor> gradients, const TakeParameterGradient& take) {
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
  std::vector<PieceEdge> exits = std::move(piece.inputs);
  const std::size_t num_inputs = exits.size();
  exits.insert(exits.end(), std::make_move_iterator(piece.parameters.begin()),
               std::make_move_iterator(piece.parameters.end()));
  if (exits.empty()) return result;
  std::vector<at::Tensor> arrived(exits.size());
  for (std::size_t i = 0; i < exits.size(); ++i) {
    static_cast<Border&>(*exits[i].edge.function)
        .deliver_to(&arrived[i], exits[i].id, i < num_inputs ? nullptr : &take);
  }
  const auto source = std::make_shared<GradientSource>(std::move(entries), std::move(given));
  torch::autograd::Engine::get_default_engine().execute({torch::autograd::Edge(source, 0)}, {at::empty({0})},
                                                        /*keep_graph=*/false, /*create_graph=*/false,
                                                        /*accumulate_grad=*/true, {});
  for (std::size_t i = 0; i < arrived.size(); ++i) {
    if (!arrived[i].defined()) continue;
    auto& list = i < num_inputs ? result.inputs : result.parameters;
    list.emplace_back(exits[i].id, std::move(arrived[i]));
  }
  return result;
}

}  // namespace fsdp::executor
