#pragma once

// The work queued on the streams, and how much of it counts as finished.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace fsdp::rehearsal {

/// A position in a stream, which an event marks.
struct Mark {
  cudaStream_t stream = nullptr;
  uint64_t ticket = 0;   ///< The stream's work up to here; 0 for an event that was never recorded.
  uint64_t kernels = 0;  ///< Kernels launched before it, on all streams.
  uint64_t capture = 0;  ///< The capture in which it was recorded (captures.h); 0 for none.
};

/// Adds one piece of work at the end of a stream.
Mark submit(cudaStream_t stream);

/// The end of a stream, for an event. The event is one more piece of work, unless the stream has received none since
/// the host waited for it: a card is done with such an event before any query.
Mark end_of(cudaStream_t stream);

/// Later work of `stream` starts after the mark.
void wait_for(cudaStream_t stream, const Mark& mark);

/// Adds one piece of work at the end of a stream, and of a queue that works in order on any stream: the collectives of
/// a communicator.
void submit_in_order(int queue, cudaStream_t stream);

/// Whether the work up to the mark counts as finished, by STUB_GPU_EVENTS.
bool is_finished(const Mark& mark);

/// Whether the host has waited for it: the latest time at which it can have finished.
bool was_waited_for(const Mark& mark);

/// The host waited for the mark: it is finished, and so is all work that it waited for.
void finish(const Mark& mark);

/// The host waited for all work of a stream.
void finish_stream(cudaStream_t stream);

/// The host waited for the devices.
void finish_everything();

/// Whether a stream has no unfinished work.
bool is_idle(cudaStream_t stream);

/// Later work of `stream` never ends, nor does work that waits for it (Fault::Hang). A host that waits continues
/// anyway: it would wait forever.
void hang(cudaStream_t stream);

/// The device's answer to queries: the error of Fault::IllegalAddress after it has occurred.
cudaError_t state_of_device();

/// Counts a launched kernel.
void kernel_launched(cudaStream_t stream);

}  // namespace fsdp::rehearsal
