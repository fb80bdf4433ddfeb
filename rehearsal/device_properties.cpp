// What the card says of itself.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>

#include "rehearsal/devices.h"
#include "rehearsal/errors.h"
#include "rehearsal/exported.h"
#include "rehearsal/options.h"

using namespace fsdp::rehearsal;

namespace {

constexpr int kWarp = 32;
constexpr int kMostThreadsPerBlock = 1024;
constexpr int kRegisters = 65536;              // of a block and of a multiprocessor, on every architecture since 3.5
constexpr int kSharedPerBlock = 48 << 10;      // without opting in to more
constexpr int kReservedSharedPerBlock = 1024;  // taken by the driver
constexpr int kConstantBytes = 64 << 10;

/// Blocks that a multiprocessor holds: CUDA C++ Programming Guide, technical specifications per compute capability.
int most_blocks_per_sm(int compute_capability) {
  switch (compute_capability) {
    case 75:
    case 86:
    case 87:
      return 16;
    case 89:
    case 120:
    case 121:
      return 24;
    default:
      return 32;
  }
}

}  // namespace

// Fields that are not written are 0, among them everything about textures and surfaces.
FSDP_STUB cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (!device_exists(device)) return report(cudaErrorInvalidDevice);
  const Card& card = options().card;
  std::memset(p, 0, sizeof(*p));
  std::snprintf(p->name, sizeof(p->name), "%s", card.name.c_str());
  p->uuid.bytes[0] = static_cast<char>(device + 1);
  p->totalGlobalMem = card.total_bytes;
  p->sharedMemPerBlock = kSharedPerBlock;
  p->regsPerBlock = p->regsPerMultiprocessor = kRegisters;
  p->warpSize = kWarp;
  p->maxThreadsPerBlock = kMostThreadsPerBlock;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = kMostThreadsPerBlock;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = kConstantBytes;
  p->major = card.major();
  p->minor = card.minor();
  p->textureAlignment = 512;
  p->multiProcessorCount = card.sms;
  p->memoryBusWidth = card.bus_bits;
  p->l2CacheSize = card.l2_bytes;
  p->maxThreadsPerMultiProcessor = card.threads_per_sm;
  p->sharedMemPerMultiprocessor = static_cast<size_t>(card.shared_per_sm_bytes);
  p->sharedMemPerBlockOptin = static_cast<size_t>(card.shared_per_block_bytes);
  p->maxBlocksPerMultiProcessor = most_blocks_per_sm(card.compute_capability);
  p->reservedSharedMemPerBlock = kReservedSharedPerBlock;
  p->pciBusID = device + 1;
  p->unifiedAddressing = p->canMapHostMemory = p->concurrentKernels = p->cooperativeLaunch = 1;
  p->managedMemory = p->asyncEngineCount = p->streamPrioritiesSupported = 1;
  return cudaSuccess;
}

// The same facts one by one. An attribute that is not listed is 0: a feature that the card does not have.
FSDP_STUB cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!device_exists(device)) return report(cudaErrorInvalidDevice);
  const Card& card = options().card;
  const auto answer = [&]() -> int {
    switch (attribute) {
      case cudaDevAttrMaxThreadsPerBlock:
      case cudaDevAttrMaxBlockDimX:
      case cudaDevAttrMaxBlockDimY:
        return kMostThreadsPerBlock;
      case cudaDevAttrMaxBlockDimZ:
        return 64;
      case cudaDevAttrMaxGridDimX:
        return 2147483647;
      case cudaDevAttrMaxGridDimY:
      case cudaDevAttrMaxGridDimZ:
        return 65535;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        return kSharedPerBlock;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return card.shared_per_block_bytes;
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return card.shared_per_sm_bytes;
      case cudaDevAttrReservedSharedMemoryPerBlock:
        return kReservedSharedPerBlock;
      case cudaDevAttrWarpSize:
        return kWarp;
      case cudaDevAttrMaxRegistersPerBlock:
      case cudaDevAttrMaxRegistersPerMultiprocessor:
        return kRegisters;
      case cudaDevAttrMultiProcessorCount:
        return card.sms;
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        return card.threads_per_sm;
      case cudaDevAttrMaxBlocksPerMultiprocessor:
        return most_blocks_per_sm(card.compute_capability);
      case cudaDevAttrComputeCapabilityMajor:
        return card.major();
      case cudaDevAttrComputeCapabilityMinor:
        return card.minor();
      case cudaDevAttrL2CacheSize:
        return card.l2_bytes;
      case cudaDevAttrGlobalMemoryBusWidth:
        return card.bus_bits;
      case cudaDevAttrTotalConstantMemory:
        return kConstantBytes;
      case cudaDevAttrUnifiedAddressing:
      case cudaDevAttrConcurrentKernels:
      case cudaDevAttrCooperativeLaunch:
        return 1;
      default:
        return 0;
    }
  };
  *value = answer();
  return cudaSuccess;
}

// The driver is as new as the runtime.
FSDP_STUB cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
