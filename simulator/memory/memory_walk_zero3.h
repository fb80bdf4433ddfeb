#pragma once

// The part of the memory walk for DeepSpeed's ZeRO-3.
//
//   initialization each module makes its own parameters, in fp32 and then cast, and shards them one by one. The engine
//                  moves the parts of trained ones to the host, empties the allocator's cache, and brings them back as
//                  one tensor; an fp32 copy per sub-group, or one of their own dtype; the bucket and the gradients of
//                  all parts, which stay. Gathers each trained parameter once, for its hook
//   Fetch          the output of the all-gather, of the padded size. Wait copies each parameter out of it; a single one
//                  is the output
//   Release        frees a parameter. One that a recomputed block has saved stays until its node of the backward has
//                  run, beside the copy that is gathered for that. With hpZ its second copy is made first, if there is
//                  none: the padded size over the neighbors that share it. The end of the step frees those of updated
//                  parameters
//   Backward       copies a gradient into the bucket and frees it. If one does not fit, the bucket is reduced first
//   ReduceBucket   the parts of all ranks in one piece, with their padding; the sums go into the gradients' tensor
//   CheckOverflow  the gradients of all parts without their signs, and a byte for each of them
//   ClipGradNorm   the parts of the gradients in fp64, one after the other
//   OptimizerStep  a sub-group at a time: its gradients in one piece, the same in fp32 if the copy is, one temporary
//                  (foreach)
//
// With overlap_comm, gathers and reductions have streams of their own, and memory that the other stream has used
// returns when the CPU knows that it has passed it (record_stream, held_frees.h):
//
//   a gathered parameter   is used by compute,
//   a gradient             by the copy into the bucket, or by its reduction;
//   the CPU waits          for the oldest of three requested parameters, the oldest of three reductions, the reductions
//                          of a micro-batch at its end, whether the norm is finite, and the whole device if parameters
//                          are gathered one by one; and if the queue of launches is full.
//
// Nothing else makes the CPU wait for compute: everything that a short forward gathers may be held to its end.
//
// With offload_optimizer the fp32 copy, its moments and the gradients of all parts are on the host. With a ratio below
// 1 the first sub-groups' copy, moments and fp32 gradients are always on the device, and PyTorch's AdamW updates them.
// ReduceBucket brings back each part of a gradient that it has sent there, and in the last micro-batch takes its norm
// in fp64 and casts it; the norms stay until the optimizer is done. With offload_param the parts of parameters are on
// the host, too, and the engine moves none: each comes to the device on its way into a gather, and stays until the wait
// for that if it is gathered alone. The CPU waits for these copies.
//
// Sources: DeepSpeed 0.19.8, runtime/zero/stage3.py (__init__, _setup_for_real_optimizer, initialize_optimizer_states,
// create_reduce_and_remove_grad_hooks, __add_grad_to_ipg_bucket, __avg_scatter_grads, partition_grads, has_overflow,
// step; with offload: _offload_grad_partition_at_boundary, _constant_buffered_norm2,
// complete_grad_norm_calculation_for_cpu_offload), partition_parameters.py (_post_init_method, _partition_param,
// _partition_param_sec, _all_gather_dtype, AllGatherCoalescedHandle.wait, free_param, _allgather_params_coalesced,
// _all_gather_sequential), partitioned_param_coordinator.py (__ongoing_fetch_events),
// runtime/comm/coalesced_collectives.py, zero/utils.py (defragment), utils.py (is_invalid_grad_norm).
//
// Not modeled: scalars of overflow checks, kernels that save a view of their weight, lists that ranks compare at first.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/frameworks/zero/zero_partition.h"
#include "core/plan/parameter_part.h"
#include "simulator/memory/gathered_names.h"
#include "simulator/memory/held_frees.h"
#include "simulator/memory/memory_walk_flat_optimizer.h"
#include "simulator/memory/memory_walk_initialization.h"
#include "simulator/memory/memory_walk_quantized.h"
#include "simulator/memory/memory_walk_sub_groups.h"
#include "simulator/memory/memory_walk_zero3_offload.h"
#include "simulator/memory/memory_walk_zero_engine.h"

