// A read: the rank's rows, cast to param_dtype and padded to as many as each rank has, are gathered; the copy is what
// the op computes with. Its gradient: cast to reduce_dtype, summed over the copies of the shards, then over the ranks
// of a shard group, of which each gets its rows, and cast back. Sums are sums: SimpleFSDP divides by nothing.
//
// Gradients of several reads of one parameter are added in new tensors: autograd adds DTensors in place nowhere but in
// what a parameter has from an earlier micro-batch.
//
// Sources: torchtitan/experiments/graph_trainer/simple_fsdp.py (ReplicateComputation), torchtitan 0.3.0;
// torch/distributed/tensor/_redistribute.py (Redistribute), placement_types.py (Shard._to_replicate_tensor,
// _reduce_shard_tensor, Partial._reduce_value), torch/csrc/autograd/input_buffer.cpp (accumulate), torch 2.11.

#include "executor/training/parameter_reads.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/plan/parameter_reads.h"
#include "executor/memory/counting_allocator.h"
#include "executor/memory/tensors.h"
#include "executor/training/gradients.h"
#include "executor/training/model_run.h"

namespace fsdp::executor {

namespace {

// Whether its memory goes with it. What a thread of Gloo still holds has to be emptied. A view holds what it is of.
bool is_nobody_elses(const at::Tensor& tensor) {
  const bool is_alone = tensor.use_count() == 1 && (!tensor.is_view() || tensor._base().use_count() == 1);
  return is_alone && tensor.storage().use_count() == (tensor.is_view() ? 2U : 1U);
}

at::Tensor padded(const at::Tensor& rows, std::int64_t elements) {
  at::Tensor part = at::zeros({elements}, rows.options());
  part.narrow(0, 0, rows.numel()).copy_(rows);
  return part;
}

}  // namespace

ParameterReads::ParameterReads(const ModelIndex& index, const Plan& plan, const Layout& layout,
                               std::vector<ParameterState*> states, UnitGroups groups, CollectiveListener& listener)
    : plan_(plan),
      layout_(layout),
      states_(std::move(states)),
      groups_(groups),
      listener_(listener),
      uses_(gradient_uses(index)) {}

void ParameterReads::told(CollectiveKind kind, const at::Tensor& whole, MeshDimension dimension, const Group& group) {
  listener_.called(-1, {kind, whole.scalar_type(), whole.numel(), static_cast<std::int64_t>(whole.nbytes()), dimension,
                        group.size()});
}

c10::ScalarType ParameterReads::reduce_dtype_of(const ParameterState& state) const {
  return scalar_type(read_reduce_dtype(plan_.mixed_precision, dtype_of(state.dtype)));
}

// ---- reads ----

void ParameterReads::gather(const Schedule& schedule, const Instruction& step) {
  for (const int parameter : schedule.groups[step.group].parameters) {
    const bool runs_again = step.phase == StepPhase::Backward;
    copies_.push_back({parameter, runs_again ? at::Tensor() : copy_of(*states_[parameter])});
  }
}

at::Tensor ParameterReads::read(int parameter) {
  const ParameterState& state = *states_[parameter];
  if (layout_.mesh.shard == 1) {
    if (state.gathered == state.dtype) return state.local;
    const CategoryScope category(MemoryCategory::UnshardedParam);
    return state.local.to(state.gathered);
  }
  if (copies_.empty() || copies_.front().parameter != parameter) {
    throw ScheduleBroken(fmt::format("{} is read, and was not gathered", state.parameter->name));
  }
  at::Tensor whole = std::move(copies_.front().whole);
  copies_.pop_front();
  return whole.defined() ? whole : copy_of(state);
}

at::Tensor ParameterReads::copy_of(const ParameterState& state) {
  const std::int64_t chunk = state.layout.shard_elements;
  at::Tensor own = state.local.view(-1);
  {
    const CategoryScope temporary(MemoryCategory::Activation);
    if (state.gathered != state.dtype) own = own.to(state.gathered);
  }
  at::Tensor part = own;
  if (own.numel() < chunk) {
    const CategoryScope temporary(MemoryCategory::Activation);
    part = padded(own, chunk);
  }
  const CategoryScope category(MemoryCategory::UnshardedParam);
  const at::Tensor output = at::empty({groups_.shard->size() * chunk}, part.options());
  told(CollectiveKind::AllGather, output, MeshDimension::Shard, *groups_.shard);
  groups_.shard->all_gather(output, part)->wait();
  return output.narrow(0, 0, state.layout.elements).view(state.parameter->shape);
}

// ---- gradients ----

void ParameterReads::add_gradient(int parameter, at::Tensor gradient) {
  arrived_.emplace_back(parameter, std::move(gradient));
}

bool ParameterReads::add_to_earlier(int parameter, const at::Tensor& gradient) {
  if (layout_.mesh.world_size() > 1) return false;
  const ParameterState& state = *states_[parameter];
  const c10::ScalarType to = reduce_dtype_of(state);
  const CategoryScope category(MemoryCategory::UnshardedGrad);
  at::Tensor taken = gradient.scalar_type() == to ? taken_over(gradient) : gradient.to(to);
  if (to != state.dtype) taken = taken.to(state.dtype);
  keep(parameter, std::move(taken));
  return true;
}

void ParameterReads::reduce(int bucket) {
  const int parameter = layout_.buckets.at(static_cast<std::size_t>(bucket)).parameters.front();
  const auto last = std::find_if(arrived_.rbegin(), arrived_.rend(),
                                 [&](const auto& gradient) { return gradient.first == parameter; });
  if (last == arrived_.rend()) {
    throw ScheduleBroken(
        fmt::format("the gradient of {} is reduced before it is there", states_[parameter]->parameter->name));
  }
  at::Tensor gradient = std::move(last->second);
  arrived_.erase(std::next(last).base());
  const bool goes = is_nobody_elses(gradient);
  at::Tensor sum = reduced(*states_[parameter], gradient);
  if (goes && !sum.is_alias_of(gradient)) empty_storage(gradient);
  gradient.reset();
  keep(parameter, std::move(sum));
}

at::Tensor ParameterReads::reduced(const ParameterState& state, const at::Tensor& gradient) {
  const bool is_scattered = groups_.shard->size() > 1;
  const c10::ScalarType to = reduce_dtype_of(state);
  const MemoryCategory last = to == state.dtype ? MemoryCategory::UnshardedGrad : MemoryCategory::Temp;
  const CategoryScope category(MemoryCategory::Temp);
  const at::Tensor cast = gradient.scalar_type() == to ? gradient : gradient.to(to);
  at::Tensor sum = groups_.replicate != nullptr ? summed(cast, is_scattered ? MemoryCategory::Temp : last) : cast;
  if (is_scattered) {
    const at::Tensor whole = std::exchange(sum, scattered(state, sum, last));
    if (groups_.replicate != nullptr) empty_storage(whole);
  }
  const CategoryScope gradients(MemoryCategory::UnshardedGrad);
  at::Tensor result = to == state.dtype ? sum : sum.to(state.dtype);
  recount(result, MemoryCategory::UnshardedGrad);
  if (!cast.is_alias_of(gradient)) empty_storage(cast);
  if (!result.is_alias_of(sum)) empty_storage(sum);
  return result;
}

// The functional all-reduce makes a new tensor.
at::Tensor ParameterReads::summed(const at::Tensor& gradient, MemoryCategory category) {
  const CategoryScope scope(category);
  at::Tensor sum = gradient.clone(at::MemoryFormat::Contiguous);
  told(CollectiveKind::AllReduce, sum, MeshDimension::Replicate, *groups_.replicate);
  groups_.replicate->all_reduce(sum, ReduceOp::Sum)->wait();
  return sum;
}

// The rank's rows of the sum, in memory for as many as the first rank has.
at::Tensor ParameterReads::scattered(const ParameterState& state, const at::Tensor& gradient, MemoryCategory category) {
  const std::int64_t ranks = groups_.shard->size();
  const std::int64_t chunk = state.layout.shard_elements;
  const at::Tensor flat = gradient.contiguous().view(-1);
  std::vector<at::Tensor> parts;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::int64_t begin = std::min(rank * chunk, flat.numel());
    const at::Tensor rows = flat.narrow(0, begin, std::min(chunk, flat.numel() - begin));
    parts.push_back(rows.numel() < chunk ? padded(rows, chunk) : rows);
  }
  const bool is_padded = flat.numel() < ranks * chunk;
  const at::Tensor input = is_padded ? at::cat(parts) : flat;
  const CategoryScope scope(category);
  const at::Tensor output = at::empty({chunk}, input.options());
  told(CollectiveKind::ReduceScatter, input, MeshDimension::Shard, *groups_.shard);
  groups_.shard->reduce_scatter(output, input, ReduceOp::Sum)->wait();
  if (!input.is_alias_of(gradient)) empty_storage(input);
  return output.narrow(0, 0, state.layout.local_elements).view(state.local.sizes());
}

// What AccumulateGrad does, once all reads have given theirs.
void ParameterReads::keep(int parameter, at::Tensor gradient) {
  ParameterState& state = *states_[parameter];
  if (state.new_grad.defined()) {
    at::Tensor sum = state.new_grad + gradient;
    if (layout_.mesh.world_size() > 1) {
      empty_storage(gradient);
      empty_storage(state.new_grad);
    }
    gradient = std::move(sum);
  }
  state.new_grad = std::move(gradient);
  recount(state.new_grad, MemoryCategory::UnshardedGrad);
  if (++state.came == uses_[parameter]) state.complete_gradient();
}

void ParameterReads::finish() {
  if (copies_.empty() && arrived_.empty()) return;
  const int parameter = copies_.empty() ? arrived_.front().first : copies_.front().parameter;
  throw ScheduleBroken(fmt::format("a backward ends, and {} of {} has not been taken",
                                   copies_.empty() ? "a gradient" : "a copy", states_[parameter]->parameter->name));
}

}  // namespace fsdp::executor
