#pragma once

// What gathers of ZeRO-3 allocate with qwZ of ZeRO++ (zero_quantized_weights).
//
//   send   the output of the gather, a byte an element; the rank's parts in one piece where they are several; the same
//          in fp16 where they are not; scales and integers of the rank; the scales of all
//   wait   what the rank has sent goes; what has come, in fp16; of several parameters each is cut out of it, and cast
//          where it is computed with in another dtype. Of one parameter it is cast as it is, or is the parameter
//   drop   the output, its scales and what was made of them
//
// NCCL's work holds what a rank has sent until somebody waits for it. PyTorch's watchdog may see earlier that it has
// ended; on the stub GPU, where it ends at once, it does within a tenth of a second.
//
// Sources: deepspeed/runtime/zero/partition_parameters.py (CUDAQuantizer, _all_gather_sequential,
// _all_gather_coalesced, AllGatherHandle.wait, AllGatherCoalescedHandle.wait), csrc/quantization/pt_binding.cpp,
// DeepSpeed 0.19.8.

#include <cstdint>

#include "core/plan/zero_quantization.h"
#include "simulator/memory/memory_walk.h"

namespace fsdp::simulator {

template <class Sink>
class QuantizedGathers {
 public:
  QuantizedGathers(const WalkInput& input, Sink& sink, MemoryStream stream)
      : in_(input), sink_(sink), stream_(stream) {}

  void send(const ParameterGroup& group, std::int64_t ranks) {
    const std::int64_t elements = elements_of(group);
    const std::int64_t part = elements / ranks;
    const std::int64_t scales = size_of(Dtype::Float32).count() * quantization_groups(part);
    alloc(ParameterTensor::Fetched, group, elements);
    if (is_joined(group)) alloc(SingleTensor::ZeroJoined, part * size_of(dtype_of(group)).count());
    if (is_cast(group)) {
      alloc(SingleTensor::ZeroHalf, part * kHalf);
      if (is_joined(group)) drop(SingleTensor::ZeroJoined);
    }
    alloc(ParameterTensor::PartScales, group, scales);
    alloc(ParameterTensor::QuantizedPart, group, part);
    if (is_cast(group)) {
      drop(SingleTensor::ZeroHalf);
    } else if (is_joined(group)) {
      drop(SingleTensor::ZeroJoined);
    }
    alloc(ParameterTensor::Scales, group, scales * ranks);
    sink_.collective();
    sink_.collective();
  }

  void wait(const ParameterGroup& group) {
    drop(ParameterTensor::QuantizedPart, group);
    drop(ParameterTensor::PartScales, group);
    if (!is_joined(group) && !is_cast(group)) {
      make_parameter(group.parameters.front());
    } else {
      alloc(ParameterTensor::Dequantized, group, elements_of(group) * kHalf);
      for (const int p : group.parameters) cut(p, group);
    }
    if (!is_joined(group)) this->drop(group);
  }

  void drop(const ParameterGroup& group) {
    if (is_joined(group) || is_cast(group)) drop(ParameterTensor::Dequantized, group);
    drop(ParameterTensor::Fetched, group);
    drop(ParameterTensor::Scales, group);
  }

 private:
  static constexpr std::int64_t kHalf = 2;

  static bool is_joined(const ParameterGroup& group) { return group.parameters.size() > 1; }
  Dtype dtype_of(const ParameterGroup& group) const { return in_.layout->parameter_dtype[group.parameters.front()]; }
  bool is_cast(const ParameterGroup& group) const { return dtype_of(group) != Dtype::Float16; }
  std::int64_t elements_of(int p) const { return num_elements(in_.index->model->parameters[p].shape); }
  std::int64_t elements_of(const ParameterGroup& group) const {
    std::int64_t elements = 0;
    for (const int p : group.parameters) elements += elements_of(p);
    return elements;
  }

  void cut(int p, const ParameterGroup& group) {
    const bool is_copied_twice = is_joined(group) && is_cast(group);
    if (is_copied_twice) alloc(SingleTensor::ZeroHalf, elements_of(p) * kHalf);
    make_parameter(p);
    if (is_copied_twice) drop(SingleTensor::ZeroHalf);
  }

  void make_parameter(int p) {
    sink_.alloc(in_.ids->of(ParameterTensor::Unsharded, p),
                elements_of(p) * size_of(in_.layout->parameter_dtype[p]).count(), stream_,
                MemoryCategory::UnshardedParam);
  }

  void alloc(ParameterTensor what, const ParameterGroup& group, std::int64_t bytes) {
    sink_.alloc(in_.ids->of(what, group.last), bytes, stream_, MemoryCategory::AllGather);
  }
  void alloc(SingleTensor what, std::int64_t bytes) {
    sink_.alloc(in_.ids->of(what), bytes, stream_, MemoryCategory::Temp);
  }
  void drop(ParameterTensor what, const ParameterGroup& group) { sink_.free(in_.ids->of(what, group.last)); }
  void drop(SingleTensor what) { sink_.free(in_.ids->of(what)); }

  const WalkInput& in_;
  Sink& sink_;
  MemoryStream stream_;
};

}  // namespace fsdp::simulator
