#pragma once

// The part of the memory walk that knows DeepSpeed's ZeRO-1 and 2.
//
//   initialization the parameters are copied into one flat buffer, and the rank's part of it into an fp32 one, or into
//                  one of their own dtype (bf16_master_weights_and_grads)
//   Backward       the first gradient of a pass brings the buffer of reduce_bucket_size elements (two with
//                  overlap_comm); a gradient is copied there and goes. One without a place has the buffer reduced first
//   ReduceBucket   a bucket of several ranks is copied into one piece. Gradients that reach into the rank's part are
//                  copied into one tensor, whole
//   FinishReduce   the buffers go, and what later micro-batches have kept is added to what the first one kept
//   ClipGradNorm   the rank's gradients in fp64, one after the other
//   OptimizerStep  they in one piece, the same in fp32 where the copy is, and one temporary of that size (foreach)
//
// With overlap_comm, reductions have their own stream. A gradient that is larger than the bucket is reduced in place,
// and its memory comes back when the CPU knows that this stream is past it (record_stream, held_frees.h): at the end of
// the backward, when the CPU waits for the whole device, and when the queue of launches is full. The buffers are freed
// after that.
//
// With offload_optimizer neither the fp32 part nor gradients of it are on the device:
//
//   initialization the rank's part is cloned on its way to the host; a buffer as large as the largest parameter stays
//   Backward       a gradient that is larger than the bucket is cloned
//   ReduceBucket   what reaches into the rank's part is sent: its norm is taken in fp64, DeepSpeed reads whether it is
//                  finite, and it is cast to fp32 on the device. Before the last micro-batch it is sent as it is, and
//                  comes back to be added in the buffer above
//   FinishReduce   gradients of earlier micro-batches that are larger than the bucket go
//   OptimizerStep  nothing; the norms of all gradients go
//
// Sources: deepspeed/runtime/zero/stage_1_and_2.py (__init__, initialize_optimizer_states, setup_buckets,
// copy_grads_in_partition, allreduce_and_copy_with_multiple_ranks, independent_gradient_partition_epilogue,
// get_flat_partition, get_grad_norm_direct, step; with offload: reduce_independent_p_g_buckets_and_remove_grads,
// average_tensor, async_accumulate_grad_in_cpu_via_gpu, set_norm_for_param_grad_in_gpu,
// async_inplace_copy_grad_to_fp32_buffer_from_gpu, complete_grad_norm_calculation_for_cpu_offload),
// engine.py (backward), DeepSpeed 0.19.8.
//
// Not modeled: the scalars by which overflows are found.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/plan/optimizer_table.h"
#include "core/plan/zero_partition.h"
#include "simulator/memory/held_frees.h"
#include "simulator/memory/memory_walk.h"
#include "simulator/memory/memory_walk_flat_optimizer.h"
#include "simulator/memory/memory_walk_gradients.h"

namespace fsdp::simulator {

template <class Sink>
class ZeroWalk {
 public:
  ZeroWalk(const WalkInput& input, Sink& sink, GradientWalk<Sink>& grads) : in_(input), sink_(sink), grads_(grads) {
    if (!is_zero()) return;
    const std::size_t num_parameters = in_.index->model->parameters.size();
    slices_ = slices_of_rank(buffer(), in_.layout->rank);
    is_in_part_.assign(num_parameters, false);
    for (const ZeroSlice& slice : slices_) is_in_part_[slice.parameter] = true;
    bucket_of_.assign(num_parameters, -1);
    for (std::size_t b = 0; b < in_.layout->buckets.size(); ++b) {
      for (const int p : in_.layout->buckets[b].parameters) bucket_of_[p] = static_cast<int>(b);
    }
    last_micro_batch_ = in_.schedule->instructions.back().micro_batch;
    grads_.on_complete([this](int p) { take(p); });
  }
  ZeroWalk(const ZeroWalk&) = delete;
  ZeroWalk& operator=(const ZeroWalk&) = delete;

  bool is_zero() const { return buffer().ranks > 0 && in_.layout->hooked.empty(); }

