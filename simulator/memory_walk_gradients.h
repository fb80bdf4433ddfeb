#pragma once

// The part of the memory walk that knows the gradients of unsharded parameters, from their first bytes to the
// reduce-scatter that takes them in.
//
// In one backward a second gradient of a parameter is added to the first by autograd's input buffer: in place when the
// first is no view, else the sum is a new tensor. A later micro-batch adds in place.
//
// Sources: torch/csrc/autograd/input_buffer.cpp, torch/distributed/fsdp/_fully_shard/_fsdp_param.py
// (accumulate_unsharded_grad_if_needed, to_accumulated_grad_if_needed), torch 2.11.

#include <cstdint>
#include <vector>

#include "simulator/memory_walk.h"

namespace fsdp::simulator {

template <class Sink>
class GradientWalk {
 public:
  GradientWalk(const WalkInput& input, Sink& sink)
      : in_(input), sink_(sink), params_(input.layout->unit_of_parameter.size()) {}

  /// A gradient is written,
  void make(int p, std::int64_t bytes, bool is_view) {
    State& state = params_[at(p)];
    state.bytes = bytes;
    state.next_is_view = is_view;
    sink_.alloc(in_.ids->of(state.has_grad ? ParameterTensor::SecondGrad : state.grad, p), bytes, MemoryStream::Compute,
                MemoryCategory::UnshardedGrad);
  }

  /// and reaches its parameter.
  void add(int p) {
    State& state = params_[at(p)];
    if (!state.has_grad) {
      state.has_grad = true;
      state.is_view = state.next_is_view;
      state.backward = backward_;
      return;
    }
    if (state.is_view && state.backward == backward_) {
      const ParameterTensor sum =
          state.grad == ParameterTensor::Grad ? ParameterTensor::SummedGrad : ParameterTensor::Grad;
      sink_.alloc(in_.ids->of(sum, p), state.bytes, MemoryStream::Compute, MemoryCategory::UnshardedGrad);
      sink_.free(in_.ids->of(state.grad, p));
      state.grad = sum;
      state.is_view = false;
    }
    sink_.free(in_.ids->of(ParameterTensor::SecondGrad, p));
  }

  /// A micro-batch without reduction is over: the gradient is kept in the reduce dtype.
  void accumulate(const ShardedUnit& unit, const ShardedParameter& p) {
    State& state = params_[at(p.parameter)];
    if (!state.has_grad) return;
    if (state.has_accumulated) return drop_grad(p.parameter);
    if (unit.reduce_dtype == unit.param_dtype) return;
    sink_.alloc(in_.ids->of(ParameterTensor::AccumulatedGrad, p.parameter),
                p.elements * size_of(unit.reduce_dtype).count(), MemoryStream::Compute, MemoryCategory::UnshardedGrad);
    drop_grad(p.parameter);
    state.has_accumulated = true;
  }

  /// Before a reduction: what earlier micro-batches have kept takes in the new gradient.
  void add_to_accumulated(int p) {
    if (params_[at(p)].has_grad && params_[at(p)].has_accumulated) drop_grad(p);
  }

  bool has_any(int p) const { return params_[at(p)].has_grad || params_[at(p)].has_accumulated; }

  void drop(int p) {
    State& state = params_[at(p)];
    if (state.has_accumulated) sink_.free(in_.ids->of(ParameterTensor::AccumulatedGrad, p));
    state.has_accumulated = false;
    if (state.has_grad) drop_grad(p);
  }

  void end_backward() { ++backward_; }

 private:
  struct State {
    ParameterTensor grad = ParameterTensor::Grad;  // Which tensor is the gradient, where there is one.
    std::int64_t bytes = 0;
    int backward = 0;  // In which the gradient came.
    bool has_grad = false;
    bool is_view = false;
    bool next_is_view = false;
    bool has_accumulated = false;
  };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  void drop_grad(int p) {
    sink_.free(in_.ids->of(params_[at(p)].grad, p));
    params_[at(p)].has_grad = false;
    params_[at(p)].grad = ParameterTensor::Grad;
  }

  const WalkInput& in_;
  Sink& sink_;
  std::vector<State> params_;  // [num parameters]
  int backward_ = 0;
};

}  // namespace fsdp::simulator
