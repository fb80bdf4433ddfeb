// Gathering and freeing. For each parameter a rank has ceil(rows / N) rows, padded with zeros; a unit's all-gather
// buffer contains for each rank the padded shards of all its parameters one after the other, in the order of
// registration.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (foreach_all_gather, foreach_all_gather_copy_out),
// _fsdp_param.py (init_all_gather_outputs, to_sharded_post_forward), torch 2.11.

#include "executor/training/sharded_unit.h"

#include <ATen/ops/alias.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "executor/memory/counting_allocator.h"
#include "executor/memory/tensors.h"

namespace fsdp::executor {

namespace {

std::int64_t row_elements(const Shape& shape) {
  std::int64_t elements = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) elements *= shape[i];
  return elements;
}

// Sets a tensor's view of a storage that has no bytes yet.
void set_shape(const at::Tensor& tensor, const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(shape, strides);
}

at::Tensor bytes_of(const at::Tensor& flat) {
  return flat.view(c10::kByte);
}

}  // namespace

std::int64_t first_element(const ShardedParameter& parameter, std::int64_t shard_rank) {
  return parameter.local_elements == parameter.elements ? 0 : shard_rank * parameter.shard_elements;
}

RunningUnit::RunningUnit(int index, const ShardedUnit& unit, const Layout& layout, const Plan& plan, const Model& model,
                         UnitGroups groups, CollectiveListener& listener, UnitPlace place)
    : index_(index),
      unit_(unit),
      plan_(plan),
      world_(layout.mesh.dp_shard()),
      groups_(groups),
      listener_(listener),
      place_(place) {
  for (const ShardedParameter& each : unit.parameters) {
    ParameterState state;
    state.parameter = &model.parameters[each.parameter];
    state.layout = each;
    const Dtype own = layout.parameter_dtype[each.parameter];
    state.dtype = scalar_type(own);
    const bool is_cast = plan.mixed_precision.param_dtype && is_floating_point(own);
    state.gathered = is_cast ? scalar_type(unit.param_dtype) : state.dtype;
    state.storage = at::empty({0}, at::TensorOptions().dtype(state.gathered).device(place.device));
    state.whole = at::alias(state.storage);
    set_shape(state.storage, {world_ * each.shard_elements});
    set_shape(state.whole, state.parameter->shape);
    parameters_.push_back(std::move(state));
  }
}

void RunningUnit::make_shard(ParameterState& state) const {
  const CategoryScope shards(MemoryCategory::ShardedParam);
  const auto options = at::TensorOptions()
                           .dtype(state.dtype)
                           .device(is_on_host() ? c10::Device(c10::kCPU) : place_.device)
                           .pinned_memory(is_on_host());
  set_shard(state, at::zeros({state.layout.shard_elements}, options));
}

void RunningUnit::set_shard(ParameterState& state, at::Tensor shard) {
  Shape rows = state.parameter->shape;
  rows.front() = state.layout.local_elements / std::max<std::int64_t>(1, row_elements(rows));
  state.local = shard.narrow(0, 0, state.layout.local_elements).view(rows);
  state.shard = std::move(shard);
}

ParameterState& RunningUnit::parameter(int id) {
  return *std::find_if(parameters_.begin(), parameters_.end(),
                       [&](const ParameterState& state) { return state.layout.parameter == id; });
}

void RunningUnit::unshard(int slot, bool from_smaller) {
  is_from_smaller_ = from_smaller;
  if (place_.streams != nullptr) return gather_on_streams(slot);
  if (world_ == 1) return;
  const CategoryScope buffers(MemoryCategory::AllGather);
  copy_in_shards(slot, from_smaller);
}

