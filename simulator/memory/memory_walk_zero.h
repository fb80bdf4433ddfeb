#pragma once

// The part of the memory walk for DeepSpeed's ZeRO-1 and 2.
//
//   initialization copies the parameters into one flat buffer, and the rank's part of it into an fp32 one, or into
//                  one of their own dtype (bf16_master_weights_and_grads)
//   Backward       the first gradient of a pass allocates the buffer of reduce_bucket_size elements (two with
//                  overlap_comm); a gradient is copied there and freed. If one does not fit, the buffer is reduced
//                  first
//   ReduceBucket   copies a bucket of several ranks into one piece. Copies gradients that reach into the rank's part
//                  into one tensor, whole
//   FinishReduce   frees the buffers, and adds the gradients of later micro-batches to those of the first one
//   ClipGradNorm   the rank's gradients in fp64, one after the other
//   OptimizerStep  these in one piece, the same in fp32 if the copy is, and one temporary of that size (foreach)
//
// With overlap_comm, reductions have their own stream. A gradient that is larger than the bucket is reduced in place,
// and its memory returns when the CPU knows that this stream has passed it (record_stream, held_frees.h): at the end of
// the backward, when the CPU waits for the whole device, and if the queue of launches is full. The buffers are freed
// after that.
//
// With offload_optimizer, neither the fp32 part nor its gradients are on the device:
//
//   initialization clones the rank's part on its way to the host; a buffer as large as the largest parameter stays
//   Backward       clones a gradient that is larger than the bucket
//   ReduceBucket   sends gradients in the rank's part: takes the norm in fp64, DeepSpeed reads whether it is finite,
//                  and casts to fp32 on the device. Before the last micro-batch it sends them uncast, and brings them
//                  back to add them in the buffer above
//   FinishReduce   frees gradients of earlier micro-batches that are larger than the bucket
//   OptimizerStep  frees the norms of all gradients
//
// Sources: deepspeed/runtime/zero/stage_1_and_2.py (__init__, initialize_optimizer_states, setup_buckets,
// copy_grads_in_partition, allreduce_and_copy_with_multiple_ranks, independent_gradient_partition_epilogue,
// get_flat_partition, get_grad_norm_direct, step; with offload: reduce_independent_p_g_buckets_and_remove_grads,
// average_tensor, async_accumulate_grad_in_cpu_via_gpu, set_norm_for_param_grad_in_gpu,
// async_inplace_copy_grad_to_fp32_buffer_from_gpu, complete_grad_norm_calculation_for_cpu_offload), engine.py
// (backward), DeepSpeed 0.19.8.
//
// Not modeled: the scalars of overflow checks.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/frameworks/zero/zero_partition.h"
#include "core/plan/optimizer_table.h"
#include "simulator/memory/memory_walk_flat_optimizer.h"
#include "simulator/memory/memory_walk_zero_engine.h"

namespace fsdp::simulator {

template <class Sink>
class ZeroWalk final : public ZeroEngineWalk<Sink> {
  using Engine = ZeroEngineWalk<Sink>;

 public:
  explicit ZeroWalk(const WalkParts<Sink>& parts) : Engine(parts) {
    slices_ = slices_of_rank(buffer(), in_.layout->rank);
    is_in_part_.assign(bucket_of_.size(), false);
    for (const ZeroSlice& slice : slices_) is_in_part_[slice.parameter] = true;
    grads_.on_complete([this](int p) { take(p); });
  }

  /// Makes the engine around an existing model.
  void initialize() override {
    optimizer_.initialize();
    const std::int64_t padding = buffer().elements - buffer().begins.back();
    if (padding > 0) alloc(SingleTensor::ZeroPadding, padding * element_size(), MemoryCategory::Temp);
    alloc(SingleTensor::ZeroFlat, buffer().elements * element_size(), MemoryCategory::UnshardedParam);
    for (const int p : buffer().parameters) drop(ParameterTensor::Sharded, p);
    if (padding > 0) drop(SingleTensor::ZeroPadding);
    if (offloads()) return construct_on_host();
    if (casts()) alloc(SingleTensor::ZeroGrad, part_bytes(), MemoryCategory::Temp);
    alloc(SingleTensor::ZeroMaster, master_bytes(), MemoryCategory::ShardedParam);
    if (casts()) drop(SingleTensor::ZeroGrad);
    alloc(SingleTensor::ZeroGrad32, master_bytes(), MemoryCategory::ShardedGrad);
    drop(SingleTensor::ZeroGrad32);
  }

  void make_states() override {
    if (offloads() || std::exchange(has_states_, true)) return;
    const Optimizer& optimizer = in_.plan->optimizer;
    const std::int64_t moments = num_moments(optimizer);
    if (moments == 0) return;
    if (optimizer_row(optimizer).counts_steps && optimizer.implementation == OptimizerImplementation::Fused) {
      alloc(SingleTensor::ZeroStepCount, 4, MemoryCategory::OptState);
    }
    alloc(SingleTensor::ZeroFirstMoment, master_bytes(), MemoryCategory::OptState);
    if (moments > 1) alloc(SingleTensor::ZeroSecondMoment, master_bytes(), MemoryCategory::OptState);
  }