namespace fsdp::simulator {

template <class Sink>
class Zero3Walk final : public ZeroEngineWalk<Sink> {
  using Engine = ZeroEngineWalk<Sink>;

 public:
  explicit Zero3Walk(const WalkParts<Sink>& parts) : Engine(parts), schedule_(in_.schedule) {
    has_copy_.assign(bucket_of_.size(), false);
    is_on_compute_.assign(bucket_of_.size(), !overlaps());
    grads_.on_complete([this](int p) { Engine::put(p); });
    calls_->on_released([this](int p) { let_go_of_kept(p); });
    calls_->on_rerun([this](int call, int op) { gather_for_rerun(call, op); });
  }

  void begin_step(const Schedule& schedule) override { schedule_ = &schedule; }

  void initialize() override {
    made_as_.assign(in_.index->model->parameters.size(), -1);
    make_module(0);
    for (std::size_t b = 0; b < in_.index->model->buffers.size(); ++b) {
      make_model_buffer(in_, sink_, static_cast<int>(b));
    }
    start_engine();
  }

  void make_states() override {
    if (std::exchange(has_states_, true)) return;
    for (std::size_t g = 0; g < sub_groups_.size_on_device(); ++g) sub_groups_.make_states(g);
  }

  void run(const Instruction& step) override {
    if (step.rerun_op >= 0 && rerun_call_ < 0) return waiting_for_rerun_.push_back(step);
    switch (step.kind) {
      case InstructionKind::FetchParameters:
        return fetch(step);
      case InstructionKind::LimitGathers:
        return ask(step);
      case InstructionKind::WaitForParameters:
        return wait(step);
      case InstructionKind::DropFetched:
        return drop_fetched(step);
      case InstructionKind::ReleaseParameters:
        return release(step, rerun_call_);
      default:
        return Engine::run(step);
    }
  }

 private:
  using Engine::alloc;
  using Engine::bucket_of_;
  using Engine::buffer;
  using Engine::calls_;
  using Engine::casts;
  using Engine::drop;
  using Engine::element_size;
  using Engine::elements_of;
  using Engine::grads_;
  using Engine::has_states_;
  using Engine::held_;
  using Engine::in_;
  using Engine::is_larger_than_bucket;
  using Engine::is_last_micro_batch;
  using Engine::keeps_order;
  using Engine::kNormSize;
  using Engine::master_size;
  using Engine::next_bucket_;
  using Engine::norms_;
  using Engine::offloads;
  using Engine::order;
  using Engine::overlaps;
  using Engine::reduction_stream;
  using Engine::sink_;

  // A gather for a recomputed block waits until the recomputation reaches the op.
  void gather_for_rerun(int call, int op) {
    rerun_call_ = call;
    while (!waiting_for_rerun_.empty() && waiting_for_rerun_.front().rerun_op <= op) {
      run(waiting_for_rerun_.front());
      waiting_for_rerun_.pop_front();
    }
    rerun_call_ = -1;
  }

  // ---- parameters --------------------------------------------------------------------------------------------------

  void fetch(const Instruction& step) {
    const ParameterGroup& group = group_of(step);
    if (buffer().ranks == 1) return bring_whole(step);
    if (keeps_order()) {
      // NCCL's own stream begins after that of the gathers.
      order().wait(kNccl, gather_stream());
      gathered_.resize(std::max(gathered_.size(), static_cast<std::size_t>(step.group) + 1));
      gathered_[static_cast<std::size_t>(step.group)] =
          order().collective(kNccl, group.ranks.is_part() ? kNeighbors : kRanks);
    }
    if (quantizes()) return quantized_.send(group, group.ranks.is_part() ? neighbors() : buffer().ranks);
    if (group.parameters.size() == 1) {
      const int p = group.parameters.front();
      alloc(names_.name(p), p, padded_bytes(p), MemoryCategory::UnshardedParam, gather_stream());
    } else {
      std::int64_t bytes = 0;
      for (const int p : group.parameters) bytes += padded_bytes(p);
      alloc(ParameterTensor::Fetched, group.last, bytes, MemoryCategory::AllGather, gather_stream());
    }
    if (offloads_parameters()) bring_parts(group);
    sink_.collective();
  }

