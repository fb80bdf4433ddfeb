// Gradients, from autograd to the optimizer. The reduce-scatter's input contains for each rank the padded rows of all
// gradients one after the other, in the reduce dtype; its output, cast to the parameters' dtype if the two differ, is
// the sharded gradients.
//
// The average over all ranks: the reduction itself divides if the dtype has the range for the sum; fp16 is divided by
// about the root of the number of ranks before the reduction, and by the rest after it.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (foreach_reduce, _get_gradient_divide_factors),
// _fsdp_param.py (accumulate_unsharded_grad_if_needed), torch 2.11.

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "executor/memory/counting_allocator.h"
#include "executor/memory/tensors.h"
#include "executor/training/gradients.h"
#include "executor/training/sharded_unit.h"

namespace fsdp::executor {

namespace {

struct DivideFactors {
  double before = 1;
  double after = 1;
  ReduceOp op = ReduceOp::Average;
};

DivideFactors divide_factors(Dtype reduce_dtype, double ranks) {
  if (reduce_dtype == Dtype::Float32 || reduce_dtype == Dtype::BFloat16) return {};
  DivideFactors factors{.op = ReduceOp::Sum};
  while (std::fmod(ranks, factors.before) == 0 && ranks / factors.before > factors.before) factors.before *= 2;
  factors.after = ranks / factors.before;
  return factors;
}

}  // namespace

void ParameterState::add_new_gradient(at::Tensor gradient) {
  const CategoryScope gradients(MemoryCategory::UnshardedGrad);
  if (new_grad.defined()) {
    add_gradient_to(new_grad, std::move(gradient));
  } else {
    new_grad = as_kept(std::move(gradient));
  }
  recount(new_grad, MemoryCategory::UnshardedGrad);
  ++came;
}

void RunningUnit::add_gradient(int id, at::Tensor gradient) {
  ParameterState& state = parameter(id);
  state.add_new_gradient(std::move(gradient));
  if (!is_left_to_autograd(state) || state.came < state.uses) return;
  state.kept_grad += state.new_grad;
  state.new_grad = at::Tensor();
}

// If gradients are reduced in their own dtype, FSDP2 leaves the gradient of earlier micro-batches to autograd, which
// adds to it after all uses have theirs.
bool RunningUnit::is_left_to_autograd(const ParameterState& state) const {
  return state.kept_grad.defined() && unit_.reduce_dtype == unit_.param_dtype;
}

bool RunningUnit::add_to_earlier(int id, const at::Tensor& gradient) {
  ParameterState& state = parameter(id);
  if (!is_left_to_autograd(state) || state.uses != 1) return false;
  ++state.came;
  state.kept_grad += gradient;
  return true;
}

void RunningUnit::accumulate() {
  const CategoryScope gradients(MemoryCategory::UnshardedGrad);
  for (ParameterState& state : parameters_) {
    if (state.came > 0) state.uses = std::exchange(state.came, 0);
    if (!state.new_grad.defined()) continue;
    if (state.kept_grad.defined()) {
      state.kept_grad += state.new_grad;
    } else {
      state.kept_grad = state.new_grad.to(scalar_type(unit_.reduce_dtype));
    }
    state.new_grad = at::Tensor();
  }
}

void RunningUnit::reduce(const Instruction& step) {
  if (place_.streams != nullptr) return reduce_on_streams(step);
  at::Tensor last;
  const std::vector<int> reduced = copy_in_gradients(step.keeps_last_gradient ? &last : nullptr);
  const bool has_earlier = std::any_of(parameters_.begin(), parameters_.end(),
                                       [](const ParameterState& state) { return state.grad.defined(); });
  const bool is_gradient = unit_.reduce_dtype == unit_.original_dtype && !has_earlier;
  at::Tensor output;
  {
    const CategoryScope buffers(is_gradient ? MemoryCategory::ShardedGrad : MemoryCategory::ReduceScatter);
    output = at::empty({reduce_input_.numel() / world_}, reduce_input_.scalar_type());
    reduce_scatter(output);
    all_reduce(output);
  }
  view_gradients(std::move(output), reduced, step.keeps_all_reduce_output);
}

std::vector<int> RunningUnit::add_up_gradients() {
  std::vector<int> positions;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    ParameterState& state = parameters_[i];
    state.came = 0;
    if (state.kept_grad.defined() && state.new_grad.defined()) {
      state.kept_grad += state.new_grad;
      state.new_grad = at::Tensor();
    }
    if (state.has_gradient()) positions.push_back(static_cast<int>(i));
  }
  return positions;
}

std::int64_t RunningUnit::shard_elements(const std::vector<int>& positions) const {
  std::int64_t elements = 0;
  for (const int position : positions) elements += parameters_[position].layout.shard_elements;
  return elements;
}

