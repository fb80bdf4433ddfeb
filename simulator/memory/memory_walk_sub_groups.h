#pragma once

// Memory of ZeRO-3's optimizer for each sub-group that it updates on the device: a copy in its own dtype, moments, and
// gradients if a part of the optimizer is on the host.
//
// Sources: deepspeed/runtime/zero/stage3.py (_create_fp32_partitions, initialize_optimizer_states), DeepSpeed 0.19.8.

#include <algorithm>
#include <cstdint>

#include "core/frameworks/zero/zero_partition.h"
#include "core/plan/optimizer_table.h"
#include "simulator/memory/memory_walk.h"

namespace fsdp::simulator {

template <class Sink>
class SubGroups {
 public:
  SubGroups(const WalkInput& input, Sink& sink) : in_(input), sink_(sink) {}

  std::size_t size() const { return buffer().num_groups(); }
  std::size_t size_on_device() const { return groups_on_device(buffer(), *in_.plan); }
  std::int64_t elements(std::size_t g) const { return buffer().group_elements(g); }

  void make_masters() {
    std::int64_t largest = 0;
    // The cast gradients are cloned, and freed after the next sub-group has been cast.
    const auto cast_of = [](std::size_t g) { return g % 2 == 0 ? SingleTensor::ZeroGrad32 : SingleTensor::ZeroGrad; };
    const bool casts = buffer().dtype != zero_master_dtype(*in_.plan);
    const std::size_t groups = size_on_device();
    for (std::size_t g = 0; g < groups; ++g) {
      if (casts) make_temporary(cast_of(g), elements(g));
      if (casts && g > 0) drop(cast_of(g - 1));
      make(ParameterTensor::GroupMaster, g, MemoryCategory::ShardedParam);
      largest = std::max(largest, elements(g));
    }
    if (casts && groups > 0) drop(cast_of(groups - 1));
    if (in_.plan->cpu_offload) {
      for (std::size_t g = 0; g < groups; ++g) make(ParameterTensor::GroupGrad, g, MemoryCategory::ShardedGrad);
      return;
    }
    make_temporary(SingleTensor::ZeroGrad32, largest);
    drop(SingleTensor::ZeroGrad32);
  }

  void make_states(std::size_t g) {
    const Optimizer& optimizer = in_.plan->optimizer;
    const std::int64_t moments = num_moments(optimizer);
    if (moments == 0) return;
    if (optimizer_row(optimizer).counts_steps && optimizer.implementation == OptimizerImplementation::Fused &&
        !in_.plan->cpu_offload) {
      sink_.alloc(in_.ids->of(ParameterTensor::StepCount, first_of(g)), 4, MemoryStream::Compute,
                  MemoryCategory::OptState);
    }
    make(ParameterTensor::FirstMoment, g, MemoryCategory::OptState);
    if (moments > 1) make(ParameterTensor::SecondMoment, g, MemoryCategory::OptState);
  }

 private:
  const ZeroBuffer& buffer() const { return in_.layout->zero; }
  std::int64_t bytes_of(std::int64_t elements) const {
    return size_of(zero_master_dtype(*in_.plan)).count() * elements;
  }
  int first_of(std::size_t g) const { return buffer().parameters[buffer().group_begins[g]]; }
  void make(ParameterTensor what, std::size_t g, MemoryCategory category) {
    sink_.alloc(in_.ids->of(what, first_of(g)), bytes_of(elements(g)), MemoryStream::Compute, category);
  }
  void make_temporary(SingleTensor what, std::int64_t elements) {
    sink_.alloc(in_.ids->of(what), bytes_of(elements), MemoryStream::Compute, MemoryCategory::Temp);
  }
  void drop(SingleTensor what) { sink_.free(in_.ids->of(what)); }

  const WalkInput& in_;
  Sink& sink_;
};

}  // namespace fsdp::simulator
