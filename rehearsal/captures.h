#pragma once

// Stream capture: work that is written down instead of run. Memory is what matters here: PyTorch's allocator has a pool
// for each capture, and asks of every stream whether it takes part.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "rehearsal/stub_gpu.h"

namespace fsdp::rehearsal {

/// The visible work of a launched graph.
struct CapturedWork {
  std::vector<stub_gpu_collective> collectives;
};

/// The capture that a stream takes part in; 0 for none.
uint64_t capture_of(cudaStream_t stream);

/// Whether any stream is capturing.
bool anything_is_captured();

/// Starts a capture. False if the stream takes part in one.
bool begin_capture(cudaStream_t stream);

/// The stream waits for an event that was recorded in this capture, and so takes part in it. Nothing for 0, or for a
/// capture that has ended.
void join_capture(cudaStream_t stream, uint64_t capture);

/// Ends the capture that `stream` began, and gives what was captured, which the caller deletes; null if it began none.
CapturedWork* end_capture(cudaStream_t stream);

/// Writes a collective down in the capture of its stream; false if the stream takes part in none.
bool captured(cudaStream_t stream, const stub_gpu_collective& collective);

}  // namespace fsdp::rehearsal
