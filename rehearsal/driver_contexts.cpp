// The driver's devices and contexts.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "rehearsal/devices.h"
#include "rehearsal/exported.h"

using namespace fsdp::rehearsal;

// A caller of the driver alone (such as the run-time compiler) learns that there is no device, and that the driver has
// no private tables. Compiling for the card then works; otherwise NVRTC would follow tables that do not exist.
FSDP_STUB CUresult cuInit(unsigned int) {
  return CUDA_ERROR_NO_DEVICE;
}
// Triton of PyTorch 2.14 and later calls this.
FSDP_STUB CUresult cuDriverGetVersion(int* version) {
  return cudaDriverGetVersion(version) == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
FSDP_STUB CUresult cuGetExportTable(const void**, const CUuuid*) {
  return CUDA_ERROR_NOT_FOUND;
}

FSDP_STUB CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return device_exists(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// The attributes of driver and runtime have the same numbers.
FSDP_STUB CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  const cudaError_t error = cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), device);
  return error == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// A context always exists, and any will do: PyTorch only ensures that there is one.
FSDP_STUB CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(fresh_handle());
  return CUDA_SUCCESS;
}
FSDP_STUB CUresult cuCtxSetCurrent(CUcontext) {
  return CUDA_SUCCESS;
}
FSDP_STUB CUresult cuCtxGetDevice(CUdevice* device) {
  *device = current_device();
  return CUDA_SUCCESS;
}
FSDP_STUB CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &found);
  *status = static_cast<CUstreamCaptureStatus>(found);
  return error == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
// Triton sizes the buffer of a kernel's printf.
FSDP_STUB CUresult cuCtxGetLimit(size_t* value, CUlimit) {
  constexpr size_t kDefaultPrintfBuffer = 1 << 20;
  *value = kDefaultPrintfBuffer;
  return CUDA_SUCCESS;
}
FSDP_STUB CUresult cuCtxSetLimit(CUlimit, size_t) {
  return CUDA_SUCCESS;
}
FSDP_STUB CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned int* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
FSDP_STUB CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = reinterpret_cast<CUcontext>(fresh_handle());
  return CUDA_SUCCESS;
}

FSDP_STUB CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_SUCCESS               ? "no error"
          : error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory"
          : error == CUDA_ERROR_NOT_SUPPORTED ? "operation not supported by the stub GPU"
                                              : "error of the stub GPU";
  return CUDA_SUCCESS;
}

FSDP_STUB CUresult cuPointerGetAttribute(void* value, CUpointer_attribute, CUdeviceptr) {
  *static_cast<int*>(value) = 0;
  return CUDA_SUCCESS;
}
