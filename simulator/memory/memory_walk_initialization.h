#pragma once

// What a model makes of its own when it is initialized on a device, whoever wraps it.

#include <cstdint>

#include "simulator/memory/memory_walk.h"

namespace fsdp::simulator {

/// A parameter as the model makes it, whole. Freed by whoever cuts it.
template <class Sink>
void make_original_parameter(const WalkInput& in, Sink& sink, int parameter) {
  const std::int64_t elements = num_elements(in.index->model->parameters[parameter].shape);
  sink.alloc(in.ids->of(ParameterTensor::Full, parameter),
             elements * size_of(in.layout->parameter_dtype[parameter]).count(), MemoryStream::Compute,
             MemoryCategory::ShardedParam);
}

/// A buffer of the model, which stays.
template <class Sink>
void make_model_buffer(const WalkInput& in, Sink& sink, int b) {
  const Buffer& buffer = in.index->model->buffers[b];
  sink.alloc(in.ids->buffer(b), num_elements(buffer.shape) * size_of(buffer.dtype).count(), MemoryStream::Compute,
             MemoryCategory::Buffer);
}

}  // namespace fsdp::simulator
