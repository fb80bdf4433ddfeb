// All trained parameters lie one behind the other in a flat buffer of the dtype that is computed in, and the module's
// are views of it. Rank k updates the k-th of N equal parts, in a copy of its own that may be wider.
//
//   gradient, complete -> its place in the buffer of reduce_bucket_size elements, or where it is, if it has more
//   the next has no place, or the backward is over -> the buffer / N, all-reduced. If it has pieces of several ranks
//                         they are copied into one more tensor, and of the sums each rank copies its own back
//   what reaches into the rank's part -> a tensor for all such gradients, whole: only the rank's pieces are sums then
//   end of a micro-batch -> added to those of the first one
//   step               -> the rank's pieces in one, cast to the copy's dtype, times 1 / max(1, (norm + 1e-6) / most)
//
// The norm is of the pieces, each in fp64; their squares are added in fp64, and over ranks in fp32. Stage 1 reduces in
// the last micro-batch alone, where autograd has added up those before. A gradient that is complete before its bucket
// is open waits: an op hands several out in an order of its own.
//
// Sources: deepspeed/runtime/zero/stage_1_and_2.py (__init__, reduce_independent_p_g_buckets_and_remove_grads,
// average_tensor, allreduce_bucket, copy_grads_in_partition, independent_gradient_partition_epilogue,
// get_grad_norm_direct, unscale_and_clip_grads, step), runtime/utils.py (combine_grad_norm_groups,
// all_gather_into_tensor_dp_groups), DeepSpeed 0.19.8.
//
// The divided and the scaled loss take their bytes, and are not computed with: the gradient begins as 1 / N.
//
// Not modeled: offload, fp16, streams, what check_zero_plan refuses; that a learning rate's schedule stands still where
// a step is left out.

#include "executor/training/zero_rank.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "executor/memory/counting_allocator.h"
#include "executor/memory/tensors.h"
#include "executor/training/gradients.h"
#include "executor/training/model_run.h"

namespace fsdp::executor {

namespace {

bool is_finite(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  return std::isfinite(tensor.amax().item<double>()) && std::isfinite(tensor.amin().item<double>());
}

}  // namespace

ZeroRank::ZeroRank(const ModelIndex& index, const Plan& plan, const Layout& layout, std::vector<ParameterState*> states,
                   Group& group, CollectiveListener& listener)
    : index_(index),
      plan_(plan),
      layout_(layout),
      states_(std::move(states)),
      group_(group),
      listener_(listener),
      uses_(gradient_uses(index)),
      slices_(slices_of_rank(layout.zero, layout.rank)),
      is_in_part_(states_.size(), false),
      places_(states_.size()) {
  for (const ZeroSlice& slice : slices_) is_in_part_[slice.parameter] = true;
  for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
    std::int64_t begin = 0;
    for (const int p : layout.buckets[b].parameters) {
      places_[p] = {static_cast<int>(b), begin};
      begin += elements_of(p);
    }
  }
  part_.parameter = states_[buffer().parameters.front()]->parameter;
  part_.layout = {.parameter = buffer().parameters.front(),
                  .elements = buffer().elements,
                  .shard_elements = buffer().part_elements(),
                  .local_elements = buffer().part_elements()};
  part_.dtype = scalar_type(zero_master_dtype(plan));
  make_memory();
  place_parameters();
}

void ZeroRank::make_memory() {
  const auto make = [](MemoryCategory as, std::int64_t elements, c10::ScalarType dtype) {
    const CategoryScope category(as);
    return at::zeros({elements}, dtype);
  };
  const c10::ScalarType dtype = scalar_type(buffer().dtype);
  const std::int64_t part = buffer().part_elements();
  {
    std::vector<at::Tensor> of_model;
    for (const int p : buffer().parameters)
      of_model.push_back(make(MemoryCategory::ShardedParam, elements_of(p), dtype));
    const at::Tensor padding = make(MemoryCategory::Temp, buffer().elements - buffer().begins.back(), dtype);
    flat_ = make(MemoryCategory::UnshardedParam, buffer().elements, dtype);
  }
  {
    at::Tensor own;
    if (dtype != part_.dtype) own = make(MemoryCategory::Temp, part, dtype);
    part_.shard = make(MemoryCategory::ShardedParam, part, part_.dtype);
  }
  part_.local = part_.shard;
  // The optimizer is given a gradient once.
  make(MemoryCategory::ShardedGrad, part, part_.dtype);
}

