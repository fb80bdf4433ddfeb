// Kernels that are compiled at run time (PyTorch's "jiterator", Triton) reach the driver as modules. They are loaded
// and launched like any other kernel.
#include <cuda.h>

#include "rehearsal/counters.h"
#include "rehearsal/exported.h"
#include "rehearsal/kernels.h"

using namespace fsdp::rehearsal;

namespace {

template <class Handle>
CUresult create(Handle* handle) {
  *handle = reinterpret_cast<Handle>(fresh_handle());
  return CUDA_SUCCESS;
}

CUresult launch_of_module(dim3 grid, dim3 block, cudaStream_t stream) {
  count(Counter::ModuleKernel);
  return launch("(module)", grid, block, stream) == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

FSDP_STUB CUresult cuModuleLoad(CUmodule* module, const char*) {
  return create(module);
}
FSDP_STUB CUresult cuModuleLoadData(CUmodule* module, const void*) {
  return create(module);
}
FSDP_STUB CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned int, CUjit_option*, void**) {
  return create(module);
}
FSDP_STUB CUresult cuModuleUnload(CUmodule) {
  return CUDA_SUCCESS;
}
FSDP_STUB CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) {
  return create(function);
}

// Triton refuses a kernel whose warps exceed the first, and reports the second.
FSDP_STUB CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
  constexpr int kThreads = 1024;
  constexpr int kRegisters = 32;
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? kThreads
           : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS            ? kRegisters
                                                                : 0;
  return CUDA_SUCCESS;
}
FSDP_STUB CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) {
  return CUDA_SUCCESS;
}
FSDP_STUB CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) {
  return CUDA_SUCCESS;
}

FSDP_STUB CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, size_t) {
  *blocks = 1;
  return CUDA_SUCCESS;
}

FSDP_STUB CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
  *clusters = 1;
  return CUDA_SUCCESS;
}

FSDP_STUB CUresult cuLaunchKernel(CUfunction, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                  unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int,
                                  CUstream stream, void**, void**) {
  return launch_of_module(dim3(grid_x, grid_y, grid_z), dim3(block_x, block_y, block_z), stream);
}
FSDP_STUB CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction, void**, void**) {
  return launch_of_module(dim3(config->gridDimX, config->gridDimY, config->gridDimZ),
                          dim3(config->blockDimX, config->blockDimY, config->blockDimZ), config->hStream);
}
FSDP_STUB CUresult cuLaunchCooperativeKernel(CUfunction, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                             unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                             unsigned int, CUstream stream, void**) {
  return launch_of_module(dim3(grid_x, grid_y, grid_z), dim3(block_x, block_y, block_z), stream);
}