 private:
  using Engine::alloc;
  using Engine::bucket_of_;
  using Engine::buffer;
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
  using Engine::micro_batch_;
  using Engine::next_bucket_;
  using Engine::norms_;
  using Engine::offloads;
  using Engine::optimizer_;
  using Engine::overlaps;
  using Engine::put;
  using Engine::reduction_stream;
  using Engine::sink_;

  void prepare_reduce(const Instruction&) override { reduces_ = true; }

  void reduce_rest(const Instruction& step) override {
    if (waits()) {
      for (const int p : in_.layout->buckets[step.bucket].parameters) put(p);
    }
    reduce_bucket();
  }

  void check_overflow() override { sink_.collective(); }

  void clip() override {
    std::int64_t norms = 0;
    for (const ZeroSlice& slice : slices_) {
      Engine::take_norm(slice.parameter, slice.elements);
      norms += kNormSize;
    }
    if (norms > 0) Engine::join_norms(norms);
    sink_.collective();
    alloc(SingleTensor::ClipScalar, 4, MemoryCategory::Temp);
    for (const ZeroSlice& slice : slices_) drop(ParameterTensor::OptimizerTemp, slice.parameter);
    alloc(Engine::new_norm(), 4, MemoryCategory::Temp);
  }

  void update() override {
    if (offloads()) return Engine::drop_norms();
    // A single piece that is the whole part needs no copy.
    const bool is_copied = slices_.size() + (has_end_ ? 1 : 0) > 1;
    Engine::join_gradients(buffer().part_elements(), is_copied);
    const bool is_view = !casts() && !is_copied;
    if (!is_view) drop_parts();
    make_states();
    make_flat_optimizer_temporaries(in_, sink_, master_bytes());
    if (is_view) drop_parts();
    if (!is_view) drop(SingleTensor::ZeroGrad32);
  }

  // Gathers the updated parts, if there are several, and ends the step.
  void gather(const Instruction&) override { sink_.collective(); }
  void end_step() override {
    if (offloads()) return;
    drop(SingleTensor::ClipScalar);
    Engine::drop_last_norm();
  }

  std::int64_t part_bytes() const { return buffer().part_elements() * element_size(); }
  std::int64_t master_bytes() const { return master_size() * buffer().part_elements(); }
  bool cuts_gradients() const { return buffer().cuts_gradients; }
  // Stage 1 reduces nothing before the end of the backward.
  bool waits() const { return !cuts_gradients() && !overlaps(); }

  // The hook of a complete gradient.
  void take(int p) {
    make_buffers();
    if (reduces_ && !waits()) put(p);
  }

  void make_buffers() {
    if (std::exchange(has_buffers_, true)) return;
    const std::int64_t bytes = in_.plan->zero.reduce_bucket_size * element_size();
    alloc(SingleTensor::ZeroBucket, bytes, MemoryCategory::ReduceScatter);
    if (overlaps()) alloc(SingleTensor::ZeroOtherBucket, bytes, MemoryCategory::ReduceScatter);
  }

  void drop_buffers() {
    if (!std::exchange(has_buffers_, false)) return;
    drop(SingleTensor::ZeroBucket);
    if (overlaps()) drop(SingleTensor::ZeroOtherBucket);
  }

  void copy_into_bucket(int p) override {
    if (offloads() && is_larger_than_bucket(p)) {
      alloc(ParameterTensor::ClonedGrad, p, elements_of(p) * element_size(), MemoryCategory::UnshardedGrad);
    }
    if (offloads() || !is_larger_than_bucket(p)) grads_.drop(p);
  }

  void reduce_bucket() override {
    const GradientBucket& bucket = Engine::take_bucket();
    const std::vector<ZeroReduction> reductions = reductions_of(bucket, *in_.layout, *in_.plan);
    if (keeps_order()) {
      held_.order().wait(reduction_stream(), MemoryStream::Compute);
      held_.order().wait(MemoryStream::Compute, reduction_stream());
    }
    for (const ZeroReduction& sent : reductions) {
      if (sent.slices > 1) {
        alloc(SingleTensor::ZeroReduced, sent.elements * element_size(), MemoryCategory::ReduceScatter,
              reduction_stream());
      }
      sink_.collective();
      if (sent.slices > 1) drop(SingleTensor::ZeroReduced);
    }
    for (const int p : bucket.parameters) {
      if (offloads()) {
        send_to_host(p);
        continue;
      }
      if (is_in_part_[p]) make_part();
      if (!is_larger_than_bucket(p)) continue;
      if (is_in_part_[p] || cuts_gradients()) {
        // One slice is reduced in place, and the rank's own stays there.
        const auto is_in_place = [](const ZeroReduction& sent) { return sent.slices == 1; };
        drop_reduced(p, is_in_part_[p] || std::any_of(reductions.begin(), reductions.end(), is_in_place));
      } else {
        left_.push_back(p);
      }
    }
  }

  void drop_reduced(int p, bool is_used) { is_used ? Engine::drop_used_gradient(p) : grads_.drop(p); }

