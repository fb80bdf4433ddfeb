#include "rehearsal/errors.h"

#include "rehearsal/exported.h"

namespace fsdp::rehearsal {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

struct Wording {
  cudaError_t error;
  const char* name;
  const char* sentence;  // PyTorch shows the runtime's own words, for which a user may search
};

constexpr Wording kWordings[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported by the stub GPU"},
};
constexpr Wording kOther = {cudaErrorUnknown, "cudaErrorUnknown", "error of the stub GPU"};

const Wording& wording_of(cudaError_t error) {
  for (const Wording& wording : kWordings) {
    if (wording.error == error) return wording;
  }
  return kOther;
}

}  // namespace

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace fsdp::rehearsal

using fsdp::rehearsal::last_error;
using fsdp::rehearsal::wording_of;

// As in CUDA, cudaPeekAtLastError keeps the error and cudaGetLastError clears it.
FSDP_STUB cudaError_t cudaPeekAtLastError() {
  return last_error;
}
FSDP_STUB cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

FSDP_STUB const char* cudaGetErrorName(cudaError_t error) {
  return wording_of(error).name;
}
FSDP_STUB const char* cudaGetErrorString(cudaError_t error) {
  return wording_of(error).sentence;
}
