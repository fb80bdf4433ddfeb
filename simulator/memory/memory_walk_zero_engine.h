#pragma once

// The common parts of DeepSpeed's ZeRO optimizers in the memory walk: the buffer in which gradients are reduced, norms
// in fp64, the updated gradients in one piece, and the order of a step.
//
//   Backward      divides the loss by the number of micro-batches, and scales it by 1
//   ReduceBucket  copies a gradient into the bucket as it comes; if it does not fit, the bucket is reduced first
//   ClipGradNorm  gradients in fp64, one after the other
//   OptimizerStep gradients in one piece, and the same in the dtype of the update if that differs
//
// Sources: deepspeed/runtime/zero/stage_1_and_2.py, stage3.py, engine.py (backward), DeepSpeed 0.19.8.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "simulator/memory/held_frees.h"
#include "simulator/memory/memory_walk_step.h"

namespace fsdp::simulator {

template <class Sink>
class ZeroEngineWalk : public StepWalk<Sink> {
 public:
  explicit ZeroEngineWalk(const WalkParts<Sink>& parts) : StepWalk<Sink>(parts) {
    bucket_of_.assign(in_.index->model->parameters.size(), -1);
    for (std::size_t b = 0; b < in_.layout->buckets.size(); ++b) {
      for (const int p : in_.layout->buckets[b].parameters) bucket_of_[p] = static_cast<int>(b);
    }
    last_micro_batch_ = in_.schedule->instructions.back().micro_batch;
  }

  void launch(std::int64_t kernels) override { held_.launch(MemoryStream::Compute, kernels); }

  void run(const Instruction& step) override {
    switch (step.kind) {
      case InstructionKind::PrepareReduce:
        return prepare_reduce(step);
      case InstructionKind::Backward:
        begin_backward(step);
        break;
      case InstructionKind::ReduceBucket:
        // Otherwise a gradient had to make room for another one. After the backward, its first gradient is freed.
        if (step.bucket < next_bucket_) return;
        calls_->end_hooks();
        calls_->drop_loss_gradient();
        return reduce_rest(step);
      case InstructionKind::FinishReduce:
        finish_reduce();
        end_loss();
        break;
      case InstructionKind::CheckOverflow:
        return check_overflow();
      case InstructionKind::ClipGradNorm:
        return offloads() ? sum_norms() : clip();
      case InstructionKind::OptimizerStep:
        return update();
      case InstructionKind::GatherParameters:
        return gather(step);
      case InstructionKind::ZeroGrad:
        end_step();
        break;
      default:
        break;
    }
    StepWalk<Sink>::run(step);
  }

 protected:
  using StepWalk<Sink>::in_;
  using StepWalk<Sink>::sink_;
  using StepWalk<Sink>::grads_;
  using StepWalk<Sink>::calls_;

  static constexpr std::int64_t kNormSize = 8;  // Norms are taken in fp64 (get_norm_dtype).

  /// The gradients of this backward are reduced.
  virtual void prepare_reduce(const Instruction& step) = 0;
  /// The backward is over, and reduces the last, partial bucket.
  virtual void reduce_rest(const Instruction& step) = 0;
  virtual void reduce_bucket() = 0;
  /// Copies a gradient into the bucket.
  virtual void copy_into_bucket(int p) = 0;
  /// All buckets of a backward are reduced.
  virtual void finish_reduce() = 0;
  virtual void check_overflow() = 0;
  virtual void clip() = 0;
  /// The same with offload, which takes norms while it sends gradients to the host.
  virtual void sum_norms() = 0;
  virtual void update() = 0;
  virtual void gather(const Instruction& step) = 0;
  virtual void end_step() = 0;

  const ZeroBuffer& buffer() const { return in_.layout->zero; }
  std::int64_t element_size() const { return size_of(buffer().dtype).count(); }
  std::int64_t master_size() const { return size_of(zero_master_dtype(*in_.plan)).count(); }
  std::int64_t elements_of(int p) const { return num_elements(in_.index->model->parameters[p].shape); }
  bool offloads() const { return in_.plan->cpu_offload; }
  bool casts() const { return buffer().dtype != zero_master_dtype(*in_.plan); }
  bool overlaps() const { return in_.plan->zero.overlap_comm; }
  bool is_larger_than_bucket(int p) const { return elements_of(p) > in_.plan->zero.reduce_bucket_size; }
  bool is_last_micro_batch() const { return micro_batch_ == last_micro_batch_; }
  MemoryStream reduction_stream() const { return overlaps() ? MemoryStream::ReduceScatter : MemoryStream::Compute; }
  SingleTensor new_norm() const { return is_other_norm_ ? SingleTensor::ZeroNorm : SingleTensor::ZeroNewNorm; }

