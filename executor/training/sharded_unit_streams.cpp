// A unit on a GPU: the same as in sharded_unit.cpp and sharded_unit_gradients.cpp, on FSDP2's streams and with its
// fused copies, so that each allocation is made on the same stream, in the same order and of the same size as
// PyTorch's.
//
//   copy-in stream         [cast of the shards] and the all-gather's output; copies of the shards into it
//   all-gather stream      waits for it, gathers
//   compute stream         waits for that, makes the unsharded parameters and copies out; computes; makes the input of
//                          the reduction and copies the gradients in, after the reduction of the previous unit
//   reduce-scatter stream  waits for that, makes the output and reduces; casts it
//   all-reduce stream      with replicas of shard groups: waits for that, reduces and casts
//
// A buffer returns to the pool of its own stream; its next user on that stream must come after all uses on others. So
// both streams of gathers wait for a copy-out before its buffer is freed (or, in forward, before the next copy-out),
// and the compute stream waits for a reduce-scatter before its input is freed.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (foreach_all_gather, foreach_all_gather_copy_out,
// foreach_reduce), _fsdp_param_group.py (unshard, wait_for_unshard, post_backward), torch 2.11.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_chunk_cat.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/split_with_sizes_copy.h>

#include <utility>

#include "executor/memory/counting_allocator.h"
#include "executor/memory/tensors.h"
#include "executor/training/sharded_unit.h"

namespace fsdp::executor {

void RunningUnit::hold_gathers(std::optional<StreamMark>& mark) {
  if (!mark) return;
  mark->hold(place_.streams->copy_in);
  mark->hold(place_.streams->all_gather);
  mark.reset();
}

void RunningUnit::gather_on_streams(int slot) {
  hold_gathers(resharded_);
  if (world_ == 1) return;
  CommunicationStreams& streams = *place_.streams;
  Group& group = is_from_smaller_ ? *groups_.smaller : *groups_.shard;
  const CategoryScope buffers(MemoryCategory::AllGather);
  at::Tensor& output = gathers_[slot].output;
  std::vector<at::Tensor> sources;
  {
    const c10::StreamGuard copies(streams.copy_in);
    sources = gather_sources();
    copy_in_on_streams(sources, group, output);
  }
  listener_.called(index_, {CollectiveKind::AllGather, output.scalar_type(), output.numel(),
                            static_cast<std::int64_t>(output.nbytes()), MeshDimension::Shard, group.size()});
  wait_for_stream(streams.all_gather, streams.copy_in);
  const c10::StreamGuard gathers(streams.all_gather);
  const std::int64_t own = output.numel() / group.size();
  place_.clock->open(Stream::AllGather, "all_gather", streams.all_gather);
  group.all_gather(output, output.narrow(0, group.rank() * own, own));
  place_.clock->close(streams.all_gather);
  gathers_[slot].ended = StreamMark(streams.all_gather);
}

// Shards whose dtype changes are cast first, all into one tensor; shards on the host are fetched one by one.
std::vector<at::Tensor> RunningUnit::gather_sources() {
  const bool is_fetched = plan_.cpu_offload && !is_from_smaller_;
  std::vector<at::Tensor> sources;
  std::vector<at::Tensor> uncast;
  std::vector<std::int64_t> sizes;
  for (const ParameterState& state : parameters_) {
    at::Tensor source = is_from_smaller_ ? state.smaller : state.shard;
    if (is_fetched) source = source.to(place_.device, /*non_blocking=*/true).to(state.gathered);
    sources.push_back(source);
    if (is_fetched || state.dtype == state.gathered) continue;
    sizes.push_back(source.numel());
    uncast.push_back(std::move(source));
  }
  if (uncast.empty()) return sources;
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) total += size;
  const auto options = at::TensorOptions().dtype(scalar_type(unit_.param_dtype)).device(place_.device);
  std::vector<at::Tensor> cast = at::empty({total}, options).split_with_sizes(sizes);
  at::_foreach_copy_(cast, uncast);
  std::size_t next = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].dtype != parameters_[i].gathered) sources[i] = cast[next++];
  }
  return sources;
}

// Parameters of several dtypes are gathered as bytes.
void RunningUnit::copy_in_on_streams(std::vector<at::Tensor>& sources, const Group& group, at::Tensor& output) {
  std::vector<std::int64_t> sizes;
  std::int64_t own = 0;
  for (at::Tensor& source : sources) {
    if (unit_.mixed_gather) source = source.view(c10::kByte);
    sizes.push_back(source.numel());
    own += source.numel();
  }
  const auto options = at::TensorOptions().dtype(sources.front().scalar_type()).device(place_.device);
  output = at::empty({group.size() * own}, options);
  at::_foreach_copy_(output.narrow(0, group.rank() * own, own).split_with_sizes(sizes), sources);
}