  // Requests a parameter of a group: the stream of the gathers waits for the group, and compute for that.
  void ask(const Instruction& step) {
    if (!keeps_order()) return;
    fetches_.limit(held_);
    order().wait(gather_stream(), gathered_[static_cast<std::size_t>(step.group)]);
    fetches_.record(order().submit(gather_stream()));
    order().wait(MemoryStream::Compute, gather_stream());
  }

  void wait(const Instruction& step) {
    const ParameterGroup& group = group_of(step);
    // The compute stream waits for parameters that nobody requested.
    if (keeps_order()) order().wait(MemoryStream::Compute, gathered_[static_cast<std::size_t>(step.group)]);
    if (buffer().ranks == 1) return;
    if (quantizes()) return quantized_.wait(group);
    if (group.parameters.size() == 1) {
      if (offloads_parameters()) drop(ParameterTensor::HostCopy, group.parameters.front());
      return;
    }
    for (const int p : group.parameters) {
      alloc(names_.name(p), p, elements_of(p) * size_of_parameter(p), MemoryCategory::UnshardedParam, gather_stream());
    }
  }

  void drop_fetched(const Instruction& step) {
    if (quantizes()) return quantized_.drop(group_of(step));
    if (buffer().ranks > 1) drop(ParameterTensor::Fetched, group_of(step).last);
  }

  void release(const Instruction& step, int rerun) {
    for (const int p : group_of(step).parameters) {
      keep_second_copy(p);
      const bool is_kept = names_.keep(p, rerun, is_on_compute_[p]);
      if (!is_kept) let_go(p, {.name = names_.name(p), .is_on_compute = is_on_compute_[p]});
      is_on_compute_[p] = !overlaps();
    }
  }

  // A recomputed block no longer needs what it had saved.
  void let_go_of_kept(int p) {
    if (const auto kept = names_.take(p)) let_go(p, *kept);
  }

  void gather(const Instruction& step) override {
    const bool brings_parts = offloads_parameters() && buffer().ranks > 1;
    if (brings_parts) {
      for (const int p : group_of(step).parameters) bring_part(p, MemoryStream::Compute);
    }
    for (const int p : group_of(step).parameters) {
      alloc(names_.name(p), p, padded_bytes(p), MemoryCategory::UnshardedParam, MemoryStream::Compute);
    }
    for (std::size_t i = 0; i < group_of(step).parameters.size() && buffer().ranks > 1; ++i) sink_.collective();
    for (const int p : group_of(step).parameters) is_on_compute_[p] = true;
    if (brings_parts) {
      for (const int p : group_of(step).parameters) drop(ParameterTensor::HostCopy, p);
    }
    held_.finish_all();
  }

  // ---- backward ----------------------------------------------------------------------------------------------------

  void prepare_reduce(const Instruction& step) override { Engine::begin_backward(step); }

  void reduce_rest(const Instruction&) override { reduce_bucket(); }

  void finish_reduce() override {
    next_bucket_ = 0;
    // The CPU waits for the stream of the reductions.
    if (keeps_order()) held_.finish(order().submit(reduction_stream()));
  }

  // ---- optimizer ---------------------------------------------------------------------------------------------------