void ZeroRank::place_parameters() {
  const std::int64_t first = layout_.rank * buffer().part_elements();
  for (std::size_t i = 0; i < buffer().parameters.size(); ++i) {
    ParameterState& state = *states_[buffer().parameters[i]];
    ShardedParameter& of = state.layout;
    of.flat_begin = buffer().begins[i];
    of.flat_shard = buffer().part_elements();
    of.local_elements = of.local_elements_of(layout_.rank);
    state.dtype = part_.dtype;
    state.whole = flat_.narrow(0, of.flat_begin, of.elements).view(state.parameter->shape);
    const std::int64_t begin = of.local_elements > 0 ? std::max<std::int64_t>(0, of.flat_begin - first) : 0;
    state.shard = part_.shard.narrow(0, begin, of.local_elements);
    state.local = state.shard;
  }
}

std::int64_t ZeroRank::elements_of(int parameter) const {
  return num_elements(index_.model->parameters[parameter].shape);
}

bool ZeroRank::is_large(int parameter) const {
  return elements_of(parameter) > plan_.zero.reduce_bucket_size;
}

at::Tensor ZeroRank::own_part() const {
  return flat_.narrow(0, layout_.rank * buffer().part_elements(), buffer().part_elements());
}

void ZeroRank::begin_forward(bool has_trained) {
  if (std::exchange(is_computed_with_, true)) return;
  own_part().copy_(part_.local);
  if (!has_trained) part_.local.copy_(own_part());
  if (group_.size() > 1) group_.all_gather(flat_, own_part())->wait();
}

void ZeroRank::begin_backward() {
  if (!losses_.empty()) return;
  const CategoryScope category(MemoryCategory::Temp);
  for (int i = 0; i < 2; ++i) losses_.push_back(at::zeros({}, c10::kFloat));
}

// ---- gradients on their way into the buffer ----

void ZeroRank::add_gradient(int parameter, at::Tensor gradient) {
  ParameterState& state = *states_[parameter];
  const CategoryScope gradients(MemoryCategory::UnshardedGrad);
  if (state.new_grad.defined()) {
    add_gradient_to(state.new_grad, std::move(gradient));
  } else {
    state.new_grad = as_kept(std::move(gradient));
  }
  recount(state.new_grad, MemoryCategory::UnshardedGrad);
  if (++state.came == uses_[parameter]) complete(state);
}

