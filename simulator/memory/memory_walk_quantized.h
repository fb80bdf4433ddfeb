#pragma once

// ZeRO-3's allocations with ZeRO++.
//
// A gather with qwZ (zero_quantized_weights):
//
//   send   the output of the gather, a byte an element; the rank's parts in one piece if there are several; the same
//          in fp16 if they have another dtype; scales and integers of the rank; the scales of all
//   wait   frees the rank's sent data; the received data in fp16; cuts each of several parameters out of it, and casts
//          it if it is computed with in another dtype. A single parameter is cast directly, or is the received data
//   drop   the output, its scales and everything made of them
//
// NCCL's work holds the sent data until something waits for it. PyTorch's watchdog may notice its end earlier; on the
// stub GPU, where it ends at once, that takes less than a tenth of a second.
//
// A bucket with qgZ (zero_quantized_gradients) over several nodes, one gradient after the other: scales and integers of
// 4 bits, the same again for what the GPUs of a node send; scales and integers of their sums, the same again for what
// comes from other nodes; that in fp16; the sums over nodes, one by one, and their mean, which stays until the parts
// have been added to the gradients. Each of the others goes when the next gradient has made the same, or at the end.
//
// Sources: deepspeed/runtime/zero/partition_parameters.py (CUDAQuantizer, _all_gather_sequential,
// _all_gather_coalesced, AllGatherHandle.wait, AllGatherCoalescedHandle.wait), runtime/comm/coalesced_collectives.py
// (all_to_all_quant_reduce, reduce_scatter_coalesced), csrc/quantization/pt_binding.cpp, DeepSpeed 0.19.8.

#include <cstdint>

#include "core/frameworks/zero/zero_quantization.h"
#include "simulator/memory/gathered_names.h"
#include "simulator/memory/memory_walk.h"

namespace fsdp::simulator {

template <class Sink>
class QuantizedGathers {
 public:
  QuantizedGathers(const WalkInput& input, Sink& sink, MemoryStream stream, const GatheredNames& names)
      : in_(input), sink_(sink), stream_(stream), names_(names) {}

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
    sink_.alloc(in_.ids->of(names_.name(p), p), elements_of(p) * size_of(in_.layout->parameter_dtype[p]).count(),
                stream_, MemoryCategory::UnshardedParam);
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
  const GatheredNames& names_;
};

template <class Sink>
class QuantizedReductions {
 public:
  QuantizedReductions(const WalkInput& input, Sink& sink, MemoryStream stream)
      : in_(input), sink_(sink), stream_(stream) {}

  /// Calls `on_collective` with each collective's communicator. Parts of sums live until `drop_parts`.
  template <class OnCollective>
  void reduce(const GradientBucket& bucket, const OnCollective& on_collective) {
    bool is_first = true;
    for (const GradientExchange& gradient : exchanges_of(bucket, *in_.layout, *in_.index->model)) {
      if (gradient.groups == 0) {
        scatter(gradient);
        on_collective(Communicator::Ranks);
        continue;
      }
      exchange(gradient, is_first, on_collective);
      add_up(gradient);
      is_first = false;
    }
    if (!is_first) {
      for (const Role role : {Role::Integers, Role::Scales, Role::Exchanged, Role::ExchangedScales, Role::Sums,
                              Role::SumScales, Role::ExchangedSums, Role::ExchangedSumScales, Role::Half}) {
        sink_.free(id_of(role, is_other_));
      }
    }
  }

  /// Groups of collectives that run in order.
  enum class Communicator { Ranks, Node, Nodes };

  void drop_parts() {
    for (; !parts_.empty(); parts_.pop_back()) sink_.free(in_.ids->of(ParameterTensor::ReducedPart, parts_.back()));
  }

 private:
  // In the order of `SingleTensor`, twice.
  enum class Role {
    Scales,
    Integers,
    Exchanged,
    ExchangedScales,
    SumScales,
    Sums,
    ExchangedSums,
    ExchangedSumScales,
    Half,
  };
  static constexpr int kNumRoles = static_cast<int>(Role::Half) + 1;
  static_assert(2 * kNumRoles == kNumExchangeTensors);
  static constexpr std::int64_t kHalf = 2;
  static constexpr std::int64_t kScale = 4;
  static constexpr std::int64_t kInByte = 2;  // Elements of 4 bits.