  // In fp16: torch.isinf and torch.isnan of all gradients, on the stream of the reductions. On the host with offload.
  void check_overflow() override {
    if (!offloads()) look_for_overflows(in_, sink_, buffer().part_elements(), element_size(), reduction_stream());
    // With offload the flag comes from the host.
    alloc(SingleTensor::ZeroAnswer, 1, MemoryCategory::Temp, reduction_stream());
    sink_.collective();
    drop(SingleTensor::ZeroAnswer);
    if (!keeps_order()) return;
    order().wait(MemoryStream::Compute, reduction_stream());
    if (buffer().ranks > 1) order().collective(MemoryStream::Compute, kRanks);
    held_.finish(order().submit(MemoryStream::Compute));
  }

  void clip() override {
    for (std::size_t g = 0; g < sub_groups_.size(); ++g) {
      std::int64_t norms = 0;
      for (std::size_t i = buffer().group_begins[g]; i < buffer().group_begins[g + 1]; ++i) {
        Engine::take_norm(buffer().parameters[i], part_at(i));
        norms += kNormSize;
      }
      Engine::join_norms(norms);
      sink_.collective();
      for (std::size_t i = buffer().group_begins[g]; i < buffer().group_begins[g + 1]; ++i) {
        drop(ParameterTensor::OptimizerTemp, buffer().parameters[i]);
      }
    }
    // DeepSpeed reads whether the norm is finite.
    if (keeps_order()) {
      if (buffer().ranks > 1) order().collective(MemoryStream::Compute, kRanks);
      held_.finish(order().submit(MemoryStream::Compute));
    }
    alloc(SingleTensor::ClipScalar, kNormSize, MemoryCategory::Temp);
    alloc(SingleTensor::ClipScalar2, kNormSize, MemoryCategory::Temp);
    alloc(Engine::new_norm(), kNormSize, MemoryCategory::Temp);
  }

  void update() override {
    if (offloads()) return step_beside_host();
    for (std::size_t g = 0; g < sub_groups_.size(); ++g) {
      const std::int64_t elements = sub_groups_.elements(g);
      // A single gradient needs no copy.
      const bool is_copied = buffer().group_begins[g + 1] - buffer().group_begins[g] > 1;
      Engine::join_gradients(elements, is_copied);
      if (!has_states_) sub_groups_.make_states(g);
      make_flat_optimizer_temporaries(in_, sink_, master_size() * elements);
      if (casts() || is_copied) drop(SingleTensor::ZeroGrad32);
    }
    has_states_ = true;
    drop(SingleTensor::ClipScalar2);
    drop(SingleTensor::ClipScalar);
    Engine::drop_last_norm();
  }

  // Second copies of what was updated are worth nothing.
  void end_step() override {
    for (const int p : buffer().parameters) {
      if (has_copy_[p]) drop(ParameterTensor::SecondCopy, p);
      has_copy_[p] = false;
    }
  }

  static constexpr std::int64_t kMostInNorm = 250'000'000;  // Elements, with offload.

  // Communicators, of all and of neighbors, and NCCL's stream for gathers of a stream that does not wait.
  static constexpr int kRanks = 0;
  static constexpr int kNeighbors = 1;
  static constexpr int kNode = 2;   // With qgZ,
  static constexpr int kNodes = 3;  // of the GPUs of the same place in each.
  static constexpr MemoryStream kNccl = MemoryStream::AllReduce;

  std::int64_t part_at(std::size_t place) const { return buffer().begins[place + 1] - buffer().begins[place]; }
  bool offloads_parameters() const { return offloads() && in_.plan->zero.offload_param; }
  bool quantizes() const { return in_.plan->zero.quantized_weights; }
  std::int64_t neighbors() const { return std::min(in_.plan->zero.hpz_partition_size, buffer().ranks); }
  MemoryStream gather_stream() const { return overlaps() ? MemoryStream::AllGatherCopyIn : MemoryStream::Compute; }
  const ParameterGroup& group_of(const Instruction& step) const {
    return schedule_->groups[static_cast<std::size_t>(step.group)];
  }
  std::int64_t part_elements(int p) const { return part_of(elements_of(p), CutBy::Elements, buffer().ranks).chunk; }
  std::int64_t padded_bytes(int p) const { return part_elements(p) * buffer().ranks * size_of_parameter(p); }
  std::int64_t size_of_parameter(int p) const { return size_of(in_.layout->parameter_dtype[p]).count(); }

