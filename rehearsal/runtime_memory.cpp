// Device memory of the runtime, which PyTorch's allocator requests if it does not use expandable segments.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "rehearsal/device_memory.h"
#include "rehearsal/devices.h"
#include "rehearsal/errors.h"
#include "rehearsal/exported.h"
#include "rehearsal/options.h"
#include "rehearsal/pinned_memory.h"
#include "rehearsal/work.h"

using namespace fsdp::rehearsal;

// Fails exactly if the total, context and NCCL included, would exceed the card.
FSDP_STUB cudaError_t cudaMalloc(void** pointer, size_t size) {
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  const std::optional<uint64_t> address = take_memory(current_device(), size);
  count(address ? Counter::Malloc : Counter::MallocFailed);
  trace(Trace::Memory, "cudaMalloc %zu%s", size, address ? "" : ": out of memory");
  if (!address) return report(cudaErrorMemoryAllocation);
  *pointer = reinterpret_cast<void*>(*address);
  return cudaSuccess;
}

// The real one waits for the device first, so recorded work counts as finished afterwards.
FSDP_STUB cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  if (!give_memory_back(address_of(pointer))) return report(cudaErrorInvalidValue);
  count(Counter::Free);
  trace(Trace::Memory, "cudaFree %p", pointer);
  finish_everything();
  return cudaSuccess;
}

FSDP_STUB cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const DeviceUse use = device_use(current_device());
  *total_bytes = use.total;
  *free_bytes = use.total - std::min(use.used, use.total);
  return cudaSuccess;
}

// Returns the kind of memory; PyTorch uses it to tell pinned from pageable memory. Only the four fields that CUDA 12
// and 13 share are written: the struct of CUDA 13 is longer.
FSDP_STUB cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = -1;
  attributes->devicePointer = attributes->hostPointer = nullptr;
  if (is_device_address(pointer)) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = device_of(pointer);
    attributes->devicePointer = const_cast<void*>(pointer);
  } else if (is_pinned(pointer)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->device = 0;
    attributes->devicePointer = attributes->hostPointer = const_cast<void*>(pointer);
  }
  return cudaSuccess;
}

// Constants and variables of a module have an address of the card; nobody dereferences it.
FSDP_STUB cudaError_t cudaGetSymbolAddress(void** pointer, const void*) {
  static const uint64_t address = reserve_addresses(0, kPage);
  *pointer = reinterpret_cast<void*>(address);
  return cudaSuccess;
}
