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
// the last micro-batch alone, where autograd has added up those before.
//
// Sources: deepspeed/runtime/zero/stage_1_and_2.py (__init__, reduce_independent_p_g_buckets_and_remove_grads,
// average_tensor, allreduce_bucket, copy_grads_in_partition, independent_gradient_partition_epilogue,
// get_grad_norm_direct, unscale_and_clip_grads, step), runtime/utils.py
// (all_gather_into_tensor_dp_groups), DeepSpeed 0.19.8.
//
// Not modeled: offload, fp16, streams, what check_zero_plan refuses; that a learning rate's schedule stands still where
// a step is left out.

#include "executor/training/zero_rank.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "executor/memory/counting_allocator.h"
#include "executor/memory/tensors.h"

namespace fsdp::executor {

ZeroRank::ZeroRank(const ModelIndex& index, const Plan& plan, const Layout& layout, std::vector<ParameterState*> states,
                   Group& group, CollectiveListener& listener)
    : ZeroEngine(index, plan, layout, std::move(states), group, listener),
      slices_(slices_of_rank(layout.zero, layout.rank)),
      is_in_part_(states_.size(), false) {
  for (const ZeroSlice& slice : slices_) is_in_part_[slice.parameter] = true;
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
      of_model.push_back(make(MemoryCategory::ShardedParam, gradients_->elements_of(p), dtype));
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

at::Tensor ZeroRank::own_part() const {
  return flat_.narrow(0, layout_.rank * buffer().part_elements(), buffer().part_elements());
}

void ZeroRank::begin_forward(bool has_trained) {
  if (std::exchange(is_computed_with_, true)) return;
  own_part().copy_(part_.local);
  if (!has_trained) part_.local.copy_(own_part());
  if (group_.size() > 1) group_.all_gather(flat_, own_part())->wait();
}

ZeroEngine::Place ZeroRank::place_of(const ParameterState& state) const {
  const bool has_any = state.layout.local_elements > 0;
  const std::int64_t first = layout_.rank * buffer().part_elements();
  return {0, has_any ? std::max<std::int64_t>(0, state.layout.flat_begin - first) : 0};
}

bool ZeroRank::run(const Instruction& step, const Schedule& schedule) {
  switch (step.kind) {
    case InstructionKind::CheckOverflow:
      return check_overflow(), true;
    case InstructionKind::GatherParameters:
      return gather(), true;
    case InstructionKind::ZeroGrad:
      return zero_grad(), true;
    default:
      return ZeroEngine::run(step, schedule);
  }
}

// ---- reductions ----

void ZeroRank::reduce(const GradientBucket& bucket, const at::Tensor& filled) {
  reduce_slices(bucket, filled);
  for (const int p : bucket.parameters) {
    if (is_in_part_[p]) keep(p, filled.narrow(0, gradients_->begin_of(p), gradients_->elements_of(p)));
    // Stage 1 forgets those of other ranks at the very end.
    if (is_in_part_[p] || !is_first_stage()) gradients_->drop_gradient(p);
  }
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
  if (!gradients_->finish()) return;
  keep_of_micro_batch();
  gradients_->drop();
  for (const int p : buffer().parameters) {
    gradients_->drop_gradient(p);
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
    sum_.push_back(kept.defined() ? kept : at::zeros({gradients_->elements_of(p)}, scalar_type(buffer().dtype)));
  }
  const std::int64_t padding = buffer().part_elements() - elements;
  if (padding > 0 && !padding_.defined()) padding_ = at::zeros({padding}, scalar_type(buffer().dtype));
}

// ---- the step ----

at::Tensor ZeroRank::piece_of(std::size_t slice) const {
  return sum_[slice].narrow(0, slices_[slice].begin, slices_[slice].elements);
}

void ZeroRank::check_overflow() {
  bool is_good = true;
  for (std::size_t i = 0; i < slices_.size(); ++i) is_good = is_good && is_finite(piece_of(i));
  const at::Tensor overflow = at::full({1}, is_good ? 0 : 1, c10::kByte);
  all_reduce(overflow, ReduceOp::Max);
  is_left_out_ = overflow.item<int>() != 0;
}

LaterNumber ZeroRank::take_norm() {
  if (is_left_out_) return {};
  const c10::AutoGradMode no_gradient(false);
  std::vector<at::Tensor> norms;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    norms.push_back(at::linalg_vector_norm(piece_of(i).to(c10::kDouble), 2.0));
  }
  squares_ = norms.empty() ? at::zeros({}, c10::kFloat) : at::stack(norms).pow(2.0).sum().to(c10::kFloat);
  all_reduce(squares_, ReduceOp::Sum);
  return combine_norms({squares_.pow(1.0 / 2.0)});
}

// One piece that is the whole part is taken as it is.
at::Tensor ZeroRank::flat_gradient() {
  std::vector<at::Tensor> pieces;
  pieces.reserve(slices_.size() + 1);
  for (std::size_t i = 0; i < slices_.size(); ++i) pieces.push_back(piece_of(i));
  if (padding_.defined()) pieces.push_back(padding_);
  const CategoryScope gradients(MemoryCategory::ShardedGrad);
  return (pieces.size() == 1 ? pieces.front() : at::cat(pieces)).to(part_.dtype);
}

void ZeroRank::update(const std::function<void()>& step) {
  if (is_left_out_) return;
  part_.grad = flat_gradient();
  sum_.clear();
  padding_ = at::Tensor();
  clip(part_.grad);
  step();
  part_.grad = at::Tensor();
  own_part().copy_(part_.local);
}

void ZeroRank::gather() {
  if (is_left_out_) return;
  told(CollectiveKind::AllGather, flat_);
  group_.all_gather(flat_, own_part())->wait();
}

void ZeroRank::zero_grad() {
  sum_.clear();
  padding_ = squares_ = at::Tensor();
  norm_before_ = std::move(norm_);
  is_left_out_ = false;
}

}  // namespace fsdp::executor
