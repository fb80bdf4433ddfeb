// Each parameter is cut into N equal parts, the last one padded. A rank has its parts of the trained ones in one
// tensor, in the dtype that is computed in, and a copy of each sub-group of them that may be wider.
//
//   gather of one parameter   N parts into its memory
//   of several                each rank's parts behind one another; from there each parameter is copied together
//   bucket                    per rank its parts of all gradients, sorted as deepspeed.zero.Init made the parameters,
//                             / N, reduce-scattered; the parts are copied into the gradients' tensor, or in later
//                             micro-batches added
//   step                      a sub-group at a time: its gradients cast to the copy's dtype, clipped; the copy updated,
//                             and copied into the parts
//
// The norm is of each sub-group: of its parts in fp64, whose squares are added over the ranks in fp64.
//
// Sources: deepspeed/runtime/zero/partition_parameters.py (_partition_param, all_gather_coalesced,
// AllGatherCoalescedHandle.wait), stage3.py (__avg_scatter_grads, partition_grads, get_grad_norm_direct,
// _prepare_fp32_grad_for_sub_group, unscale_and_clip_grads), runtime/comm/coalesced_collectives.py, DeepSpeed 0.19.8;
// torch/utils/checkpoint.py (_recomputation_hook), torch 2.11.
//
// What is gathered has the values of before, which autograd may have saved: its version must not change. What autograd
// saves in a forward is the parameter itself, which is empty once it is let go. What it saves as a checkpointed block
// runs again is a detached tensor, which keeps the gathered memory until its node has run, and the next gather takes
// new memory.
//
// Not modeled: offload, second copies (hpZ), fp16, streams; that a learning rate's schedule stands still where a step
// is left out.

#include "executor/training/zero3_rank.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "core/plan/zero_partition.h"
#include "executor/memory/counting_allocator.h"
#include "executor/memory/tensors.h"