  /// The engine is made around a model that is there.
  void construct() {
    const std::int64_t padding = buffer().elements - buffer().begins.back();
    if (padding > 0) alloc(SingleTensor::ZeroPadding, padding * element_size(), MemoryCategory::Temp);
    alloc(SingleTensor::ZeroFlat, buffer().elements * element_size(), MemoryCategory::UnshardedParam);
    for (const int p : buffer().parameters) sink_.free(in_.ids->of(ParameterTensor::Sharded, p));
    if (padding > 0) drop(SingleTensor::ZeroPadding);
    if (offloads()) return construct_on_host();
    if (casts()) alloc(SingleTensor::ZeroGrad, part_bytes(), MemoryCategory::Temp);
    alloc(SingleTensor::ZeroMaster, master_bytes(), MemoryCategory::ShardedParam);
    if (casts()) drop(SingleTensor::ZeroGrad);
    alloc(SingleTensor::ZeroGrad32, master_bytes(), MemoryCategory::ShardedGrad);
    drop(SingleTensor::ZeroGrad32);
  }

  void make_states_once() {
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

  /// The gradients of this backward are reduced.
  void prepare_reduce() { reduces_ = true; }

  /// The loss is divided by the number of micro-batches, and scaled by 1. Called before each part of a backward.
  void begin_backward(const Instruction& step) {
    micro_batch_ = step.micro_batch;
    if (std::exchange(is_in_backward_, true)) return;
    alloc(SingleTensor::ZeroLossPart, 4, MemoryCategory::Temp);
    alloc(SingleTensor::ZeroScaledLoss, 4, MemoryCategory::Temp);
  }

  /// A bucket that no gradient had to make room for: the backward is over.
  bool is_left(const Instruction& step) const { return step.bucket >= next_bucket_; }
  void reduce(const Instruction& step) {
    if (!is_left(step)) return;
    if (waits()) {
      for (const int p : in_.layout->buckets[step.bucket].parameters) put(p);
    }
    reduce_bucket();
  }

  void finish_backward() {
    if (std::exchange(reduces_, false)) finish_reduce();
    if (!std::exchange(is_in_backward_, false)) return;
    drop(SingleTensor::ZeroScaledLoss);
    drop(SingleTensor::ZeroLossPart);
  }

  void check_overflow() { sink_.collective(); }

  void clip() {
    if (offloads()) return sum_norms();
    std::int64_t norms = 0;
    for (const ZeroSlice& slice : slices_) {
      alloc(SingleTensor::ZeroNormInput, kNormSize * slice.elements, MemoryCategory::Temp);
      alloc(ParameterTensor::OptimizerTemp, slice.parameter, kNormSize, MemoryCategory::Temp);
      drop(SingleTensor::ZeroNormInput);
      norms += kNormSize;
    }
    if (norms > 0) {
      alloc(SingleTensor::ClipNorms, norms, MemoryCategory::Temp);
      drop(SingleTensor::ClipNorms);
    }
    sink_.collective();
    alloc(SingleTensor::ClipScalar, 4, MemoryCategory::Temp);
    for (const ZeroSlice& slice : slices_) sink_.free(in_.ids->of(ParameterTensor::OptimizerTemp, slice.parameter));
    alloc(new_norm(), 4, MemoryCategory::Temp);
  }

  void step() {
    if (offloads()) return drop_norms();
    const SingleTensor flat = casts() ? SingleTensor::ZeroGrad : SingleTensor::ZeroGrad32;
    // One piece that is the whole part is taken as it is.
    const bool is_copied = slices_.size() + (has_end_ ? 1 : 0) > 1;
    if (is_copied) alloc(flat, part_bytes(), MemoryCategory::ShardedGrad);
    if (casts()) alloc(SingleTensor::ZeroGrad32, master_bytes(), MemoryCategory::ShardedGrad);
    if (casts() && is_copied) drop(flat);
    const bool is_view = !casts() && !is_copied;
    if (!is_view) drop_parts();
    make_states_once();
    make_flat_optimizer_temporaries(in_, sink_, master_bytes());
    if (is_view) drop_parts();
    if (!is_view) drop(SingleTensor::ZeroGrad32);
  }

  /// The computation was given so many kernels.
  void launch(std::int64_t kernels) { held_.launch(MemoryStream::Compute, kernels); }

  /// The updated parts are gathered, where there are several, and the step is over.
  void gather() { sink_.collective(); }
  void end_step() {
    if (offloads()) return;
    drop(SingleTensor::ClipScalar);
    // The engine has kept the norm of the step before.
    is_other_norm_ = !is_other_norm_;
    if (std::exchange(has_norm_, true)) drop(new_norm());
  }

 private:
  static constexpr std::int64_t kNormSize = 8;  // Norms are taken in fp64 (get_norm_dtype).

  const ZeroBuffer& buffer() const { return in_.layout->zero; }
  std::int64_t element_size() const { return size_of(buffer().dtype).count(); }
  std::int64_t part_bytes() const { return buffer().part_elements() * element_size(); }
  std::int64_t master_size() const { return size_of(zero_master_dtype(*in_.plan)).count(); }
  std::int64_t master_bytes() const { return master_size() * buffer().part_elements(); }
  bool offloads() const { return in_.plan->cpu_offload; }
  bool casts() const { return buffer().dtype != zero_master_dtype(*in_.plan); }
  bool is_first_stage() const { return in_.plan->runtime.framework == Framework::Zero1; }
  bool overlaps() const { return in_.plan->zero.overlap_comm; }
  // Stage 1 reduces nothing before the end of the backward.
  bool waits() const { return is_first_stage() && !overlaps(); }
  MemoryStream reduction_stream() const { return overlaps() ? MemoryStream::ReduceScatter : MemoryStream::Compute; }
  SingleTensor new_norm() const { return is_other_norm_ ? SingleTensor::ZeroNorm : SingleTensor::ZeroNewNorm; }

  void alloc(SingleTensor what, std::int64_t bytes, MemoryCategory category,
             MemoryStream stream = MemoryStream::Compute) {
    sink_.alloc(in_.ids->of(what), bytes, stream, category);
  }
  void alloc(ParameterTensor what, int p, std::int64_t bytes, MemoryCategory category,
             MemoryStream stream = MemoryStream::Compute) {
    sink_.alloc(in_.ids->of(what, p), bytes, stream, category);
  }
  void drop(SingleTensor what) { sink_.free(in_.ids->of(what)); }

  // The hook of a gradient that is complete.
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

  std::int64_t elements_of(int p) const { return num_elements(in_.index->model->parameters[p].shape); }
  bool is_larger_than_buffer(int p) const { return elements_of(p) > in_.plan->zero.reduce_bucket_size; }

  // An op hands several gradients out in an order of its own: one that belongs into a later bucket waits for the
  // others.
  void put(int p) {
    waiting_.push_back(p);
    const auto may_go = [&](int other) { return bucket_of_[other] == open_bucket(); };
    for (auto next = waiting_.begin(); next != waiting_.end();) {
      next = std::find_if(waiting_.begin(), waiting_.end(), may_go);
      if (next == waiting_.end()) return;
      const int ready = *next;
      waiting_.erase(next);
      if (bucket_of_[ready] > next_bucket_) reduce_bucket();
      ++num_there_;
      if (offloads() && is_larger_than_buffer(ready)) {
        alloc(ParameterTensor::ClonedGrad, ready, elements_of(ready) * element_size(), MemoryCategory::UnshardedGrad);
      }
      if (offloads() || !is_larger_than_buffer(ready)) grads_.drop(ready);
      next = waiting_.begin();
    }
  }

  // Bucket of the next gradient: after the one that is being filled, if all gradients of that one are there.
  int open_bucket() const {
    return next_bucket_ + (num_there_ == in_.layout->buckets[next_bucket_].parameters.size() ? 1 : 0);
  }

  void reduce_bucket() {
    const GradientBucket& bucket = in_.layout->buckets[next_bucket_++];
    num_there_ = 0;
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
      if (!is_larger_than_buffer(p)) continue;
      if (is_in_part_[p] || !is_first_stage()) {
        // One slice is reduced in place, and the rank's own comes back there.
        const auto is_in_place = [](const ZeroReduction& sent) { return sent.slices == 1; };
        drop_reduced(p, is_in_part_[p] || std::any_of(reductions.begin(), reductions.end(), is_in_place));
      } else {
        left_.push_back(p);
      }
    }
  }

