// Streams: an order of work; nothing runs.
#include <cuda_runtime_api.h>

#include <atomic>

#include "rehearsal/captures.h"
#include "rehearsal/errors.h"
#include "rehearsal/events.h"
#include "rehearsal/exported.h"
#include "rehearsal/work.h"

using namespace fsdp::rehearsal;

// PyTorch makes 32 streams for each device and priority, and never destroys them.
FSDP_STUB cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int, int) {
  *stream = reinterpret_cast<cudaStream_t>(fresh_handle());
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, 0, 0);
}
FSDP_STUB cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  return cudaStreamCreateWithPriority(stream, 0, 0);
}
FSDP_STUB cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}

FSDP_STUB cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}

FSDP_STUB cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return is_idle(stream) ? cudaSuccess : report(cudaErrorNotReady);
}

// Nobody can wait for captured work: `item()` or a copy to the host is an error of the program there, as on a card.
FSDP_STUB cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  count(Counter::StreamSynchronize);
  if (capture_of(stream) != 0) return report(cudaErrorStreamCaptureUnsupported);
  finish_stream(stream);
  return state_of_device();
}

FSDP_STUB cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  count(Counter::StreamWaitEvent);
  const Mark mark = mark_of(event);
  join_capture(stream, mark.capture);
  if (capture_of(stream) == 0) wait_for(stream, mark);
  return cudaSuccess;
}

// Host functions run at once: by the order of the stream, all work that they wait for has been submitted.
FSDP_STUB cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                            unsigned int) {
  callback(stream, cudaSuccess, data);
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
  function(data);
  return cudaSuccess;
}
