// The functions of CUDA 12 that CUDA 13 has under another name or with other arguments. PyTorch's wheels up to 2.10 are
// built with CUDA 12; the library is compiled with the headers of CUDA 13 and serves both. All other functions that
// PyTorch calls are the same in the two versions, and we do not write the fields that a struct has only in 13
// (cudaPointerAttributes).
#include <cuda_runtime_api.h>

#include "rehearsal/card_facts.h"
#include "rehearsal/devices.h"
#include "rehearsal/errors.h"
#include "rehearsal/exported.h"

using namespace fsdp::rehearsal;

namespace {

/// cudaDeviceProp of CUDA 12.0 to 12.9, by driver_types.h: 1032 bytes. Only fields that are written have names.
struct DeviceProperties12 {
  char name[256];
  cudaUUID_t uuid;
  char luid[16];
  size_t totalGlobalMem;
  size_t sharedMemPerBlock;
  int regsPerBlock;
  int warpSize;
  size_t memPitch;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int clockRate;
  size_t totalConstMem;
  int major;
  int minor;
  size_t textureAlignment;
  size_t texturePitchAlignment;
  int deviceOverlap;
  int multiProcessorCount;
  int kernelExecTimeoutEnabled;
  int integrated;
  int canMapHostMemory;
  int computeMode;
  int textures_and_surfaces[42];
  int concurrentKernels;
  int ECCEnabled;
  int pciBusID;
  int pciDeviceID;
  int pciDomainID;
  int tccDriver;
  int asyncEngineCount;
  int unifiedAddressing;
  int memoryClockRate;
  int memoryBusWidth;
  int l2CacheSize;
  int persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor;
  int streamPrioritiesSupported;
  int globalL1CacheSupported;
  int localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor;
  int managedMemory;
  int boards_and_host_access[8];
  int cooperativeLaunch;
  int cooperativeMultiDeviceLaunch;
  size_t sharedMemPerBlockOptin;
  int host_page_tables[2];
  int maxBlocksPerMultiProcessor;
  int accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int features[76];
};
// Printed by a program compiled with the headers of the wheel nvidia-cuda-runtime-cu12 12.8.90.
static_assert(offsetof(DeviceProperties12, totalGlobalMem) == 288);
static_assert(offsetof(DeviceProperties12, totalConstMem) == 352);
static_assert(offsetof(DeviceProperties12, multiProcessorCount) == 388);
static_assert(offsetof(DeviceProperties12, concurrentKernels) == 576);
static_assert(offsetof(DeviceProperties12, pciBusID) == 584);
static_assert(offsetof(DeviceProperties12, memoryBusWidth) == 612);
static_assert(offsetof(DeviceProperties12, maxThreadsPerMultiProcessor) == 624);
static_assert(offsetof(DeviceProperties12, sharedMemPerMultiprocessor) == 640);
static_assert(offsetof(DeviceProperties12, cooperativeLaunch) == 688);
static_assert(offsetof(DeviceProperties12, sharedMemPerBlockOptin) == 696);
static_assert(offsetof(DeviceProperties12, maxBlocksPerMultiProcessor) == 712);
static_assert(offsetof(DeviceProperties12, reservedSharedMemPerBlock) == 720);
static_assert(sizeof(DeviceProperties12) == 1032);

}  // namespace

FSDP_STUB cudaError_t cudaGetDeviceProperties_v2(DeviceProperties12* properties, int device) {
  if (!device_exists(device)) return report(cudaErrorInvalidDevice);
  describe_card(*properties, device);
  return cudaSuccess;
}

// Without the edges between nodes that CUDA 13 returns.
FSDP_STUB cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                                  unsigned long long* id, cudaGraph_t* graph,
                                                  const cudaGraphNode_t** nodes, size_t* number) {
  return cudaStreamGetCaptureInfo(stream, status, id, graph, nodes, nullptr, number);
}

// Without the minimum CUDA version of the function.
FSDP_STUB cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                              cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(symbol, function, 12000, flags, result);
}
