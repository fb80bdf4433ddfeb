#pragma once

// The part of the memory walk for the gradients of unsharded parameters, from their first bytes to the reduce-scatter.
//
// In one backward, autograd's input buffer adds a second gradient of a parameter to the first: in place if the first is
// no view; otherwise the sum is a new tensor. A later micro-batch adds in place.
//
// If gradients are cast as they come (torch 2.15), autograd casts each before AccumulateGrad to the parameter's
// grad_dtype: the reduce dtype, unless that is wider and the gradient is reduced in this backward, or added to an
// existing one.
//
// Sources: torch/csrc/autograd/input_buffer.cpp, torch/distributed/fsdp/_fully_shard/_fsdp_param.py
// (accumulate_unsharded_grad_if_needed, to_accumulated_grad_if_needed), torch 2.11; _fsdp_param_group.py
// (_set_unsharded_grad_dtypes), torch 2.15.

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "simulator/memory/memory_walk.h"

namespace fsdp::simulator {

template <class Sink>
class GradientWalk {
 public:
  GradientWalk(const WalkInput& input, Sink& sink)
      : in_(input), sink_(sink), params_(input.layout->unit_of_parameter.size()) {
    if (in_.plan->ddp.gradient_as_bucket_view && !in_.layout->buckets.empty()) count_uses();
    casts_early_ = in_.plan->runtime.quirks.casts_gradients_as_they_come && !in_.layout->is_replicated &&
                   !in_.layout->has_flat_units();
  }

  /// Sets a function to call with each parameter whose gradient a backward has completed.
  void on_complete(std::function<void(int)> hook) {
    on_complete_ = std::move(hook);
    count_uses();
    uses_so_far_.assign(num_uses_.size(), 0);
  }

  /// Sets a function to call, instead of a free, with gradients that the stream of the sums has used.
  void on_use_elsewhere(std::function<void(int tensor)> free_used) { free_used_ = std::move(free_used); }

  /// Frees a whole gradient that a reduction on another stream has used.
  void drop_used(int p, const std::function<void(int tensor)>& free) {
    State& state = params_[p];
    if (state.has_grad) drop_grad(p, free);
  }

  /// Writes a gradient.
  void make(int p, std::int64_t bytes, bool is_view) {
    State& state = params_[p];
    state.bytes = bytes;
    state.next_is_view = is_view;
    sink_.alloc(in_.ids->of(tensor_of_next_use(state), p), bytes, MemoryStream::Compute, MemoryCategory::UnshardedGrad);
  }

  /// The gradient reaches its parameter.
  void add(int p) {
    casts_early_&& cast_bytes(p) > 0 ? cast_and_add(p) : add_to_gradient(p);
    if (num_uses_.empty() || (!goes_to_bucket_ && !on_complete_)) return;
    if (++uses_so_far_[p] < num_uses_[p]) return;
    // A bucket has the complete gradient, which is now a view of it.
    if (goes_to_bucket_) drop(p);
    if (on_complete_) on_complete_(p);
  }

  /// DDP: gradients go into buckets until the end of the backward.
  void prepare_reduce() {
    if (num_uses_.empty() || on_complete_) return;
    goes_to_bucket_ = true;
    uses_so_far_.assign(num_uses_.size(), 0);
  }

  /// Frees gradients that no reduction uses, in the order of the parameters.
  void drop_all() {
    for (std::size_t p = 0; p < params_.size(); ++p) drop(static_cast<int>(p));
  }

  /// A micro-batch without reduction is over: keeps the gradient in the reduce dtype.
  void accumulate(const ShardedUnit& unit, const ShardedParameter& p) {
    State& state = params_[p.parameter];
    if (!state.has_grad || casts_early_) return;
    if (state.has_accumulated) return drop_grad(p.parameter);
    if (unit.reduce_dtype == unit.param_dtype) return;
    sink_.alloc(in_.ids->of(ParameterTensor::AccumulatedGrad, p.parameter),
                p.elements * size_of(unit.reduce_dtype).count(), MemoryStream::Compute, MemoryCategory::UnshardedGrad);
    drop_grad(p.parameter);
    state.has_accumulated = true;
  }

  /// Before a reduction: adds the new gradient to that of earlier micro-batches.
  void add_to_accumulated(int p) {
    if (params_[p].has_grad && params_[p].has_accumulated) drop_grad(p);
  }

  bool has_any(int p) const { return params_[p].has_grad || params_[p].has_accumulated; }

  void drop(int p) {
    State& state = params_[p];
    if (state.has_accumulated) sink_.free(in_.ids->of(ParameterTensor::AccumulatedGrad, p));
    state.has_accumulated = false;
    if (state.has_grad) drop_grad(p);
  }

  void end_backward() {
    ++backward_;
    goes_to_bucket_ = false;
    if (on_complete_) uses_so_far_.assign(num_uses_.size(), 0);
  }

 private:
  // The node that sums them runs on the stream on which FSDP1 made its views.
  MemoryStream stream_of_sums() const {
    return in_.layout->has_flat_units() ? MemoryStream::AllGatherCopyIn : MemoryStream::Compute;
  }

  struct State {
    ParameterTensor grad = ParameterTensor::Grad;  // The tensor that is the gradient, if there is one.
    std::int64_t bytes = 0;
    ParameterTensor waiting = ParameterTensor::WaitingGrad;
    int backward = 0;  // The backward that made the gradient.
    int uses = 0;      // Uses in that backward.
    int waits = 0;     // Gradients of this backward that wait to be added to it.
    bool has_grad = false;
    bool is_view = false;
    bool next_is_view = false;
    bool waiting_is_view = false;
    bool has_accumulated = false;
  };