std::vector<int> RunningUnit::copy_in_gradients(at::Tensor* last) {
  std::vector<int> reduced = add_up_gradients();
  const CategoryScope buffers(MemoryCategory::ReduceScatter);
  reduce_input_ = at::empty({world_ * shard_elements(reduced)}, scalar_type(unit_.reduce_dtype));
  const at::Tensor rows = reduce_input_.view({world_, -1});
  std::int64_t begin = 0;
  for (const int position : reduced) {
    ParameterState& state = parameters_[position];
    const at::Tensor gradient = (state.kept_grad.defined() ? state.kept_grad : state.new_grad).reshape(-1);
    const std::int64_t part = state.layout.shard_elements;
    const at::Tensor columns = rows.narrow(1, begin, part);
    const std::int64_t full = gradient.numel() / part;
    const std::int64_t rest = gradient.numel() - full * part;
    if (full > 0) columns.narrow(0, 0, full).copy_(gradient.narrow(0, 0, full * part).view({full, part}));
    if (full < world_) columns.narrow(0, full, world_ - full).zero_();
    if (rest > 0) columns.select(0, full).narrow(0, 0, rest).copy_(gradient.narrow(0, full * part, rest));
    begin += part;
  }
  for (const int position : reduced) {
    ParameterState& state = parameters_[position];
    if (last != nullptr && position == reduced.back())
      *last = state.kept_grad.defined() ? state.kept_grad : state.new_grad;
    state.new_grad = at::Tensor();
    state.kept_grad = at::Tensor();
  }
  return reduced;
}

void RunningUnit::reduce_scatter(const at::Tensor& output) {
  const DivideFactors factors = divide_factors(unit_.reduce_dtype, num_ranks());
  if (factors.before != 1) reduce_input_.div_(factors.before);
  if (world_ == 1) {
    output.copy_(reduce_input_);
    return;
  }
  listener_.called(index_,
                   {CollectiveKind::ReduceScatter, reduce_input_.scalar_type(), reduce_input_.numel(),
                    static_cast<std::int64_t>(reduce_input_.nbytes()), MeshDimension::Shard, groups_.shard->size()});
  groups_.shard->reduce_scatter(output, reduce_input_, factors.op)->wait();
}

void RunningUnit::all_reduce(const at::Tensor& output) {
  const DivideFactors factors = divide_factors(unit_.reduce_dtype, num_ranks());
  if (groups_.replicate != nullptr) {
    listener_.called(index_,
                     {CollectiveKind::AllReduce, output.scalar_type(), output.numel(),
                      static_cast<std::int64_t>(output.nbytes()), MeshDimension::Replicate, groups_.replicate->size()});
    groups_.replicate->all_reduce(output, factors.op)->wait();
  }
  if (factors.after != 1) output.div_(factors.after);
}

double RunningUnit::num_ranks() const {
  return static_cast<double>(world_ * (groups_.replicate != nullptr ? groups_.replicate->size() : 1));
}

// The host sums these gradients and must wait for its inputs; otherwise it continues.
at::Tensor RunningUnit::to_host(const at::Tensor& gradient, bool waits) {
  at::Tensor copy = gradient.to(c10::Device(c10::kCPU), /*non_blocking=*/!waits);
  if (!waits) {
    const CommunicationStreams& streams = *place_.streams;
    offloaded_ = StreamMark(groups_.replicate != nullptr ? streams.all_reduce : streams.reduce_scatter);
  }
  return copy;
}

void RunningUnit::view_gradients(at::Tensor gradient, const std::vector<int>& reduced, bool keeps_output) {
  const CategoryScope gradients(MemoryCategory::ShardedGrad);
  const auto own = scalar_type(unit_.original_dtype);
  if (keeps_output) all_reduce_output_ = gradient;
  if (gradient.scalar_type() == own) {
    recount(gradient, MemoryCategory::ShardedGrad);
  } else {
    const at::Tensor cast = gradient.to(own);
    if (!keeps_output) empty_storage(gradient);
    gradient = cast;
  }
  std::int64_t begin = 0;
  for (const int position : reduced) {
    ParameterState& state = parameters_[position];
    at::Tensor part = gradient.narrow(0, begin, state.layout.local_elements).view(state.local.sizes());
    if (is_on_host()) part = to_host(part, /*waits=*/state.grad.defined());
    if (state.grad.defined()) {
      state.grad += part;
    } else {
      state.grad = part;
    }
    begin += state.layout.shard_elements;
  }
}

void RunningUnit::free_reduce_input() {
  if (scattered_) std::exchange(scattered_, {})->hold(place_.streams->compute);
  empty_storage(reduce_input_);
  reduce_input_ = at::Tensor();
}

void RunningUnit::wait_for_reduction() {
  if (reduced_) std::exchange(reduced_, {})->hold(place_.streams->compute);
}

// FSDP2 keeps a reference to the output of the all-reduce; a gradient in the same memory stays alive.
void RunningUnit::free_all_reduce_output() {
  wait_for_reduction();
  const bool is_gradient = std::any_of(parameters_.begin(), parameters_.end(), [&](const ParameterState& state) {
    return state.grad.defined() && all_reduce_output_.defined() && state.grad.is_alias_of(all_reduce_output_);
  });
  if (!is_gradient) empty_storage(all_reduce_output_);
  all_reduce_output_ = at::Tensor();
}

void RunningUnit::zero_grad() {
  for (ParameterState& state : parameters_) {
    empty_storage(state.grad);
    state.grad = at::Tensor();
  }
}

}  // namespace fsdp::executor