  void drop_reduced(int p, bool is_used) {
    if (!keeps_order() || !is_used) return grads_.drop(p);
    grads_.drop_used(p, [this](int tensor) { held_.free_behind(tensor, reduction_stream()); });
  }
  // Streams matter to nobody else.
  bool keeps_order() const { return overlaps() && held_.are_held(); }

  // One tensor for the gradients of all parameters that reach into the rank's part.
  void make_part() {
    bool& has = has_finished_ ? has_later_part_ : has_part_;
    if (std::exchange(has, true)) return;
    alloc(has_finished_ ? SingleTensor::ZeroLaterPart : SingleTensor::ZeroPart,
          touched_elements(buffer(), in_.layout->rank) * element_size(), MemoryCategory::ShardedGrad,
          reduction_stream());
  }

  void finish_reduce() {
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
    // Stage 1 forgets those of other ranks at the very end.
    for (const int p : left_) grads_.drop(p);
    left_.clear();
    if (std::exchange(has_later_part_, false)) drop(SingleTensor::ZeroLaterPart);
  }

  // The last part is longer than what there is of parameters.
  void make_end() {
    std::int64_t elements = buffer().part_elements();
    for (const ZeroSlice& slice : slices_) elements -= slice.elements;
    if (elements == 0 || has_end_) return;
    has_end_ = true;
    alloc(SingleTensor::ZeroEnd, elements * element_size(), MemoryCategory::ShardedGrad);
  }