// Autograd hands a gradient over as soon as it is there; what waits for the end of a piece would live longer.
bool ZeroRank::add_to_earlier(int parameter, const at::Tensor& gradient) {
  ParameterState& state = *states_[parameter];
  if (uses_[parameter] != 1) return false;
  make_buffers();
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

void ZeroRank::complete(ParameterState& state) {
  state.came = 0;
  if (state.grad.defined()) {
    state.grad += state.new_grad;
  } else {
    state.grad = state.new_grad;
  }
  state.new_grad = at::Tensor();
  make_buffers();
  if (reduces_ && !waits()) put(state.layout.parameter);
}

void ZeroRank::make_buffers() {
  if (!buffers_.empty()) return;
  const CategoryScope category(MemoryCategory::ReduceScatter);
  for (int i = 0; i < (plan_.zero.overlap_comm ? 2 : 1); ++i) {
    buffers_.push_back(at::empty({plan_.zero.reduce_bucket_size}, scalar_type(buffer().dtype)));
  }
}

bool ZeroRank::may_go(int parameter) const {
  const bool is_full = num_filled_ == layout_.buckets[next_bucket_].parameters.size();
  return places_[parameter].bucket == static_cast<int>(next_bucket_) || is_full;
}

void ZeroRank::put(int parameter) {
  waiting_.push_back(parameter);
  fill_from_waiting();
}

void ZeroRank::fill_from_waiting() {
  while (true) {
    const auto next = std::find_if(waiting_.begin(), waiting_.end(), [this](int other) { return may_go(other); });
    if (next == waiting_.end()) return;
    const int ready = *next;
    waiting_.erase(next);
    fill(ready, states_[ready]->grad);
  }
}

void ZeroRank::fill(int parameter, const at::Tensor& gradient) {
  if (places_[parameter].bucket > static_cast<int>(next_bucket_)) reduce_bucket();
  ++num_filled_;
  if (is_large(parameter)) return;
  buffers_.front().narrow(0, places_[parameter].begin, gradient.numel()).copy_(gradient.reshape({-1}));
  states_[parameter]->grad = at::Tensor();
}

// ---- reductions ----

void ZeroRank::reduce(int bucket) {
  if (static_cast<std::size_t>(bucket) < next_bucket_) return;
  const GradientBucket& of = layout_.buckets[bucket];
  if (waits()) {
    for (const int p : of.parameters) put(p);
  }
  if (num_filled_ != of.parameters.size()) {
    throw ScheduleBroken(
        fmt::format("bucket {} is reduced with {} of {} gradients", bucket, num_filled_, of.parameters.size()));
  }
  reduce_bucket();
}

void ZeroRank::reduce_bucket() {
  const GradientBucket& bucket = layout_.buckets[next_bucket_++];
  const bool is_alone = is_large(bucket.parameters.front());
  const at::Tensor sum =
      is_alone ? states_[bucket.parameters.front()]->grad.view({-1}) : buffers_.front().narrow(0, 0, bucket.elements);
  reduce_slices(bucket, sum);
  for (const int p : bucket.parameters) {
    if (is_in_part_[p]) keep(p, sum.narrow(0, places_[p].begin, elements_of(p)));
    // Stage 1 forgets those of other ranks at the very end.
    if (is_in_part_[p] || !is_first_stage()) drop_gradient(p);
  }
  num_filled_ = 0;
  if (buffers_.size() > 1) std::swap(buffers_.front(), buffers_.back());
}

// Gloo may hold what it has summed for longer.
void ZeroRank::drop_gradient(int parameter) {
  at::Tensor& gradient = states_[parameter]->grad;
  if (gradient.defined()) empty_storage(gradient);
  gradient = at::Tensor();
}

void ZeroRank::reduce_slices(const GradientBucket& bucket, const at::Tensor& sum) {
  sum.div_(static_cast<double>(buffer().ranks));
  std::vector<BucketSlice> slices = slices_of(bucket, buffer());
  auto next = slices.begin();
  std::int64_t begin = 0;
  for (const ZeroReduction& sent : reductions_of(bucket, layout_, plan_)) {
    const at::Tensor pieces = sum.narrow(0, begin, sent.elements);
    begin += sent.elements;
    at::Tensor reduced = pieces;
    if (sent.slices > 1) {
      const CategoryScope category(MemoryCategory::ReduceScatter);
      reduced = pieces.clone();
    }
    all_reduce(reduced, ReduceOp::Sum);
    std::int64_t at = 0;
    for (int i = 0; i < sent.slices; ++i, ++next) {
      const bool is_own = next->rank == layout_.rank && sent.slices > 1;
      if (is_own) pieces.narrow(0, at, next->elements).copy_(reduced.narrow(0, at, next->elements));
      at += next->elements;
    }
    if (sent.slices > 1) empty_storage(reduced);
  }
}

void ZeroRank::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  listener_.called(-1, {CollectiveKind::AllReduce, tensor.scalar_type(), tensor.numel(),
                        static_cast<std::int64_t>(tensor.nbytes()), MeshDimension::Shard, group_.size()});
  group_.all_reduce(tensor, op)->wait();
}

// One tensor for the gradients of all parameters that reach into the rank's part.
void ZeroRank::keep(int parameter, const at::Tensor& reduced) {
  if (!kept_.defined()) {
    const CategoryScope gradients(MemoryCategory::ShardedGrad);
    kept_ = at::empty({touched_elements(buffer(), layout_.rank)}, reduced.scalar_type());
    kept_end_ = 0;
  }
  const at::Tensor place = kept_.narrow(0, kept_end_, reduced.numel());
  kept_end_ += reduced.numel();
  place.copy_(reduced);
  states_[parameter]->kept_grad = place;
}

