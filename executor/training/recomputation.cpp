// PyTorch lets the engine of the backward decide about each tensor that it saves. In the forward it stores a place
// without the tensor; in the recomputation, whose graph is unused, the tensors are put into those places in the same
// order. The stop is an exception thrown by the saving itself: if an op saves an input, its kernel does not run.
//
// Sources: torch/utils/checkpoint.py (_checkpoint_hook, _recomputation_hook, _CheckpointFrame),
// torch/csrc/autograd/saved_variable.cpp, torch 2.11.
//
// Not modeled: several backwards through one graph, and nested checkpointed calls.

#include "executor/training/recomputation.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <exception>
#include <utility>

namespace fsdp::executor {

namespace {

thread_local Recomputation* active = nullptr;

class Engine final : public torch::autograd::Engine {
 public:
  ~Engine() override { stop(); }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return active == nullptr ? nullptr : active->place();
  }
};

torch::autograd::Engine& engine() {
  static Engine one;
  return one;
}

}  // namespace

/// The place of a tensor of the graph, filled from its recomputation until its use.
struct Recomputation::Place {
  at::Tensor tensor;
};

/// All places are filled.
struct Recomputation::Stop : std::exception {};

class Recomputation::PlaceHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit PlaceHooks(std::shared_ptr<Recomputation> whole) : whole_(std::move(whole)) {}

  void call_pack_hook(const at::Tensor& /*tensor*/) override {
    place_ = std::make_shared<Place>();
    whole_->places_.push_back(place_);
  }
  at::Tensor call_unpack_hook() override { return whole_->take(*place_); }

 private:
  std::shared_ptr<Recomputation> whole_;
  std::shared_ptr<Place> place_;
};

class Recomputation::FillHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit FillHooks(Recomputation& whole) : whole_(whole) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    const c10::impl::ExcludeDispatchKeyGuard without_mode(c10::DispatchKey::Python);  // KeptOutputs::Mode
    tensor_ = tensor.requires_grad() ? tensor.variable_data() : tensor;
    whole_.fill(tensor_);
  }
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  Recomputation& whole_;
  at::Tensor tensor_;
};

void install_recomputation() {
  torch::autograd::set_default_engine_stub(&engine);
}

Recomputation::Recomputation(Tensors inputs, bool stops_early, Rerun rerun)
    : inputs_(std::move(inputs)), stops_early_(stops_early), rerun_(std::move(rerun)) {}

Recomputation::Scope::Scope(Recomputation* recomputation) : before_(std::exchange(active, recomputation)) {}

Recomputation::Scope::~Scope() {
  active = before_;
}

std::unique_ptr<torch::autograd::SavedVariableHooks> Recomputation::place() {
  if (is_running_) return std::make_unique<FillHooks>(*this);
  return std::make_unique<PlaceHooks>(shared_from_this());
}

void Recomputation::fill(const at::Tensor& tensor) {
  TORCH_CHECK(filled_ < places_.size(), "The recomputation saves more than the ", places_.size(),
              " tensors of the forward.");
  // If the node is gone already, its tensor is not needed.
  if (const std::shared_ptr<Place> place = places_[filled_].lock()) place->tensor = tensor;
  ++filled_;
  if (stops_early_ && filled_ == places_.size()) throw Stop();
}

at::Tensor Recomputation::take(Place& place) {
  if (!std::exchange(has_run_, true)) run();
  TORCH_CHECK(place.tensor.defined(), "A recomputed tensor is requested twice.");
  return std::exchange(place.tensor, {});
}

void Recomputation::run() {
  const Scope scope(this);
  is_running_ = true;
  kept_.begin_recomputation();
  try {
    rerun_(inputs_, kept_);
  } catch (const Stop&) {
    // This is the expected stop.
  }
  is_running_ = false;
  TORCH_CHECK(filled_ == places_.size(), "The recomputation saves ", filled_, " tensors, and the forward ",
              places_.size(), '.');
}

}  // namespace fsdp::executor
