#pragma once

// Activation checkpointing as torch.utils.checkpoint does it (non-reentrant): the graph of a call keeps a place for
// each tensor that autograd would save. The first of them that the backward asks for runs the call again, which fills
// them all and stops as soon as the last is filled.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "executor/training/kept_outputs.h"

namespace torch::autograd {
struct SavedVariableHooks;
}

namespace fsdp::executor {

/// Makes autograd ask for places. REQUIRES: no graph exists yet.
void install_recomputation();

/// Tensors that a checkpointed call keeps from its forward to its backward. The places own it, and nobody else after
/// the forward: its inputs go with the last of them.
class Recomputation : public std::enable_shared_from_this<Recomputation> {
 public:
  using Tensors = std::vector<at::Tensor>;
  /// Runs the forward again, with a graph.
  using Rerun = std::function<void(const Tensors& inputs, KeptOutputs& kept)>;

  Recomputation(Tensors inputs, bool stops_early, Rerun rerun);

  KeptOutputs& kept() { return kept_; }

  /// While it lives, what autograd saves in this thread gets a place. Null: autograd saves it.
  class Scope {
   public:
    explicit Scope(Recomputation* recomputation);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Recomputation* before_;
  };

  /// The hooks of autograd for a tensor that it saves.
  std::unique_ptr<torch::autograd::SavedVariableHooks> place();

 private:
  struct Place;
  class PlaceHooks;
  class FillHooks;
  struct Stop;

  void fill(const at::Tensor& tensor);
  at::Tensor take(Place& place);
  void run();

  Tensors inputs_;
  bool stops_early_;
  Rerun rerun_;
  KeptOutputs kept_;
  std::vector<std::weak_ptr<Place>> places_;
  std::size_t filled_ = 0;
  bool is_running_ = false;
  bool has_run_ = false;
};

}  // namespace fsdp::executor