// Shards whose dtype changes are cast first, all into one tensor.
void RunningUnit::copy_in_shards(int slot, bool from_smaller) {
  Gather& gather = gathers_[slot];
  Group& group = from_smaller ? *groups_.smaller : *groups_.shard;
  const auto source = [&](const ParameterState& state) { return from_smaller ? state.smaller : state.shard; };
  std::int64_t cast_elements = 0;
  std::int64_t own_bytes = 0;
  for (const ParameterState& state : parameters_) {
    const std::int64_t elements = source(state).numel();
    if (state.dtype != state.gathered) cast_elements += elements;
    own_bytes += elements * static_cast<std::int64_t>(c10::elementSize(state.gathered));
  }
  at::Tensor cast;
  if (cast_elements > 0) cast = at::empty({cast_elements}, scalar_type(unit_.param_dtype));
  gather.output = at::empty({group.size() * own_bytes}, c10::kByte);
  const at::Tensor own = gather.output.narrow(0, group.rank() * own_bytes, own_bytes);
  std::int64_t cast_begin = 0;
  std::int64_t begin = 0;
  for (const ParameterState& state : parameters_) {
    at::Tensor from = source(state);
    if (state.dtype != state.gathered) {
      const at::Tensor part = cast.narrow(0, cast_begin, from.numel());
      cast_begin += from.numel();
      part.copy_(from);
      from = part;
    }
    const at::Tensor bytes = bytes_of(from);
    own.narrow(0, begin, bytes.numel()).copy_(bytes);
    begin += bytes.numel();
  }
  const c10::ScalarType dtype = unit_.mixed_gather ? c10::kByte : scalar_type(unit_.param_dtype);
  const auto size = static_cast<std::int64_t>(c10::elementSize(dtype));
  listener_.called(index_, {CollectiveKind::AllGather, dtype, gather.output.numel() / size, gather.output.numel(),
                            MeshDimension::Shard, group.size()});
  gather.pending = group.all_gather(gather.output, own);
}

void RunningUnit::wait_for_unshard(int slot) {
  if (place_.streams != nullptr) return copy_out_on_streams(slot);
  Gather& gather = gathers_[slot];
  if (gather.pending) std::exchange(gather.pending, nullptr)->wait();
  const CategoryScope whole(MemoryCategory::UnshardedParam);
  for (const ParameterState& state : parameters_) {
    fill_storage(state.storage, state.storage.numel() * static_cast<std::int64_t>(state.storage.element_size()));
  }
  const std::int64_t ranks = world_ == 1 ? 1 : (is_from_smaller_ ? groups_.smaller->size() : world_);
  std::int64_t begin = 0;
  for (ParameterState& state : parameters_) {
    if (world_ == 1) {
      refill(state.storage, state.shard);
      continue;
    }
    const std::int64_t part = bytes_of(state.storage).numel() / ranks;
    refill(bytes_of(state.storage).view({ranks, part}), gather.output.view({ranks, -1}).narrow(1, begin, part));
    begin += part;
    if (is_from_smaller_) state.smaller = at::Tensor();
  }
  is_whole_ = true;
}

void RunningUnit::free(BufferKind buffer, int slot) {
  switch (buffer) {
    case BufferKind::AllGatherOutput:
      return free_gather(slot);
    case BufferKind::ReduceInput:
      return free_reduce_input();
    case BufferKind::AllReduceOutput:
      return free_all_reduce_output();
    case BufferKind::FirstBuckets:
      return;  // Another framework has them.
  }
}

void RunningUnit::free_gather(int slot) {
  Gather& gather = gathers_[slot];
  if (gather.pending) std::exchange(gather.pending, nullptr)->wait();
  if (gather.ended) std::exchange(gather.ended, {})->hold(place_.streams->compute);
  hold_gathers(gather.copied_out);
  empty_storage(gather.output);
  gather.output = at::Tensor();
}

void RunningUnit::free_all_gathers() {
  for (int slot = 0; slot < kNumSlots; ++slot) free_gather(slot);
}

void RunningUnit::reshard(bool keep_smaller) {
  if (!is_whole_) {
    for (ParameterState& state : parameters_) state.smaller = at::Tensor();
    return;
  }
  const bool keeps = keep_smaller && unit_.reshard.kind == ReshardAfterForward::Kind::Smaller;
  for (ParameterState& state : parameters_) {
    if (keeps) {
      const CategoryScope shards(MemoryCategory::ShardedParam);
      const std::int64_t part = state.storage.numel() / unit_.reshard.world_size;
      state.smaller = state.storage.narrow(0, groups_.smaller->rank() * part, part).clone();
    }
    empty_storage(state.storage);
  }
  if (keeps && place_.streams != nullptr) resharded_ = StreamMark(place_.streams->compute);
  is_whole_ = false;
}

}  // namespace fsdp::executor