  int id_of(Role role, bool is_other) const {
    return in_.ids->of(SingleTensor::ZeroExchange) + static_cast<int>(role) + (is_other ? kNumRoles : 0);
  }
  void make(Role role, std::int64_t bytes) {
    sink_.alloc(id_of(role, is_other_), bytes, stream_, MemoryCategory::ReduceScatter);
  }
  void keep_part(int parameter, std::int64_t bytes) {
    sink_.alloc(in_.ids->of(ParameterTensor::ReducedPart, parameter), bytes, stream_, MemoryCategory::ReduceScatter);
    parts_.push_back(parameter);
  }

  template <class OnCollective>
  void exchange(const GradientExchange& gradient, bool is_first, const OnCollective& on_collective) {
    is_other_ = !is_other_;
    const auto drop_former = [&](Role role) {
      if (!is_first) sink_.free(id_of(role, !is_other_));
    };
    const auto make_next = [&](Role role, std::int64_t bytes) {
      make(role, bytes);
      drop_former(role);
    };
    const auto make_both = [&](Role scales, std::int64_t num_scales, Role integers, std::int64_t bytes) {
      make(scales, kScale * num_scales);
      make(integers, bytes);
      drop_former(integers);
      drop_former(scales);
    };
    const auto send = [&](Communicator communicator) {
      for (int i = 0; i < 2; ++i) {
        sink_.collective();
        on_collective(communicator);
      }
    };
    const std::int64_t bytes = gradient.elements / kInByte;
    make_both(Role::Scales, gradient.groups, Role::Integers, bytes);
    make_next(Role::Exchanged, bytes);
    make_next(Role::ExchangedScales, kScale * gradient.groups);
    send(Communicator::Node);
    const std::int64_t sums = gradient.groups / in_.gpus_per_node;
    make_both(Role::SumScales, sums, Role::Sums, bytes / in_.gpus_per_node);
    make_next(Role::ExchangedSums, bytes / in_.gpus_per_node);
    make_next(Role::ExchangedSumScales, kScale * sums);
    send(Communicator::Nodes);
    make_next(Role::Half, kHalf * gradient.elements / in_.gpus_per_node);
  }

  // Python's sum, which starts with a zero of its own, and a division.
  void add_up(const GradientExchange& gradient) {
    const std::int64_t nodes = in_.layout->zero.ranks / in_.gpus_per_node;
    const std::int64_t bytes = kHalf * gradient.elements / in_.layout->zero.ranks;
    const auto sum_of = [](std::int64_t node) {
      return node % 2 == 0 ? SingleTensor::ZeroSum : SingleTensor::ZeroOtherSum;
    };
    for (std::int64_t node = 0; node < nodes; ++node) {
      sink_.alloc(in_.ids->of(sum_of(node)), bytes, stream_, MemoryCategory::Temp);
      if (node > 0) sink_.free(in_.ids->of(sum_of(node - 1)));
    }
    keep_part(gradient.parameter, bytes);
    sink_.free(in_.ids->of(sum_of(nodes - 1)));
  }

  // Without quantization: in place if nothing is padded.
  void scatter(const GradientExchange& gradient) {
    const int p = gradient.parameter;
    const std::int64_t padding = gradient.elements - num_elements(in_.index->model->parameters[p].shape);
    if (padding > 0) {
      const int zeros = in_.ids->of(ParameterTensor::GradPadding, p);
      sink_.alloc(zeros, kHalf * padding, stream_, MemoryCategory::ReduceScatter);
      keep_part(p, kHalf * gradient.elements);
      sink_.collective();
      sink_.free(zeros);
    } else {
      sink_.collective();
    }
  }

  const WalkInput& in_;
  Sink& sink_;
  MemoryStream stream_;
  bool is_other_ = false;   // Which of two sets of tensors the last gradient uses.
  std::vector<int> parts_;  // Parameters, in the order in which they were reduced.
};

}  // namespace fsdp::simulator
