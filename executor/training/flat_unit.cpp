// A flat parameter of T elements has the original ones one behind the other, with gaps where they are aligned. Over N
// ranks each holds S = ceil(T / N) elements of it, the last ones padded.
//
//   gathered [N S] in the param dtype  ->  views in the shapes of the parameters, which the model computes with
//   gradients of the views             ->  one flat gradient [T]: zeros in gaps, and for what has none
//   [T] cast to the reduce dtype, padded to [N S], divided by f  ->  reduce-scatter [S], all-reduce over copies,
//                                          divided by R / f, cast to the original dtype, added to .grad
//
// over R ranks in all, where f is 2, 4, 8, ...: the first that is no smaller than R / f, or that R is no multiple of.
// NO_SHARD has an all-reduce of [T] in the place of the reduce-scatter: what is averaged again with each micro-batch
// that is reduced is the sum with the average of those before.
//
// AccumulateGrad adds the flat gradient to that of earlier micro-batches. Views that were made of a cast parameter have
// one for each pass; else passes share one, and their sum is added.
//
// Sources: torch/distributed/fsdp/_flat_param.py (_get_unflat_views_aligned, _use_sharded_grad_views,
// _reset_is_grad_none), _runtime_utils.py (_post_backward_hook, _reduce_grad, _reduce_grad_no_shard),
// torch/distributed/algorithms/_comm_hooks/default_hooks.py (_get_gradient_predivide_factor), torch 2.11.
//
// What a collective was called with goes through its storage: Gloo may hold it for longer.
//
// Not modeled: streams, CPU offload, communication hooks, keep_low_precision_grads.

#include "executor/training/flat_unit.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "executor/memory/counting_allocator.h"
#include "executor/memory/tensors.h"
#include "executor/training/gradients.h"
#include "executor/training/model_run.h"