  void drop_parts() {
    for (const ZeroSlice& slice : slices_) {
      if (bucket_of_[slice.parameter] < 0) sink_.free(in_.ids->of(ParameterTensor::MissingGrad, slice.parameter));
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
    const bool is_last = micro_batch_ == last_micro_batch_;
    const auto slice =
        std::find_if(slices_.begin(), slices_.end(), [&](const ZeroSlice& s) { return s.parameter == p; });
    if (slice != slices_.end()) {
      // A gradient must have arrived before it is sent or added again.
      if (keeps_order() && !is_first_stage() && (micro_batch_ > 0 || !is_last)) held_.finish(sent_);
      if (is_last) cast_for_host(*slice);
      if (keeps_order()) sent_ = held_.order().submit(reduction_stream());
    }
    if (!is_larger_than_buffer(p)) return;
    const bool is_needed = slice == slices_.end() ? is_first_stage() : !is_last;
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
    // The device has been waited for, and has been given nothing since.
    for (const int p : left_) sink_.free(in_.ids->of(ParameterTensor::ClonedGrad, p));
    left_.clear();
  }

  // DeepSpeed reads them one by one, and sends their sum.
  void sum_norms() {
    alloc(SingleTensor::ClipScalar, 4, MemoryCategory::Temp);
    sink_.collective();
    drop(SingleTensor::ClipScalar);
  }

  void drop_norms() {
    for (const int p : norms_) sink_.free(in_.ids->of(ParameterTensor::OptimizerTemp, p));
    norms_.clear();
  }

  const WalkInput& in_;
  Sink& sink_;
  GradientWalk<Sink>& grads_;
  HeldFrees<Sink> held_{sink_};
  std::vector<ZeroSlice> slices_;  // Slices of the rank.
  std::vector<bool> is_in_part_;   // [num parameters] Reaches into the rank's part.
  std::vector<int> bucket_of_;     // [num parameters] -1: no gradient comes.
  std::vector<int> waiting_;       // Gradients on their way into a bucket,
  std::size_t num_there_ = 0;      // and how many are in the one that is being filled.
  std::vector<int> left_;          // Reduced gradients of other ranks that are still there.
  std::vector<int> norms_;         // Parameters whose gradients' norms are there, with offload.
  StreamOrder::Mark sent_;         // The last gradient that went to the host.
  int next_bucket_ = 0;
  int micro_batch_ = 0;
  int last_micro_batch_ = 0;
  bool reduces_ = false;
  bool is_in_backward_ = false;
  bool has_buffers_ = false;
  bool has_finished_ = false;  // A backward of this step has been reduced.
  bool has_part_ = false;
  bool has_later_part_ = false;
  bool has_end_ = false;
  bool has_states_ = false;
  bool has_norm_ = false;
  bool is_other_norm_ = false;
};

}  // namespace fsdp::simulator
