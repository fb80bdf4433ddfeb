// A gradient that is complete is copied to its place and goes; one that has more elements than the buffer stays where
// it is. One that has no place has what is there reduced first. A gradient that is complete before its bucket is open
// waits: an op hands several out in an order of its own.
//
// Sources: deepspeed/runtime/zero/stage_1_and_2.py (reduce_independent_p_g_buckets_and_remove_grads), stage3.py
// (__add_grad_to_ipg_bucket), DeepSpeed 0.19.8.

#include "executor/training/gradient_buffer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "executor/memory/counting_allocator.h"
#include "executor/memory/tensors.h"
#include "executor/training/gradients.h"
#include "executor/training/model_run.h"

namespace fsdp::executor {

GradientBuffer::GradientBuffer(const ModelIndex& index, const Plan& plan, const Layout& layout,
                               std::vector<ParameterState*> states, Reduce reduce)
    : plan_(plan),
      layout_(layout),
      states_(std::move(states)),
      reduce_(std::move(reduce)),
      uses_(gradient_uses(index)),
      places_(states_.size()) {
  for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
    std::int64_t begin = 0;
    for (const int p : layout.buckets[b].parameters) {
      places_[p] = {static_cast<int>(b), begin};
      begin += elements_of(p);
    }
  }
}

std::int64_t GradientBuffer::elements_of(int parameter) const {
  return states_[parameter]->layout.elements;
}

void GradientBuffer::make() {
  if (!buffers_.empty()) return;
  const CategoryScope category(MemoryCategory::ReduceScatter);
  const bool is_double = plan_.zero.overlap_comm && !is_zero3(plan_);
  for (int i = 0; i < (is_double ? 2 : 1); ++i) {
    buffers_.push_back(at::empty({plan_.zero.reduce_bucket_size}, scalar_type(layout_.zero.dtype)));
  }
}

// Gloo may hold what it has summed for longer.
void GradientBuffer::drop() {
  for (const at::Tensor& each : buffers_) empty_storage(each);
  buffers_.clear();
}

void GradientBuffer::drop_gradient(int parameter) {
  at::Tensor& gradient = states_[parameter]->grad;
  if (gradient.defined()) empty_storage(gradient);
  gradient = at::Tensor();
}

// ---- on their way into the buffer ----

void GradientBuffer::add_gradient(int parameter, at::Tensor gradient) {
  ParameterState& state = *states_[parameter];
  state.add_new_gradient(std::move(gradient));
  if (state.came == uses_[parameter]) complete(state);
}

// Autograd hands a gradient over as soon as it is there; what waits for the end of a piece would live longer.
bool GradientBuffer::add_to_earlier(int parameter, const at::Tensor& gradient) {
  ParameterState& state = *states_[parameter];
  if (uses_[parameter] != 1) return false;
  make();
  const bool goes = reduces_ && !waits();
  if (goes && !state.grad.defined() && !is_large(parameter) && may_go(parameter)) {
    fill(parameter, gradient);
    fill_from_waiting();
    return true;
  }
  const CategoryScope gradients(MemoryCategory::UnshardedGrad);
  if (state.grad.defined()) {
    state.grad += gradient;
  } else {
    state.grad = taken_over(gradient);
  }
  if (goes) put(parameter);
  return true;
}

void GradientBuffer::complete(ParameterState& state) {
  state.complete_gradient();
  make();
  if (reduces_ && !waits()) put(state.layout.parameter);
}

bool GradientBuffer::may_go(int parameter) const {
  const bool is_full = num_filled_ == layout_.buckets[next_bucket_].parameters.size();
  return places_[parameter].bucket == static_cast<int>(next_bucket_) + (is_full ? 1 : 0);
}

void GradientBuffer::put(int parameter) {
  waiting_.push_back(parameter);
  fill_from_waiting();
}

void GradientBuffer::fill_from_waiting() {
  while (true) {
    const auto next = std::find_if(waiting_.begin(), waiting_.end(), [this](int other) { return may_go(other); });
    if (next == waiting_.end()) return;
    const int ready = *next;
    waiting_.erase(next);
    fill(ready, states_[ready]->grad);
  }
}

void GradientBuffer::fill(int parameter, const at::Tensor& gradient) {
  if (places_[parameter].bucket > static_cast<int>(next_bucket_)) reduce_filled();
  ++num_filled_;
  if (is_large(parameter)) return;
  buffers_.front().narrow(0, places_[parameter].begin, gradient.numel()).copy_(gradient.reshape({-1}));
  states_[parameter]->grad = at::Tensor();
}

// ---- reductions ----

void GradientBuffer::reduce(int bucket) {
  if (static_cast<std::size_t>(bucket) < next_bucket_) return;
  const GradientBucket& of = layout_.buckets[bucket];
  if (waits()) {
    for (const int p : of.parameters) put(p);
  }
  if (num_filled_ != of.parameters.size()) {
    throw ScheduleBroken(
        fmt::format("bucket {} is reduced with {} of {} gradients", bucket, num_filled_, of.parameters.size()));
  }
  reduce_filled();
}

void GradientBuffer::reduce_filled() {
  const GradientBucket& bucket = layout_.buckets[next_bucket_++];
  const int first = bucket.parameters.front();
  reduce_(bucket, is_large(first) ? states_[first]->grad.view({-1}) : buffers_.front().narrow(0, 0, bucket.elements));
  num_filled_ = 0;
  if (buffers_.size() > 1) std::swap(buffers_.front(), buffers_.back());
}

bool GradientBuffer::finish() {
  if (!std::exchange(reduces_, false)) return false;
  if (next_bucket_ != layout_.buckets.size()) throw ScheduleBroken("a backward ends before all buckets are reduced");
  next_bucket_ = 0;
  return true;
}

}  // namespace fsdp::executor
