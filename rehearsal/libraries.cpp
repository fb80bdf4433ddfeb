// Device code that is loaded by hand (cudaLibrary*), as PyTorch 2.12 and later do for some kernels: loaded, and
// launched like any other kernel.
#include <cuda_runtime_api.h>

#include "rehearsal/exported.h"

using namespace fsdp::rehearsal;

FSDP_STUB cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void*, cudaJitOption*, void**, unsigned int,
                                          cudaLibraryOption*, void**, unsigned int) {
  *library = reinterpret_cast<cudaLibrary_t>(fresh_handle());
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaLibraryUnload(cudaLibrary_t) {
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t, const char*) {
  *kernel = reinterpret_cast<cudaKernel_t>(fresh_handle());
  return cudaSuccess;
}

// More shared memory for one kernel than the default: granted, as for cudaFuncSetAttribute.
FSDP_STUB cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) {
  return cudaSuccess;
}