void RunningUnit::copy_out_on_streams(int slot) {
  CommunicationStreams& streams = *place_.streams;
  Gather& gather = gathers_[slot];
  if (world_ == 1) return copy_shards_on_streams();
  place_.clock->open(Stream::Compute, "wait", streams.compute);
  std::exchange(gather.ended, {})->hold(streams.compute);
  place_.clock->close(streams.compute);
  const std::int64_t ranks = is_from_smaller_ ? groups_.smaller->size() : world_;
  std::vector<at::Tensor> out;
  std::vector<std::int64_t> sizes;
  {
    const CategoryScope whole(MemoryCategory::UnshardedParam);
    for (const ParameterState& state : parameters_) fill_storage(state.storage, bytes_of_storage(state));
  }
  for (const ParameterState& state : parameters_) {
    const at::Tensor rows = state.storage.view({ranks, -1});
    out.push_back(unit_.mixed_gather ? rows.view(c10::kByte) : rows);
    sizes.push_back(out.back().size(1));
  }
  {
    // The values are the same as before, and autograd may have saved them.
    const at::AutoDispatchBelowADInplaceOrView without_version_counter;
    at::split_with_sizes_copy_out(out, gather.output.view({ranks, -1}), sizes, 1);
  }
  for (ParameterState& state : parameters_) {
    if (is_from_smaller_) state.smaller = at::Tensor();
  }
  is_whole_ = true;
  gather.copied_out = StreamMark(streams.compute);
}

// For a group of one rank: each shard is cast and copied. A cast one lives until the next one exists.
void RunningUnit::copy_shards_on_streams() {
  at::Tensor source;
  for (const ParameterState& state : parameters_) {
    at::Tensor fetched = state.shard;
    if (plan_.cpu_offload) fetched = fetched.to(place_.device, /*non_blocking=*/true);
    fetched = fetched.to(state.gathered);
    source = std::move(fetched);
    const CategoryScope whole(MemoryCategory::UnshardedParam);
    fill_storage(state.storage, bytes_of_storage(state));
    refill(state.storage, source);
  }
  is_whole_ = true;
}

std::int64_t RunningUnit::bytes_of_storage(const ParameterState& state) {
  return state.storage.numel() * static_cast<std::int64_t>(state.storage.element_size());
}

// Returns the positions of the parameters that had a gradient. `last` receives the last of them, where PyTorch's Python
// code keeps it alive.
std::vector<int> RunningUnit::chunk_gradients(at::Tensor* last) {
  std::vector<int> reduced = add_up_gradients();
  std::vector<at::Tensor> gradients;
  for (const int position : reduced) {
    ParameterState& state = parameters_[position];
    at::Tensor& gradient = state.kept_grad.defined() ? state.kept_grad : state.new_grad;
    gradients.push_back(std::exchange(gradient, {}));
  }
  const CategoryScope buffers(MemoryCategory::ReduceScatter);
  reduce_input_ = at::empty({world_ * shard_elements(reduced)},
                            at::TensorOptions().dtype(scalar_type(unit_.reduce_dtype)).device(place_.device));
  at::Tensor rows = reduce_input_.view({world_, -1});
  at::_chunk_cat_out(rows, gradients, 0, world_);
  if (last != nullptr) *last = gradients.back();
  while (!gradients.empty()) gradients.pop_back();
  return reduced;
}

void RunningUnit::reduce_on_streams(const Instruction& step) {
  CommunicationStreams& streams = *place_.streams;
  wait_for_reduction();
  at::Tensor last;
  const std::vector<int> reduced = chunk_gradients(step.keeps_last_gradient ? &last : nullptr);
  bool is_gradient = unit_.reduce_dtype == unit_.original_dtype && !is_on_host();
  for (const ParameterState& state : parameters_) is_gradient = is_gradient && !state.grad.defined();
  wait_for_stream(streams.reduce_scatter, streams.compute);
  at::Tensor output;
  {
    const c10::StreamGuard reduces(streams.reduce_scatter);
    const CategoryScope buffers(is_gradient ? MemoryCategory::ShardedGrad : MemoryCategory::ReduceScatter);
    output = at::empty({reduce_input_.numel() / world_}, reduce_input_.options());
    place_.clock->open(Stream::ReduceScatter, "reduce_scatter", streams.reduce_scatter);
    reduce_scatter(output);
    place_.clock->close(streams.reduce_scatter);
    scattered_ = StreamMark(streams.reduce_scatter);
  }
  const bool has_copies = groups_.replicate != nullptr;
  if (has_copies) wait_for_stream(streams.all_reduce, streams.reduce_scatter);
  const c10::Stream& after = has_copies ? streams.all_reduce : streams.reduce_scatter;
  const c10::StreamGuard finishes(after);
  if (has_copies) place_.clock->open(Stream::AllReduce, "all_reduce", after);
  all_reduce(output);
  if (has_copies) place_.clock->close(after);
  view_gradients(std::move(output), reduced, step.keeps_all_reduce_output);
  reduced_ = StreamMark(after);
}

}  // namespace fsdp::executor