  StreamOrder& order() { return held_.order(); }
  // Streams matter only then.
  bool keeps_order() const { return overlaps() && held_.are_held(); }

  void alloc(SingleTensor what, std::int64_t bytes, MemoryCategory category,
             MemoryStream stream = MemoryStream::Compute) {
    sink_.alloc(in_.ids->of(what), bytes, stream, category);
  }
  void alloc(ParameterTensor what, int p, std::int64_t bytes, MemoryCategory category,
             MemoryStream stream = MemoryStream::Compute) {
    sink_.alloc(in_.ids->of(what, p), bytes, stream, category);
  }
  void drop(SingleTensor what) { sink_.free(in_.ids->of(what)); }
  void drop(ParameterTensor what, int p) { sink_.free(in_.ids->of(what, p)); }
  // The stream of the reductions has copied or reduced it.
  void drop_used_gradient(int p) {
    if (!keeps_order()) return grads_.drop(p);
    grads_.drop_used(p, [this](int tensor) { held_.free_behind(tensor, reduction_stream()); });
  }

  // Called before each part of a backward.
  void begin_backward(const Instruction& step) {
    micro_batch_ = step.micro_batch;
    if (std::exchange(is_in_backward_, true)) return;
    alloc(SingleTensor::ZeroLossPart, 4, MemoryCategory::Temp);
    alloc(SingleTensor::ZeroScaledLoss, 4, MemoryCategory::Temp);
  }
  void end_loss() {
    if (!std::exchange(is_in_backward_, false)) return;
    drop(SingleTensor::ZeroScaledLoss);
    drop(SingleTensor::ZeroLossPart);
  }

  // A gradient is complete. An op makes several in an order of its own: one that belongs into a later bucket waits for
  // the others.
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
      copy_into_bucket(ready);
      next = waiting_.begin();
    }
  }

  const GradientBucket& take_bucket() {
    num_there_ = 0;
    return in_.layout->buckets[static_cast<std::size_t>(next_bucket_++)];
  }

  // The norm of one gradient, which stays as one number.
  void take_norm(int p, std::int64_t elements) {
    alloc(SingleTensor::ZeroNormInput, kNormSize * elements, MemoryCategory::Temp);
    alloc(ParameterTensor::OptimizerTemp, p, kNormSize, MemoryCategory::Temp);
    drop(SingleTensor::ZeroNormInput);
  }
  void join_norms(std::int64_t bytes) {
    alloc(SingleTensor::ClipNorms, bytes, MemoryCategory::Temp);
    drop(SingleTensor::ClipNorms);
  }
  // With offload DeepSpeed sends the sum of norms that it read one by one.
  void sum_norm() {
    alloc(SingleTensor::ClipScalar, 4, MemoryCategory::Temp);
    sink_.collective();
    drop(SingleTensor::ClipScalar);
  }
  void drop_norms() {
    for (const int p : norms_) drop(ParameterTensor::OptimizerTemp, p);
    norms_.clear();
  }
  // The engine keeps the norm of the step before.
  void drop_last_norm() {
    is_other_norm_ = !is_other_norm_;
    if (std::exchange(has_norm_, true)) drop(new_norm());
  }

  // The updated gradients of `elements`: in one piece if there are several, and cast. The result stays as ZeroGrad32,
  // unless it is a single gradient of that dtype.
  void join_gradients(std::int64_t elements, bool are_several) {
    const SingleTensor flat = casts() ? SingleTensor::ZeroGrad : SingleTensor::ZeroGrad32;
    if (are_several) alloc(flat, elements * element_size(), MemoryCategory::ShardedGrad);
    if (casts()) alloc(SingleTensor::ZeroGrad32, master_size() * elements, MemoryCategory::ShardedGrad);
    if (casts() && are_several) drop(flat);
  }

  HeldFrees<Sink> held_{sink_};
  std::vector<int> bucket_of_;  // [num parameters] -1 if no gradient comes.
  std::vector<int> norms_;      // Parameters whose gradients' norms exist, with offload.
  int next_bucket_ = 0;
  int micro_batch_ = 0;
  bool has_states_ = false;

 private:
  // Bucket of the next gradient: after the current one, if all of its gradients exist.
  int open_bucket() const {
    return next_bucket_ + (num_there_ == in_.layout->buckets[next_bucket_].parameters.size() ? 1 : 0);
  }

  std::vector<int> waiting_;   // Gradients on their way into the bucket,
  std::size_t num_there_ = 0;  // and how many are in it.
  int last_micro_batch_ = 0;
  bool is_in_backward_ = false;
  bool has_norm_ = false;
  bool is_other_norm_ = false;
};

}  // namespace fsdp::simulator
