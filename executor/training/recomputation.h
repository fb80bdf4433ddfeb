#pragma once

// Activation checkpointing as in torch.utils.checkpoint (non-reentrant): the graph of a call has a place for each
// tensor that autograd would save. When the backward needs the first of them, the call runs again, fills them all and
// stops as soon as the last one is filled.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "executor/training/kept_outputs.h"

namespace torch::autograd {
struct SavedVariableHooks;
}

namespace fsdp::executor {

/// Makes autograd use places. REQUIRES: no graph exists yet.
void install_recomputation();

/// Tensors that a checkpointed call keeps from its forward to its backward. After the forward only the places own it:
/// its inputs are freed with the last of them.
class Recomputation : public std::enable_shared_from_this<Recomputation> {
 public:
  using Tensors = std::vector<at::Tensor>;
  /// Runs the forward again, with a graph.
  using Rerun = std::function<void(const Tensors& inputs, KeptOutputs& kept)>;

  Recomputation(Tensors inputs, bool stops_early, Rerun rerun);

  KeptOutputs& kept() { return kept_; }

  /// During its lifetime each tensor that autograd saves in this thread gets a place. If null, autograd saves it.
  class Scope {
   public:
    explicit Scope(Recomputation* recomputation);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Recomputation* before_;
  };

  /// Autograd's hooks for a tensor that it saves.
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