  // Gathered alone, it was on the compute stream.
  void let_go(int p, const GatheredNames::Kept& copy) {
    const int tensor = in_.ids->of(copy.name, p);
    copy.is_on_compute ? sink_.free(tensor) : held_.free_behind(tensor, MemoryStream::Compute);
  }
  // A released parameter is first sharded over neighbors, and the CPU waits for that.
  void keep_second_copy(int p) {
    if (neighbors() == 1 || has_copy_[p]) return;
    has_copy_[p] = true;
    alloc(ParameterTensor::SecondCopy, p, padded_bytes(p) / neighbors(), MemoryCategory::ShardedParam);
    if (keeps_order()) held_.finish(order().submit(MemoryStream::Compute));
  }

  // ---- initialization ----------------------------------------------------------------------------------------------

  // Parameters below a module, then its own: makes all of them, and then shards them one by one.
  void make_module(int module) {
    const Module& of = in_.index->model->modules[module];
    for (const int child : of.children) make_module(child);
    std::vector<int> made;
    for (const int p : of.parameters) {
      if (made_as_[p] >= 0) continue;
      made_as_[p] = num_made_++;
      made.push_back(p);
      if (size_of_parameter(p) != 4) {
        alloc(ParameterTensor::Float, p, 4 * elements_of(p), MemoryCategory::Temp);
        make_original_parameter(in_, sink_, p);
        drop(ParameterTensor::Float, p);
      } else {
        make_original_parameter(in_, sink_, p);
      }
    }
    for (const int p : made) {
      keep_second_copy(p);
      if (!offloads_parameters()) {
        alloc(ParameterTensor::Sharded, p, part_elements(p) * size_of_parameter(p), MemoryCategory::ShardedParam);
      }
      drop(ParameterTensor::Full, p);
    }
  }

  void start_engine() {
    if (offloads() && in_.plan->zero.offload_ratio < 1) second_optimizer_.make(element_size());
    // In the place of the fp32 copy.
    if (!offloads()) alloc(SingleTensor::ZeroOverflow, 1, MemoryCategory::Temp);
    alloc(SingleTensor::ZeroBarrier, 1, MemoryCategory::Temp);
    alloc(SingleTensor::ZeroBarrierSum, 4, MemoryCategory::Temp);
    drop(SingleTensor::ZeroBarrierSum);
    if (!offloads_parameters()) {
      for (const int p : buffer().parameters) drop(ParameterTensor::Sharded, p);
      sink_.empty_cache();
      alloc(SingleTensor::ZeroFlat, buffer().part_elements() * element_size(), MemoryCategory::ShardedParam);
    }
    sub_groups_.make_masters();
    alloc(SingleTensor::ZeroBucket, in_.plan->zero.reduce_bucket_size * element_size(), MemoryCategory::ReduceScatter);
    if (!offloads()) {
      alloc(SingleTensor::ZeroPart, buffer().part_elements() * element_size(), MemoryCategory::ShardedGrad);
    }
    for (const int p : buffer().parameters) {
      alloc(names_.name(p), p, padded_bytes(p), MemoryCategory::UnshardedParam);
      if (offloads_parameters()) bring_part(p, MemoryStream::Compute);
      if (offloads_parameters()) drop(ParameterTensor::HostCopy, p);
      drop(names_.name(p), p);
    }
  }

  // ---- gradients ---------------------------------------------------------------------------------------------------