  // One tensor for the gradients of all parameters that reach into the rank's part.
  void make_part() {
    bool& has = has_finished_ ? has_later_part_ : has_part_;
    if (std::exchange(has, true)) return;
    alloc(has_finished_ ? SingleTensor::ZeroLaterPart : SingleTensor::ZeroPart,
          touched_elements(buffer(), in_.layout->rank) * element_size(), MemoryCategory::ShardedGrad,
          reduction_stream());
  }

  void finish_reduce() override {
    if (!std::exchange(reduces_, false)) return;
    next_bucket_ = 0;
    if (offloads()) return finish_sending();
    const bool is_first = !std::exchange(has_finished_, true);
    for (const ZeroSlice& slice : slices_) {
      if (bucket_of_[slice.parameter] >= 0) continue;
      const int id = in_.ids->of(ParameterTensor::MissingGrad, slice.parameter);
      const std::int64_t bytes = elements_of(slice.parameter) * element_size();
      if (is_first) sink_.alloc(id, bytes, MemoryStream::Compute, MemoryCategory::ShardedGrad);
    }
    make_end();
    if (keeps_order()) held_.finish_all();
    drop_buffers();
    // Stage 1 drops those of other ranks at the very end.
    for (const int p : left_) grads_.drop(p);
    left_.clear();
    if (std::exchange(has_later_part_, false)) drop(SingleTensor::ZeroLaterPart);
  }

  // The last part is longer than its parameters.
  void make_end() {
    std::int64_t elements = buffer().part_elements();
    for (const ZeroSlice& slice : slices_) elements -= slice.elements;
    if (elements == 0 || has_end_) return;
    has_end_ = true;
    alloc(SingleTensor::ZeroEnd, elements * element_size(), MemoryCategory::ShardedGrad);
  }

  void drop_parts() {
    for (const ZeroSlice& slice : slices_) {
      if (bucket_of_[slice.parameter] < 0) drop(ParameterTensor::MissingGrad, slice.parameter);
    }
    if (std::exchange(has_part_, false)) drop(SingleTensor::ZeroPart);
    if (std::exchange(has_end_, false)) drop(SingleTensor::ZeroEnd);
    has_finished_ = false;
  }

  // ---- with offload_optimizer --------------------------------------------------------------------------------------

  void construct_on_host() {
    alloc(SingleTensor::ZeroGrad, part_bytes(), MemoryCategory::Temp);
    drop(SingleTensor::ZeroGrad);
    std::int64_t largest = 0;
    for (const int p : buffer().parameters) largest = std::max(largest, elements_of(p));
    alloc(SingleTensor::ZeroHostGrad, largest * element_size(), MemoryCategory::Temp);
  }

  void send_to_host(int p) {
    const bool is_last = is_last_micro_batch();
    const auto slice =
        std::find_if(slices_.begin(), slices_.end(), [&](const ZeroSlice& s) { return s.parameter == p; });
    if (slice != slices_.end()) {
      // A gradient must have arrived before it is sent or added again.
      if (keeps_order() && cuts_gradients() && (micro_batch_ > 0 || !is_last)) held_.finish(sent_);
      if (is_last) cast_for_host(*slice);
      if (keeps_order()) sent_ = held_.order().submit(reduction_stream());
    }
    if (!is_larger_than_bucket(p)) return;
    const bool is_needed = slice == slices_.end() ? !cuts_gradients() : !is_last;
    is_needed ? left_.push_back(p) : drop_clone(p);
  }

  void cast_for_host(const ZeroSlice& slice) {
    make_norm_in_fp64(in_, sink_, slice.parameter, slice.elements, reduction_stream());
    norms_.push_back(slice.parameter);
    if (keeps_order()) held_.finish(held_.order().submit(reduction_stream()));
    if (!casts()) return;
    alloc(SingleTensor::ZeroGrad32, 4 * slice.elements, MemoryCategory::ShardedGrad, reduction_stream());
    drop(SingleTensor::ZeroGrad32);
  }

  void drop_clone(int p) {
    const int clone = in_.ids->of(ParameterTensor::ClonedGrad, p);
    keeps_order() ? held_.free_behind(clone, reduction_stream()) : sink_.free(clone);
  }

  void finish_sending() {
    if (keeps_order()) held_.finish_all();
    drop_buffers();
    // The CPU has waited for the device, which has had no work since.
    for (const int p : left_) drop(ParameterTensor::ClonedGrad, p);
    left_.clear();
  }

  void sum_norms() override { Engine::sum_norm(); }

  std::vector<ZeroSlice> slices_;  // Slices of the rank.
  std::vector<bool> is_in_part_;   // [num parameters] Reaches into the rank's part.
  std::vector<int> left_;          // Reduced gradients of other ranks that still exist.
  StreamOrder::Mark sent_;         // The last gradient that was sent to the host.
  bool reduces_ = false;
  bool has_buffers_ = false;
  bool has_finished_ = false;  // True after a reduced backward of this step.
  bool has_part_ = false;
  bool has_later_part_ = false;
  bool has_end_ = false;
};

}  // namespace fsdp::simulator