  // Counts how often a backward adds to each gradient.
  void count_uses() {
    num_uses_.assign(params_.size(), 0);
    for (std::size_t c = 0; c < in_.tapes->size(); ++c) {
      for (const TapeEvent& event : (*in_.tapes)[c]->backward) {
        if (event.kind != TapeEvent::Kind::AddParamGrad) continue;
        ++num_uses_[in_.index->model->calls[c].parameters[event.storage]];
      }
    }
  }

  void add_to_gradient(int p) {
    State& state = params_[p];
    if (state.has_grad && state.backward != backward_) return add_to_earlier(p);
    ++state.uses;
    if (!state.has_grad) {
      state.has_grad = true;
      state.is_view = state.next_is_view;
      state.backward = backward_;
      return;
    }
    add_in_buffer(p, state.grad, ParameterTensor::Grad, ParameterTensor::SummedGrad, state.is_view);
  }

  // For a gradient that is cast when it comes; 0 if it is not.
  std::int64_t cast_bytes(int p) const {
    const ShardedUnit& unit = in_.layout->units[in_.layout->unit_of_parameter[p]];
    if (unit.reduce_dtype == unit.param_dtype) return 0;
    const State& state = params_[p];
    const bool widens = size_of(unit.reduce_dtype) > size_of(unit.param_dtype);
    const bool is_reduced =
        in_.plan->sync_every_micro_batch || backward_ % in_.plan->accumulation + 1 == in_.plan->accumulation;
    const bool adds_to_earlier = state.has_grad && state.backward != backward_;
    if (widens && (is_reduced || adds_to_earlier)) return 0;
    return size_of(unit.reduce_dtype).count() * num_elements(in_.index->model->parameters[p].shape);
  }

  void cast_and_add(int p) {
    State& state = params_[p];
    const std::int64_t bytes = cast_bytes(p);
    const int written = in_.ids->of(tensor_of_next_use(state), p);
    const bool is_first = !state.has_grad;
    const int cast = in_.ids->of(is_first ? ParameterTensor::AccumulatedGrad : ParameterTensor::SummedGrad, p);
    sink_.alloc(cast, bytes, MemoryStream::Compute, MemoryCategory::UnshardedGrad);
    free_used(written);
    if (!is_first) return sink_.free(cast);  // Added to the existing one.
    ++state.uses;
    state.has_grad = true;
    state.is_view = false;
    state.backward = backward_;
    state.grad = ParameterTensor::AccumulatedGrad;
  }

  ParameterTensor tensor_of_next_use(const State& state) const {
    if (!state.has_grad) return ParameterTensor::Grad;
    const bool is_first = state.backward != backward_ && state.waits == 0;
    return is_first ? state.waiting : ParameterTensor::SecondGrad;
  }

  // Adds the second gradient of a use to the first, which is in one of two tensors.
  void add_in_buffer(int p, ParameterTensor& held, ParameterTensor one, ParameterTensor other, bool& is_view) {
    if (is_view) {
      const ParameterTensor sum = held == one ? other : one;
      sink_.alloc(in_.ids->of(sum, p), params_[p].bytes, stream_of_sums(), MemoryCategory::UnshardedGrad);
      free_used(in_.ids->of(held, p));
      held = sum;
      is_view = false;
    }
    free_used(in_.ids->of(ParameterTensor::SecondGrad, p));
  }

  // Adds the sum of all uses at once to the gradient of an earlier backward.
  void add_to_earlier(int p) {
    State& state = params_[p];
    if (state.waits++ == 0) {
      state.waiting_is_view = state.next_is_view;
    } else {
      add_in_buffer(p, state.waiting, ParameterTensor::WaitingGrad, ParameterTensor::SummedWaitingGrad,
                    state.waiting_is_view);
    }
    if (state.waits < state.uses) return;
    sink_.free(in_.ids->of(state.waiting, p));
    state.waiting = ParameterTensor::WaitingGrad;
    state.waits = 0;
  }

  void free_used(int tensor) { free_used_ ? free_used_(tensor) : sink_.free(tensor); }

  void drop_grad(int p) {
    const ParameterTensor grad = params_[p].grad;
    const bool is_sum = grad == ParameterTensor::SummedGrad || grad == ParameterTensor::SummedWaitingGrad;
    drop_grad(p, [&](int tensor) { is_sum ? sink_.free(tensor) : free_used(tensor); });
  }

  template <class Free>
  void drop_grad(int p, const Free& free) {
    State& state = params_[p];
    free(in_.ids->of(state.grad, p));
    // Reduced between two uses: the waiting sum becomes the gradient of this backward.
    const bool goes_on = state.waits > 0;
    state.has_grad = goes_on;
    state.grad = goes_on ? state.waiting : ParameterTensor::Grad;
    state.is_view = state.waiting_is_view;
    state.backward = backward_;
    state.uses = std::exchange(state.waits, 0);
    state.waiting = ParameterTensor::WaitingGrad;
  }

  const WalkInput& in_;
  Sink& sink_;
  std::vector<State> params_;  // [num parameters]
  int backward_ = 0;
  std::vector<int> num_uses_;  // [num parameters] Empty if completion of gradients does not matter.
  std::vector<int> uses_so_far_;
  bool goes_to_bucket_ = false;
  bool casts_early_ = false;
  std::function<void(int)> on_complete_;
  std::function<void(int)> free_used_;
};

}  // namespace fsdp::simulator