  void copy_into_bucket(int p) override {
    if (keeps_order()) order().wait(reduction_stream(), MemoryStream::Compute);
    if (!is_larger_than_bucket(p)) Engine::drop_used_gradient(p);
  }

  void reduce_bucket() override {
    const GradientBucket& bucket = Engine::take_bucket();
    if (keeps_order()) reductions_.limit(held_);
    exchanges_gradients(*in_.plan, in_.gpus_per_node) ? exchange(bucket) : scatter(bucket);
    for (const int p : as_made(bucket.parameters)) {
      if (offloads()) send_to_host(p);
      if (is_larger_than_bucket(p)) Engine::drop_used_gradient(p);
    }
    if (drive_gradients_.write() && keeps_order()) held_.finish(order().submit(reduction_stream()));
    if (std::exchange(has_host_grad_, false)) drop(SingleTensor::ZeroHostGrad);
    if (std::exchange(is_copied_, false)) drop(SingleTensor::ZeroReduced);
    quantized_reductions_.drop_parts();
    if (keeps_order()) reductions_.record(order().submit(reduction_stream()));
  }

  // With qgZ each gradient by itself.
  void exchange(const GradientBucket& bucket) {
    using Communicator = typename QuantizedReductions<Sink>::Communicator;
    quantized_reductions_.reduce(bucket, [this](Communicator communicator) {
      if (!keeps_order()) return;
      const int number = communicator == Communicator::Ranks  ? kRanks
                         : communicator == Communicator::Node ? kNode
                                                              : kNodes;
      order().collective(reduction_stream(), number);
    });
  }

  void scatter(const GradientBucket& bucket) {
    std::int64_t bytes = 0;
    is_copied_ = bucket.parameters.size() > 1;
    for (const int p : bucket.parameters) {
      const std::int64_t padding = part_elements(p) * buffer().ranks - elements_of(p);
      bytes += part_elements(p) * buffer().ranks * element_size();
      if (padding == 0) continue;
      is_copied_ = true;
      alloc(ParameterTensor::GradPadding, p, padding * element_size(), MemoryCategory::ReduceScatter,
            reduction_stream());
    }
    if (is_copied_) alloc(SingleTensor::ZeroReduced, bytes, MemoryCategory::ReduceScatter, reduction_stream());
    const bool receives_parts = in_.reduce_scatter_receives_parts && buffer().ranks > 1;
    if (receives_parts) alloc(SingleTensor::ZeroOtherBucket, bytes, MemoryCategory::ReduceScatter);
    sink_.collective();
    if (receives_parts) drop(SingleTensor::ZeroOtherBucket);
    if (keeps_order() && buffer().ranks > 1) order().collective(reduction_stream(), kRanks);
    for (const int p : bucket.parameters) {
      if (part_elements(p) * buffer().ranks > elements_of(p)) drop(ParameterTensor::GradPadding, p);
    }
  }

  // ---- with offload ------------------------------------------------------------------------------------------------

  // The sub-groups of the device: PyTorch's AdamW, which is foreach there.
  void step_beside_host() {
    for (std::size_t g = 0; g < sub_groups_.size_on_device(); ++g) {
      second_optimizer_.drop_first();
      if (!has_states_) sub_groups_.make_states(g);
      alloc(SingleTensor::ZeroOptimizerTemp, master_size() * sub_groups_.elements(g), MemoryCategory::Temp);
      drop(SingleTensor::ZeroOptimizerTemp);
    }
    has_states_ = true;
    drive_gradients_.drop_all();
    Engine::drop_norms();
  }

  void bring_part(int p, MemoryStream stream) {
    alloc(ParameterTensor::HostCopy, p, part_elements(p) * size_of_parameter(p), MemoryCategory::AllGather, stream);
  }

