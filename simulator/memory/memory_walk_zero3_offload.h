#pragma once

// Parts of ZeRO-3's walk for plans with offload: the optimizer of the sub-groups on the device, and gradients that wait
// there for the optimizer if a drive has the rest.
//
// With the optimizer on a drive, each part of a gradient is cast to fp32 on the device, and the parts of a bucket live
// until the last of them is ready. Then whole pieces of files are copied away. A part with a remainder, or one that is
// too small for a file, stays until its sub-group is updated.
//
// Sources: deepspeed/runtime/zero/stage3.py (partition_grads, _offload_grad_partition_at_boundary),
// runtime/swap_tensor/optimizer_utils.py (_adjust_for_misaligned_lengths, _swap_out_gradients,
// release_unswapped_gradients), DeepSpeed 0.19.8.

#include <cstdint>
#include <vector>

#include "core/frameworks/zero/zero_nvme.h"
#include "simulator/memory/memory_walk.h"

namespace fsdp::simulator {

/// PyTorch's AdamW beside DeepSpeedCPUAdam, which is made with a tensor of one element.
template <class Sink>
class SecondOptimizer {
 public:
  SecondOptimizer(const WalkInput& input, Sink& sink) : in_(input), sink_(sink) {}

  void make(std::int64_t element_size) {
    sink_.alloc(in_.ids->of(SingleTensor::ZeroBackup), 4, MemoryStream::Compute, MemoryCategory::OptState);
    made_ = SingleTensor::ZeroBackup;
    has_it_ = true;
    if (element_size == 4) return;
    sink_.alloc(in_.ids->of(SingleTensor::ZeroNorm), element_size, MemoryStream::Compute, MemoryCategory::OptState);
    sink_.free(in_.ids->of(SingleTensor::ZeroBackup));
    made_ = SingleTensor::ZeroNorm;
  }

  /// The first sub-group that it updates replaces its initial tensor.
  void drop_first() {
    if (!has_it_) return;
    has_it_ = false;
    sink_.free(in_.ids->of(made_));
  }

 private:
  const WalkInput& in_;
  Sink& sink_;
  SingleTensor made_ = SingleTensor::ZeroBackup;
  bool has_it_ = false;
};

/// Gradients on the device for the part of the optimizer on a drive.
template <class Sink>
class DriveGradients {
 public:
  DriveGradients(const WalkInput& input, Sink& sink) : in_(input), sink_(sink) {
    const ZeroBuffer& buffer = in_.layout->zero;
    if (!uses_drive(*in_.plan)) return;
    waits_for_.assign(in_.index->model->parameters.size(), -1);
    const std::vector<bool> on_drive = groups_on_drive(buffer, *in_.plan);
    for (std::size_t g = 0; g < on_drive.size(); ++g) {
      if (!on_drive[g]) continue;
      for (std::size_t i = buffer.group_begins[g]; i < buffer.group_begins[g + 1]; ++i) {
        waits_for_[buffer.parameters[i]] = static_cast<int>(g);
      }
    }
  }

  /// True if the parameter's gradient goes to the drive, through a tensor of its own.
  bool takes(int p) const { return !waits_for_.empty() && waits_for_[p] >= 0; }

  /// For `elements`, in the dtype of the optimizer's copy.
  void take(int p, std::int64_t elements, MemoryStream stream) {
    sink_.alloc(in_.ids->of(ParameterTensor::DriveGrad, p), 4 * elements, stream, MemoryCategory::ShardedGrad);
    bucket_.push_back({p, elements});
  }

  /// All gradients of a bucket are ready. Returns true if some were copied to the host, for which the CPU waits.
  bool write() {
    bool writes = false;
    for (const auto& [p, elements] : bucket_) {
      const std::int64_t written = gradient_elements_on_drive(elements, *in_.plan);
      writes = writes || written > 0;
      if (written == elements) {
        sink_.free(in_.ids->of(ParameterTensor::DriveGrad, p));
      } else {
        waiting_.push_back(p);
      }
    }
    bucket_.clear();
    return writes;
  }

  /// The optimizer has updated all sub-groups.
  void drop_all() {
    for (const int p : waiting_) sink_.free(in_.ids->of(ParameterTensor::DriveGrad, p));
    waiting_.clear();
  }

 private:
  struct Part {
    int parameter = 0;
    std::int64_t elements = 0;
  };

  const WalkInput& in_;
  Sink& sink_;
  std::vector<int> waits_for_;  // [num parameters] Sub-group. -1 if its gradient is not on the drive.
  std::vector<Part> bucket_;
  std::vector<int> waiting_;
};

}  // namespace fsdp::simulator