namespace fsdp::executor {

namespace {

at::Tensor zeros(MemoryCategory as, std::int64_t elements, c10::ScalarType dtype) {
  const CategoryScope category(as);
  return at::zeros({elements}, dtype);
}

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

bool is_of_parameters(InstructionKind kind) {
  return kind == InstructionKind::FetchParameters || kind == InstructionKind::WaitForParameters ||
         kind == InstructionKind::DropFetched || kind == InstructionKind::ReleaseParameters ||
         kind == InstructionKind::LimitGathers || kind == InstructionKind::GatherParameters;
}

void make_resident(const at::Tensor& storage) {
  if (is_resident(storage)) return;
  const CategoryScope whole(MemoryCategory::UnshardedParam);
  fill_storage(storage, bytes_of(storage));
}

}  // namespace

// ---- the engine ----

Zero3Rank::Zero3Rank(const ModelIndex& index, const Plan& plan, const Layout& layout,
                     std::vector<ParameterState*> states, Group& group, CollectiveListener& listener)
    : ZeroEngine(index, plan, layout, std::move(states), group, listener),
      place_of_(states_.size(), -1),
      parts_(states_.size()),
      read_again_(states_.size()) {
  for (std::size_t i = 0; i < buffer().parameters.size(); ++i) place_of_[buffer().parameters[i]] = static_cast<int>(i);
  make_model();
  for (at::Tensor& flag : flags_) flag = zeros(MemoryCategory::Temp, 1, c10::kByte);
  make_copies();
  gradients_->make();
  grads_ = zeros(MemoryCategory::ShardedGrad, buffer().begins.back(), scalar_type(buffer().dtype));
  // Each is gathered once, for its hook.
  for (const int p : buffer().parameters) {
    zeros(MemoryCategory::UnshardedParam, padded_elements(p, layout_, *index_.model), scalar_type(buffer().dtype));
  }
}

std::int64_t Zero3Rank::part_elements(int parameter) const {
  return padded_elements(parameter, layout_, *index_.model) / buffer().ranks;
}

at::Tensor Zero3Rank::range_of(const at::Tensor& parts, std::size_t place) const {
  return parts.narrow(0, buffer().begins[place], buffer().begins[place + 1] - buffer().begins[place]);
}

// What lies below a module, then its own parameters: as the runner's script makes them.
void Zero3Rank::make_module(int module, std::vector<bool>& is_made) {
  for (const int child : index_.model->modules[module].children) make_module(child, is_made);
  for (const int p : index_.model->modules[module].parameters) {
    if (is_made[p]) continue;
    is_made[p] = true;
    made_as_[p] = static_cast<int>(std::count(is_made.begin(), is_made.end(), true));
    // Whole in fp32 first, then cast, then cut.
    const c10::ScalarType dtype = scalar_type(layout_.parameter_dtype[p]);
    const std::int64_t elements = gradients_->elements_of(p);
    at::Tensor made = zeros(MemoryCategory::Temp, elements, c10::kFloat);
    if (dtype != c10::kFloat) made = zeros(MemoryCategory::ShardedParam, elements, dtype);
    parts_[p] = zeros(MemoryCategory::ShardedParam, part_elements(p), dtype);
  }
}

void Zero3Rank::make_model() {
  made_as_.assign(states_.size(), 0);
  std::vector<bool> is_made(states_.size(), false);
  make_module(0, is_made);
  for (const int p : buffer().parameters) parts_[p] = at::Tensor();
  trained_parts_ = zeros(MemoryCategory::ShardedParam, buffer().begins.back(), scalar_type(buffer().dtype));
  for (std::size_t i = 0; i < buffer().parameters.size(); ++i) {
    parts_[buffer().parameters[i]] = range_of(trained_parts_, i);
  }
  for (std::size_t p = 0; p < states_.size(); ++p) {
    ParameterState& state = *states_[p];
    ShardedParameter& of = state.layout;
    of.flat_begin = 0;
    of.flat_shard = part_elements(static_cast<int>(p));
    of.local_elements = of.local_elements_of(layout_.rank);
    state.storage = parts_[p];
    if (is_cut()) {
      const CategoryScope whole(MemoryCategory::UnshardedParam);
      state.storage = at::empty({buffer().ranks * of.flat_shard}, parts_[p].scalar_type());
    }
    state.whole = state.storage.narrow(0, 0, of.elements).view(state.parameter->shape);
    if (is_cut()) empty_storage(state.storage);
    state.shard = parts_[p].narrow(0, 0, of.local_elements);
    state.local = state.shard;
  }
}

void Zero3Rank::make_copies() {
  for (std::size_t g = 0; g < num_groups(); ++g) {
    const std::int64_t elements = begin_of_group(g + 1) - begin_of_group(g);
    const int first = buffer().parameters[buffer().group_begins[g]];
    ParameterState copy;
    copy.parameter = states_[first]->parameter;
    copy.layout = {.parameter = first, .elements = elements, .shard_elements = elements, .local_elements = elements};
    copy.dtype = scalar_type(zero_master_dtype(plan_));
    copy.shard = zeros(MemoryCategory::ShardedParam, elements, copy.dtype);
    copy.local = copy.shard;
    groups_.push_back(std::move(copy));
    for (std::size_t i = buffer().group_begins[g]; i < buffer().group_begins[g + 1]; ++i) {
      ParameterState& state = *states_[buffer().parameters[i]];
      state.dtype = groups_.back().dtype;
      state.shard = groups_.back().shard.narrow(0, buffer().begins[i] - begin_of_group(g), state.layout.local_elements);
      state.local = state.shard;
    }
  }
}

std::vector<ParameterState*> Zero3Rank::updated() {
  std::vector<ParameterState*> updated;
  for (ParameterState& group : groups_) updated.push_back(&group);
  return updated;
}

ZeroEngine::Place Zero3Rank::place_of(const ParameterState& state) const {
  const auto place = static_cast<std::size_t>(place_of_[state.layout.parameter]);
  const auto end = std::upper_bound(buffer().group_begins.begin(), buffer().group_begins.end(), place);
  const auto group = static_cast<std::size_t>(end - buffer().group_begins.begin()) - 1;
  return {group, buffer().begins[place] - begin_of_group(group)};
}

void Zero3Rank::begin_forward(bool has_trained) {
  if (std::exchange(is_computed_with_, true)) return;
  for (std::size_t g = 0; g < num_groups(); ++g) {
    const at::Tensor parts = trained_parts_.narrow(0, begin_of_group(g), groups_[g].shard.numel());
    parts.copy_(groups_[g].shard);
    if (!has_trained) groups_[g].shard.copy_(parts);
  }
}

// ---- parameters ----

bool Zero3Rank::run(const Instruction& step, const Schedule& schedule) {
  micro_batch_ = step.micro_batch;
  // A checkpointed block runs again when its backward asks for the first tensor. What the schedule has of it in front
  // of that backward waits, and what comes meanwhile comes behind.
  const bool is_behind = !waiting_.empty() && is_of_parameters(step.kind);
  if (is_behind || step.rerun_op >= 0) {
    waiting_.emplace_back(&step, &schedule);
    return true;
  }
  // A block whose backward asks for nothing does not run again.
  if (step.kind == InstructionKind::FinishReduce) has_run_again();
  return move(step, schedule);
}

void Zero3Rank::do_next() {
  const auto [step, schedule] = waiting_.front();
  waiting_.pop_front();
  move(*step, *schedule);
}

void Zero3Rank::rerun_comes_to(int op) {
  runs_again_ = true;
  const auto is_due = [&](const Instruction& step) { return step.rerun_op >= 0 && step.rerun_op <= op; };
  while (!waiting_.empty() && is_due(*waiting_.front().first)) do_next();
}

void Zero3Rank::has_run_again() {
  while (!waiting_.empty()) do_next();
  runs_again_ = false;
}

at::Tensor Zero3Rank::read(int parameter) {
  const at::Tensor& whole = states_[parameter]->whole;
  if (!runs_again_ || !is_cut()) return whole;
  at::Tensor& again = read_again_[parameter];
  if (!again.defined()) again = borrowed(whole);
  return again.variable_data();
}

bool Zero3Rank::move(const Instruction& step, const Schedule& schedule) {
  const auto parameters = [&]() -> const std::vector<int>& { return schedule.groups[step.group].parameters; };
  switch (step.kind) {
    case InstructionKind::FetchParameters:
      return fetch(step.group, parameters()), true;
    case InstructionKind::WaitForParameters:
      return wait_for(step.group, parameters()), true;
    case InstructionKind::DropFetched:
      empty_storage(gathers_[step.group].output);
      return gathers_.erase(step.group), true;
    case InstructionKind::ReleaseParameters:
      for (const int p : parameters()) release(p);
      return true;
    case InstructionKind::GatherParameters:
      for (const int p : parameters()) {
        if (is_cut()) told(CollectiveKind::AllGather, states_[p]->storage);
        gather_alone(p);
      }
      return true;
    case InstructionKind::LimitGathers:
      return true;  // Without streams the host is never ahead.
    case InstructionKind::ZeroGrad:
      is_left_out_ = false;
      return true;
    default:
      return ZeroEngine::run(step, schedule);
  }
}

void Zero3Rank::fetch(int group, const std::vector<int>& parameters) {
  Gather& gather = gathers_[group];
  if (parameters.size() == 1) {
    const at::Tensor& storage = states_[parameters.front()]->storage;
    make_resident(storage);
    told(CollectiveKind::AllGather, storage);
    const at::AutoDispatchBelowADInplaceOrView without_version_counter;
    gather.pending = group_.all_gather(storage, parts_[parameters.front()]);
    return;
  }
  std::int64_t elements = 0;
  for (const int p : parameters) elements += part_elements(p);
  const CategoryScope category(MemoryCategory::AllGather);
  gather.output = at::empty({buffer().ranks * elements}, parts_[parameters.front()].scalar_type());
  const at::Tensor own = gather.output.narrow(0, layout_.rank * elements, elements);
  std::int64_t begin = 0;
  for (const int p : parameters) {
    own.narrow(0, begin, part_elements(p)).copy_(parts_[p]);
    begin += part_elements(p);
  }
  told(CollectiveKind::AllGather, gather.output);
  gather.pending = group_.all_gather(gather.output, own);
}

void Zero3Rank::wait_for(int group, const std::vector<int>& parameters) {
  Gather& gather = gathers_.at(group);
  std::exchange(gather.pending, nullptr)->wait();
  if (!gather.output.defined()) {
    gathers_.erase(group);
    return;
  }
  const at::Tensor rows = gather.output.view({buffer().ranks, -1});
  std::int64_t begin = 0;
  for (const int p : parameters) {
    const at::Tensor& storage = states_[p]->storage;
    make_resident(storage);
    refill(storage.view({buffer().ranks, -1}), rows.narrow(1, begin, part_elements(p)));
    begin += part_elements(p);
  }
}

void Zero3Rank::gather_alone(int parameter) {
  if (!is_cut()) return;
  const at::Tensor& storage = states_[parameter]->storage;
  make_resident(storage);
  const at::AutoDispatchBelowADInplaceOrView without_version_counter;
  group_.all_gather(storage, parts_[parameter])->wait();
}

void Zero3Rank::release(int parameter) {
  if (!is_cut()) return;
  const at::Tensor& storage = states_[parameter]->storage;
  const at::Tensor again = std::exchange(read_again_[parameter], {});
  const bool is_saved = again.defined() && again.storage().use_count() > 1;
  is_saved ? hand_over_storage(storage, again) : empty_storage(storage);
}

void Zero3Rank::begin_evaluation() {
  for (const int p : persistent_parameters(layout_, plan_)) {
    if (!is_resident(states_[p]->storage)) gather_alone(p);
  }
}

// What a schedule begins with: no gather under way, and what stays whole is there.
void Zero3Rank::end_evaluation() {
  for (auto& [group, gather] : gathers_) {
    if (gather.pending) gather.pending->wait();
    if (gather.output.defined()) empty_storage(gather.output);
  }
  gathers_.clear();
  const std::vector<int> persistent = persistent_parameters(layout_, plan_);
  for (std::size_t p = 0; p < states_.size(); ++p) {
    const bool stays = std::binary_search(persistent.begin(), persistent.end(), static_cast<int>(p));
    if (!stays) release(static_cast<int>(p));
  }
}

// ---- gradients ----

void Zero3Rank::reduce(const GradientBucket& bucket, const at::Tensor& filled) {
  std::vector<int> parameters = bucket.parameters;
  std::sort(parameters.begin(), parameters.end(), [this](int a, int b) { return made_as_[a] < made_as_[b]; });
  const int first = parameters.front();
  const bool is_even = gradients_->elements_of(first) == part_elements(first) * buffer().ranks;
  const bool is_copied = parameters.size() > 1 || !is_even;
  at::Tensor input = is_copied ? interleaved(parameters, filled) : filled;
  input.div_(static_cast<double>(buffer().ranks));
  const std::int64_t elements = input.numel() / buffer().ranks;
  const at::Tensor own = input.narrow(0, layout_.rank * elements, elements);
  if (is_cut()) {
    told(CollectiveKind::ReduceScatter, input);
    group_.reduce_scatter(own, input, ReduceOp::Sum)->wait();
  }
  std::int64_t begin = 0;
  for (const int p : parameters) {
    keep(p, own.narrow(0, begin, states_[p]->layout.local_elements));
    begin += part_elements(p);
    gradients_->drop_gradient(p);
  }
  if (is_copied) empty_storage(input);
}

at::Tensor Zero3Rank::interleaved(const std::vector<int>& parameters, const at::Tensor& filled) const {
  const CategoryScope category(MemoryCategory::ReduceScatter);
  std::vector<at::Tensor> pieces;
  for (std::int64_t rank = 0; rank < buffer().ranks; ++rank) {
    for (const int p : parameters) {
      const std::int64_t part = part_elements(p);
      const std::int64_t elements = gradients_->elements_of(p);
      const std::int64_t from = std::min(rank * part, elements);
      const std::int64_t count = std::min(part, elements - from);
      pieces.push_back(filled.narrow(0, gradients_->begin_of(p) + from, count));
      if (count < part) pieces.push_back(at::zeros({part - count}, filled.scalar_type()));
    }
  }
  return at::cat(pieces);
}

void Zero3Rank::keep(int parameter, const at::Tensor& reduced) {
  const at::Tensor place =
      range_of(grads_, static_cast<std::size_t>(place_of_[parameter])).narrow(0, 0, reduced.numel());
  micro_batch_ == 0 ? place.copy_(reduced) : place.add_(reduced);
}

void Zero3Rank::finish_backward() {
  losses_.clear();
  gradients_->finish();
}

// ---- the step ----

LaterNumber Zero3Rank::take_norm() {
  const c10::AutoGradMode no_gradient(false);
  std::vector<at::Tensor> of_groups;
  for (std::size_t g = 0; g < num_groups(); ++g) {
    std::vector<at::Tensor> norms;
    for (std::size_t i = buffer().group_begins[g]; i < buffer().group_begins[g + 1]; ++i) {
      norms.push_back(at::linalg_vector_norm(range_of(grads_, i).to(c10::kDouble), 2.0));
    }
    const at::Tensor squares = at::stack(norms).pow(2.0).sum();
    all_reduce(squares, ReduceOp::Sum);
    of_groups.push_back(squares.pow(1.0 / 2.0));
  }
  return combine_norms(of_groups);
}

void Zero3Rank::update(const std::function<void()>& step) {
  if (is_left_out_) return;
  for (std::size_t g = 0; g < num_groups(); ++g) {
    ParameterState& group = groups_[g];
    const at::Tensor gradients = grads_.narrow(0, begin_of_group(g), group.shard.numel());
    {
      const CategoryScope category(MemoryCategory::ShardedGrad);
      // One gradient is taken as it is.
      const bool is_copied = buffer().group_begins[g + 1] - buffer().group_begins[g] > 1;
      group.grad = (is_copied ? gradients.clone() : gradients).to(group.dtype);
    }
    clip(group.grad);
    step();
    group.grad = at::Tensor();
    trained_parts_.narrow(0, begin_of_group(g), group.shard.numel()).copy_(group.shard);
  }
}

}  // namespace fsdp::executor
