#pragma once

// Stream capture: work that is recorded instead of run. It matters for memory: PyTorch's allocator has a pool for each
// capture, and checks for every stream whether it takes part.

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

/// The stream waits for an event that was recorded in this capture, and so takes part in it. No effect for 0, or for a
/// capture that has ended.
void join_capture(cudaStream_t stream, uint64_t capture);

/// Ends the capture that `stream` began, and returns the captured work, which the caller deletes; null if it began
/// none.
CapturedWork* end_capture(cudaStream_t stream);

/// Records a collective in the capture of its stream; false if the stream takes part in none.
bool captured(cudaStream_t stream, const stub_gpu_collective& collective);

}  // namespace fsdp::rehearsal