  // On one GPU a parameter is copied to its place of use, and nothing is gathered.
  void bring_whole(const Instruction& step) {
    for (const int p : group_of(step).parameters) {
      alloc(names_.name(p), p, padded_bytes(p), MemoryCategory::UnshardedParam, gather_stream());
    }
    if (!keeps_order()) return;
    gathered_.resize(std::max(gathered_.size(), static_cast<std::size_t>(step.group) + 1));
    gathered_[static_cast<std::size_t>(step.group)] = order().submit(gather_stream());
  }

  // All parts of a group exist before they are joined.
  void bring_parts(const ParameterGroup& group) {
    for (const int p : group.parameters) bring_part(p, gather_stream());
    if (keeps_order()) held_.finish(order().submit(gather_stream()));
    if (group.parameters.size() == 1) return;
    for (const int p : group.parameters) drop(ParameterTensor::HostCopy, p);
  }

  // DeepSpeed sorts a bucket's parameters by their numbers.
  std::vector<int> as_made(std::vector<int> parameters) const {
    if (offloads()) {
      std::sort(parameters.begin(), parameters.end(), [&](int a, int b) { return made_as_[a] < made_as_[b]; });
    }
    return parameters;
  }

  // A returned gradient lives until the next one returns.
  void send_to_host(int p) {
    if (std::exchange(has_host_grad_, false)) drop(SingleTensor::ZeroHostGrad);
    const bool goes_on = is_last_micro_batch() && drive_gradients_.takes(p);
    const bool is_taken_as_it_is = goes_on && !casts();
    if (is_taken_as_it_is) {
      drive_gradients_.take(p, part_elements(p), reduction_stream());
    } else {
      alloc(SingleTensor::ZeroHostGrad, part_elements(p) * element_size(), MemoryCategory::ShardedGrad,
            reduction_stream());
      has_host_grad_ = true;
    }
    if (!is_last_micro_batch()) return;
    const std::int64_t elements = std::min(part_elements(p), kMostInNorm);
    make_norm_in_fp64(in_, sink_, p, elements, reduction_stream());
    norms_.push_back(p);
    if (!casts()) return;
    if (goes_on) return drive_gradients_.take(p, part_elements(p), reduction_stream());
    alloc(SingleTensor::ZeroGrad32, 4 * part_elements(p), MemoryCategory::ShardedGrad, reduction_stream());
    drop(SingleTensor::ZeroGrad32);
  }

  // DeepSpeed brings each sum to the host.
  void sum_norms() override {
    for (std::size_t g = 0; g < sub_groups_.size(); ++g) Engine::sum_norm();
    if (!keeps_order()) return;
    if (buffer().ranks > 1) order().collective(MemoryStream::Compute, kRanks);
    held_.finish(order().submit(MemoryStream::Compute));
  }

  const Schedule* schedule_;  // That of the step that runs.
  std::deque<Instruction> waiting_for_rerun_;
  int rerun_call_ = -1;  // Which runs again just now.
  SubGroups<Sink> sub_groups_{in_, sink_};
  GatheredNames names_{in_};
  QuantizedGathers<Sink> quantized_{in_, sink_, gather_stream(), names_};
  QuantizedReductions<Sink> quantized_reductions_{in_, sink_, reduction_stream()};
  SecondOptimizer<Sink> second_optimizer_{in_, sink_};
  DriveGradients<Sink> drive_gradients_{in_, sink_};
  EventQueue fetches_;                       // Requested parameters
  EventQueue reductions_;                    // and reductions whose ends the CPU does not know.
  std::vector<StreamOrder::Mark> gathered_;  // [groups] Ends of gathers.
  std::vector<bool> is_on_compute_;          // [num parameters] True if its memory belongs to the compute stream.
  std::vector<bool> has_copy_;               // [num parameters] True if neighbors share a second copy.
  std::vector<int> made_as_;                 // [num parameters] In the order in which deepspeed.zero.Init makes them.
  int num_made_ = 0;
  bool has_host_grad_ = false;
  bool is_copied_ = false;  // True if the reduced bucket has a copy in one piece.
};

}  // namespace fsdp::simulator