void ZeroRank::finish_backward() {
  losses_.clear();
  if (!std::exchange(reduces_, false)) return;
  if (next_bucket_ != layout_.buckets.size()) throw ScheduleBroken("a backward ends before all buckets are reduced");
  next_bucket_ = 0;
  keep_of_micro_batch();
  for (const at::Tensor& each : buffers_) empty_storage(each);
  buffers_.clear();
  for (const int p : buffer().parameters) {
    drop_gradient(p);
    states_[p]->kept_grad = at::Tensor();
  }
  kept_ = at::Tensor();
}

void ZeroRank::keep_of_micro_batch() {
  const CategoryScope gradients(MemoryCategory::ShardedGrad);
  const bool is_first = sum_.empty();
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    elements += slices_[i].elements;
    const int p = slices_[i].parameter;
    const at::Tensor& kept = states_[p]->kept_grad;
    if (!is_first) {
      if (kept.defined()) sum_[i] += kept;
      continue;
    }
    sum_.push_back(kept.defined() ? kept : at::zeros({elements_of(p)}, scalar_type(buffer().dtype)));
  }
  const std::int64_t padding = buffer().part_elements() - elements;
  if (padding > 0 && !padding_.defined()) padding_ = at::zeros({padding}, scalar_type(buffer().dtype));
}

// ---- the step ----

void ZeroRank::check_overflow() {
  const bool is_good = std::all_of(sum_.begin(), sum_.end(), [](const at::Tensor& sum) { return is_finite(sum); });
  const at::Tensor overflow = at::full({1}, is_good ? 0 : 1, c10::kByte);
  all_reduce(overflow, ReduceOp::Max);
  is_left_out_ = overflow.item<int>() != 0;
}

LaterNumber ZeroRank::take_norm() {
  if (is_left_out_) return {};
  const c10::AutoGradMode no_gradient(false);
  std::vector<at::Tensor> norms;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const at::Tensor piece = sum_[i].narrow(0, slices_[i].begin, slices_[i].elements);
    norms.push_back(at::linalg_vector_norm(piece.to(c10::kDouble), 2.0));
  }
  squares_ = norms.empty() ? at::zeros({}, c10::kFloat) : at::stack(norms).pow(2.0).sum().to(c10::kFloat);
  all_reduce(squares_, ReduceOp::Sum);
  norm_ = at::linalg_vector_norm(at::stack({squares_.pow(1.0 / 2.0)}), 2.0);
  if (!is_finite(norm_)) is_left_out_ = true;
  return plan_.optimizer.clip_grad_norm ? LaterNumber(norm_) : LaterNumber();
}

// One piece that is the whole part is taken as it is.
at::Tensor ZeroRank::flat_gradient() {
  std::vector<at::Tensor> pieces;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    pieces.push_back(sum_[i].narrow(0, slices_[i].begin, slices_[i].elements));
  }
  if (padding_.defined()) pieces.push_back(padding_);
  const CategoryScope gradients(MemoryCategory::ShardedGrad);
  return (pieces.size() == 1 ? pieces.front() : at::cat(pieces)).to(part_.dtype);
}

bool ZeroRank::begin_step() {
  if (is_left_out_) return false;
  part_.grad = flat_gradient();
  sum_.clear();
  padding_ = at::Tensor();
  if (!plan_.optimizer.clip_grad_norm) return true;
  const at::Tensor above = ((norm_ + 1e-6) / *plan_.optimizer.clip_grad_norm).clamp_min(1.0);
  part_.grad.mul_(at::reciprocal(above));
  return true;
}

void ZeroRank::end_step() {
  part_.grad = at::Tensor();
  own_part().copy_(part_.local);
}

void ZeroRank::gather() {
  if (is_left_out_) return;
  listener_.called(-1, {CollectiveKind::AllGather, flat_.scalar_type(), flat_.numel(),
                        static_cast<std::int64_t>(flat_.nbytes()), MeshDimension::Shard, group_.size()});
  group_.all_gather(flat_, own_part())->wait();
}

void ZeroRank::zero_grad() {
  sum_.clear();
  padding_ = squares_ = at::Tensor();
  norm_before_ = std::move(norm_);
  is_left_out_ = false;
}

}  // namespace fsdp::executor