namespace fsdp::executor {

namespace {

std::int64_t bytes_of_flat(const at::Tensor& flat) {
  return flat.numel() * static_cast<std::int64_t>(flat.element_size());
}

double predivide_factor(std::int64_t ranks) {
  std::int64_t factor = 1;
  while (ranks % factor == 0 && static_cast<double>(ranks) / static_cast<double>(factor) > static_cast<double>(factor))
    factor *= 2;
  return static_cast<double>(factor);
}

void divide_if_needed(const at::Tensor& tensor, double by) {
  if (by > 1) tensor.div_(by);
}

}  // namespace

std::int64_t first_element(const ShardedParameter& parameter, std::int64_t shard_rank) {
  if (parameter.local_elements == parameter.elements) return 0;
  if (parameter.flat_begin < 0) return shard_rank * parameter.shard_elements;
  return std::clamp<std::int64_t>(shard_rank * parameter.flat_shard - parameter.flat_begin, 0, parameter.elements);
}

FlatUnit::FlatUnit(int index, const ShardedUnit& unit, const Layout& layout, RunningUnit& states, UnitGroups groups,
                   CollectiveListener& listener)
    : index_(index), unit_(unit), layout_(layout), groups_(groups), listener_(listener), states_(states.parameters()) {
  if (states_.empty()) return;
  flat_.parameter = states_.front().parameter;
  flat_.layout = {.parameter = states_.front().layout.parameter,
                  .elements = unit.true_elements,
                  .shard_elements = unit.shard_elements,
                  .local_elements = unit.shard_elements,
                  .receives_gradient = unit.reduced_true_elements > 0};
  flat_.dtype = scalar_type(unit.original_dtype);
  flat_.gathered = scalar_type(unit.param_dtype);
  {
    const CategoryScope shards(MemoryCategory::ShardedParam);
    flat_.shard = at::zeros({unit.shard_elements}, flat_.dtype);
  }
  flat_.local = flat_.shard;
  if (is_sharded() || is_cast()) gathered_ = at::empty({unit.full_elements}, flat_.gathered);
  const at::Tensor& computed = gathered_.defined() ? gathered_ : flat_.shard;
  for (ParameterState& state : states_) {
    const ShardedParameter& of = state.layout;
    const Shape& shape = state.parameter->shape;
    state.whole = computed.narrow(0, of.flat_begin, of.elements).view(shape);
    const std::int64_t begin = std::max<std::int64_t>(0, of.flat_begin - layout.rank * unit.shard_elements);
    state.shard = flat_.shard.narrow(0, of.local_elements > 0 ? begin : 0, of.local_elements);
    state.local = is_sharded() ? state.shard : state.shard.view(shape);
  }
  if (gathered_.defined()) empty_storage(gathered_);
}

void FlatUnit::unshard() {
  if (!gathered_.defined()) return;
  // What is gathered has the values of before, which autograd may have saved.
  const at::AutoDispatchBelowADInplaceOrView without_version_counter;
  if (!is_sharded()) {
    const CategoryScope whole(MemoryCategory::UnshardedParam);
    fill_storage(gathered_, bytes_of_flat(gathered_));
    gathered_.copy_(flat_.shard);
    return;
  }
  at::Tensor source = flat_.shard;
  if (is_cast()) {
    const CategoryScope buffers(MemoryCategory::AllGather);
    source = source.to(flat_.gathered);
  }
  {
    const CategoryScope whole(MemoryCategory::UnshardedParam);
    fill_storage(gathered_, bytes_of_flat(gathered_));
  }
  const at::Tensor own = gathered_.narrow(0, layout_.rank * unit_.shard_elements, unit_.shard_elements);
  own.copy_(source);
  listener_.called(index_, {CollectiveKind::AllGather, gathered_.scalar_type(), gathered_.numel(),
                            bytes_of_flat(gathered_), MeshDimension::Shard, groups_.shard->size()});
  pending_ = groups_.shard->all_gather(gathered_, own);
}

void FlatUnit::wait_for_unshard() {
  if (pending_) std::exchange(pending_, nullptr)->wait();
  is_whole_ = true;
}

void FlatUnit::reshard() {
  if (pending_) std::exchange(pending_, nullptr)->wait();
  is_whole_ = false;
  if (gathered_.defined()) empty_storage(gathered_);
}

// ---- gradients ----

void FlatUnit::add_gradient(int parameter, at::Tensor gradient) {
  const CategoryScope gradients(MemoryCategory::UnshardedGrad);
  ParameterState& state = *std::find_if(states_.begin(), states_.end(),
                                        [&](const ParameterState& each) { return each.layout.parameter == parameter; });
  add_gradient_to(state.new_grad, std::move(gradient));
  recount(state.new_grad, MemoryCategory::UnshardedGrad);
}

at::Tensor FlatUnit::cat_gradients() {
  std::vector<at::Tensor> parts;
  std::int64_t end = 0;
  const auto fill_up_to = [&](std::int64_t begin) {
    const CategoryScope zeros(MemoryCategory::Temp);
    if (begin > end) parts.push_back(at::zeros({begin - end}, flat_.gathered));
  };
  for (const ParameterState& state : states_) {
    fill_up_to(state.layout.flat_begin);
    end = state.layout.flat_begin;
    if (!state.new_grad.defined()) fill_up_to(end + state.layout.elements);
    end += state.layout.elements;
    if (state.new_grad.defined()) parts.push_back(state.new_grad.reshape({-1}));
  }
  fill_up_to(unit_.true_elements);
  return at::cat(parts);
}

void FlatUnit::flatten() {
  const CategoryScope gradients(MemoryCategory::UnshardedGrad);
  const bool waits = !is_cast() && (is_earlier_ || is_grad_);
  at::Tensor& sum = waits ? added_ : unsharded_grad_;
  at::Tensor made = cat_gradients();
  for (ParameterState& state : states_) state.new_grad = at::Tensor();
  const bool is_last = is_last_pass();
  if (!sum.defined()) {
    sum = std::move(made);
    return;
  }
  sum += made;
  if (is_cast() && is_last) last_pass_ = std::move(made);
}

bool FlatUnit::is_last_pass() {
  const auto passes = std::count_if(unit_.windows.begin(), unit_.windows.end(),
                                    [](const Window& window) { return window.pre_backward >= 0; });
  if (++passes_ < passes) return false;
  passes_ = 0;
  return true;
}

void FlatUnit::add_up() {
  if (!unsharded_grad_.defined()) throw ScheduleBroken("a unit without gradients is to be reduced");
  if (added_.defined()) unsharded_grad_ += added_;
}

void FlatUnit::accumulate() {
  add_up();
  added_ = last_pass_ = at::Tensor();
  is_earlier_ = true;
}

// What the hook holds goes in end_reduction().
void FlatUnit::reduce() {
  add_up();
  at::Tensor input = unsharded_grad_;
  const c10::ScalarType reduced_in = scalar_type(unit_.reduce_dtype);
  if (input.scalar_type() != reduced_in) {
    const CategoryScope buffers(MemoryCategory::ReduceScatter);
    input = input.to(reduced_in);
    held_.push_back(unsharded_grad_);
  }
  is_sharded() ? scatter(std::move(input)) : reduce_whole(std::move(input));
  view_gradients();
}

void FlatUnit::sum_over(Group& group, MeshDimension dimension, const at::Tensor& tensor) {
  listener_.called(index_, {CollectiveKind::AllReduce, tensor.scalar_type(), tensor.numel(), bytes_of_flat(tensor),
                            dimension, group.size()});
  group.all_reduce(tensor, ReduceOp::Sum)->wait();
}

void FlatUnit::scatter(at::Tensor input) {
  unsharded_grad_ = at::Tensor();
  held_.push_back(input);
  const std::int64_t padding = unit_.full_elements - input.numel();
  if (padding > 0) {
    const CategoryScope buffers(MemoryCategory::ReduceScatter);
    input = at::constant_pad_nd(input, {0, padding});
    held_.push_back(input);
  }
  const std::int64_t ranks = layout_.mesh.shard * layout_.mesh.replicate;
  const double before = predivide_factor(ranks);
  divide_if_needed(input, before);
  const bool casts = input.scalar_type() != flat_.dtype;
  at::Tensor output;
  {
    const CategoryScope buffers(casts || sharded_grad_.defined() ? MemoryCategory::ReduceScatter
                                                                 : MemoryCategory::ShardedGrad);
    output = at::empty({unit_.shard_elements}, input.scalar_type());
    listener_.called(index_, {CollectiveKind::ReduceScatter, input.scalar_type(), input.numel(), bytes_of_flat(input),
                              MeshDimension::Shard, groups_.shard->size()});
    groups_.shard->reduce_scatter(output, input, ReduceOp::Sum)->wait();
  }
  if (groups_.replicate != nullptr) sum_over(*groups_.replicate, MeshDimension::Replicate, output);
  divide_if_needed(output, static_cast<double>(ranks) / before);
  if (casts) {
    const CategoryScope gradients(MemoryCategory::ShardedGrad);
    const at::Tensor cast = output.to(flat_.dtype);
    empty_storage(output);
    output = cast;
  }
  if (sharded_grad_.defined()) {
    sharded_grad_ += output;
    empty_storage(output);
  } else {
    sharded_grad_ = std::move(output);
  }
}

// A rank that is alone calls its all-reduce, too.
void FlatUnit::reduce_whole(at::Tensor input) {
  const std::int64_t ranks = layout_.mesh.replicate;
  const double before = predivide_factor(ranks);
  divide_if_needed(input, before);
  sum_over(groups_.replicate != nullptr ? *groups_.replicate : *groups_.shard, MeshDimension::Replicate, input);
  divide_if_needed(input, static_cast<double>(ranks) / before);
  if (input.scalar_type() != flat_.dtype) {
    const CategoryScope gradients(MemoryCategory::ShardedGrad);
    const at::Tensor cast = input.to(flat_.dtype);
    const bool is_copy = !input.is_same(unsharded_grad_);
    is_copy ? empty_storage(input) : held_.push_back(input);
    input = cast;
  }
  unsharded_grad_ = input;
  sharded_grad_ = std::move(input);
  is_grad_ = true;
}

// All trained parameters of the unit have a gradient then, also those that nothing has flowed to.
void FlatUnit::view_gradients() {
  flat_.grad = sharded_grad_;
  if (!has_views()) return;
  const std::int64_t first = layout_.rank * unit_.shard_elements;
  for (ParameterState& state : states_) {
    const ShardedParameter& of = state.layout;
    if (of.local_elements == 0 || !state.parameter->trainable) continue;
    const std::int64_t begin = std::max<std::int64_t>(0, of.flat_begin - first);
    state.grad = sharded_grad_.narrow(0, begin, of.local_elements).view(state.local.sizes());
  }
}

void FlatUnit::end_reduction() {
  for (const at::Tensor& tensor : held_) empty_storage(tensor);
  held_.clear();
  added_ = last_pass_ = at::Tensor();
  is_earlier_ = false;
}

void FlatUnit::zero_grad() {
  flat_.grad = at::Tensor();
  for (ParameterState& state : states_) state.grad = at::Tensor();
  if (has_views()) {
    is_zeroed_ = true;
  } else {
    drop_gradient();
  }
}

void FlatUnit::enter_forward() {
  if (std::exchange(is_zeroed_, false)) drop_gradient();
}

void FlatUnit::drop_gradient() {
  empty_storage(sharded_grad_);
  sharded_grad_ = at::Tensor();
  if (std::exchange(is_grad_, false)) unsharded_grad_ = at::Tensor();
}

}  // namespace fsdp::executor
