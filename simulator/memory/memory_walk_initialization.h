#pragma once

// A model's own allocations when it is initialized on a device, under any wrapper.

#include <algorithm>
#include <cstdint>

#include "simulator/memory/memory_walk.h"

namespace fsdp::simulator {

/// A whole parameter from the model. The code that shards it frees it.
template <class Sink>
void make_original_parameter(const WalkInput& in, Sink& sink, int parameter) {
  const std::int64_t elements = num_elements(in.index->model->parameters[parameter].shape);
  sink.alloc(in.ids->of(ParameterTensor::Full, parameter),
             elements * size_of(in.layout->parameter_dtype[parameter]).count(), MemoryStream::Compute,
             MemoryCategory::ShardedParam);
}

/// Elements of a parameter on the rank.
inline std::int64_t elements_of_parameter(const WalkInput& in, int parameter) {
  const Layout& layout = *in.layout;
  const int u = layout.is_replicated ? -1 : layout.unit_of_parameter[parameter];
  if (u < 0) return num_elements(in.index->model->parameters[parameter].shape);
  const auto& of_unit = layout.units[u].parameters;
  const auto shard = std::find_if(of_unit.begin(), of_unit.end(),
                                  [&](const ShardedParameter& each) { return each.parameter == parameter; });
  return shard == of_unit.end() ? 0 : shard->local_elements;
}

/// Bytes of a buffer on the device. A copy of a parameter has the size and place of the rank's part.
inline std::int64_t bytes_of_buffer(const WalkInput& in, const Buffer& buffer) {
  if (buffer.copy_of < 0) return num_elements(buffer.shape) * size_of(buffer.dtype).count();
  if (in.plan->cpu_offload) return 0;
  const bool is_alike = buffer.dtype == in.index->model->parameters[buffer.copy_of].dtype;
  const Dtype dtype = is_alike ? in.layout->parameter_dtype[buffer.copy_of] : buffer.dtype;
  return elements_of_parameter(in, buffer.copy_of) * size_of(dtype).count();
}

/// A buffer of the model, which stays.
template <class Sink>
void make_model_buffer(const WalkInput& in, Sink& sink, int b) {
  const std::int64_t bytes = bytes_of_buffer(in, in.index->model->buffers[b]);
  if (bytes > 0) sink.alloc(in.ids->buffer(b), bytes, MemoryStream::Compute, MemoryCategory::Buffer);
}

}  // namespace fsdp::simulator
