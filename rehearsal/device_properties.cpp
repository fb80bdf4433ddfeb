// The properties of the card.
#include <cuda_runtime_api.h>

#include "rehearsal/card_facts.h"
#include "rehearsal/devices.h"
#include "rehearsal/errors.h"
#include "rehearsal/exported.h"
#include "rehearsal/loaded_library.h"

namespace fsdp::rehearsal {

// CUDA C++ Programming Guide, technical specifications per compute capability.
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

}  // namespace fsdp::rehearsal

using namespace fsdp::rehearsal;

FSDP_STUB cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!device_exists(device)) return report(cudaErrorInvalidDevice);
  describe_card(*properties, device);
  return cudaSuccess;
}

// The same facts one by one. An unlisted attribute is 0: a feature that the card does not have.
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
        return kMostBlockZ;
      case cudaDevAttrMaxGridDimX:
        return kMostGridX;
      case cudaDevAttrMaxGridDimY:
      case cudaDevAttrMaxGridDimZ:
        return kMostGridYZ;
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

// The version of the real runtime that is loaded in the process, since libraries compare it with the one they were
// built with; the driver is as new as the runtime.
FSDP_STUB cudaError_t cudaRuntimeGetVersion(int* version) {
  static const int real = real_version("libcudart.so", "cudaRuntimeGetVersion", CUDART_VERSION);
  *version = real;
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaDriverGetVersion(int* version) {
  return cudaRuntimeGetVersion(version);
}
