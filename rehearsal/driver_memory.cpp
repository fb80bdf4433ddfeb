// The driver's virtual memory, which PyTorch's expandable segments use. Addresses are reserved, physical memory is made
// in pieces of whole pages, and pieces are mapped into the reservation.
#include <cuda.h>

#include <mutex>
#include <unordered_map>

#include "rehearsal/device_memory.h"
#include "rehearsal/devices.h"
#include "rehearsal/exported.h"
#include "rehearsal/options.h"
#include "rehearsal/work.h"

using namespace fsdp::rehearsal;

namespace {

/// Memory of one cuMemCreate. It is freed when it is released and no longer mapped.
struct Piece {
  uint64_t bytes;
  int device;
  int maps;
  bool released;
};

struct Mapping {
  uint64_t bytes;
  CUmemGenericAllocationHandle piece;
};

struct Pieces {
  std::mutex mutex;
  CUmemGenericAllocationHandle next = 0x1000;
  std::unordered_map<CUmemGenericAllocationHandle, Piece> of;
  std::unordered_map<CUdeviceptr, Mapping> mappings;
};

Pieces& pieces() {
  static Pieces* const instance = new Pieces;  // never destroyed: static destructors still call us
  return *instance;
}

void drop_if_unused(Pieces& p, CUmemGenericAllocationHandle handle) {
  const Piece& piece = p.of.at(handle);
  if (!piece.released || piece.maps != 0) return;
  discharge(piece.device, piece.bytes, ChargedTo::Program);
  p.of.erase(handle);
}

}  // namespace

FSDP_STUB CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                                 CUmemAllocationGranularity_flags) {
  *bytes = kPage;
  return CUDA_SUCCESS;
}

// PyTorch reserves 9/8 of the card's memory for each segment; addresses cost nothing.
FSDP_STUB CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t, CUdeviceptr, unsigned long long) {
  count(Counter::AddressReserve);
  *address = reserve_addresses(current_device(), size);
  return CUDA_SUCCESS;
}
FSDP_STUB CUresult cuMemAddressFree(CUdeviceptr address, size_t) {
  return free_addresses(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// With expandable segments, this call runs out of memory.
FSDP_STUB CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
                               unsigned long long) {
  const int device = properties->location.id;
  if (size == 0 || size % kPage != 0 || !device_exists(device)) return CUDA_ERROR_INVALID_VALUE;
  const bool fits = charge(device, size, ChargedTo::Program);
  count(fits ? Counter::Create : Counter::CreateFailed);
  trace(Trace::Memory, "cuMemCreate %zu%s", size, fits ? "" : ": out of memory");
  if (!fits) return CUDA_ERROR_OUT_OF_MEMORY;
  Pieces& p = pieces();
  const std::lock_guard lock(p.mutex);
  *handle = p.next++;
  p.of[*handle] = Piece{size, device, 0, false};
  return CUDA_SUCCESS;
}

FSDP_STUB CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Pieces& p = pieces();
  const std::lock_guard lock(p.mutex);
  const auto found = p.of.find(handle);
  if (found == p.of.end()) return CUDA_ERROR_INVALID_VALUE;
  found->second.released = true;
  drop_if_unused(p, handle);
  return CUDA_SUCCESS;
}

FSDP_STUB CUresult cuMemMap(CUdeviceptr address, size_t size, size_t, CUmemGenericAllocationHandle handle,
                            unsigned long long) {
  Pieces& p = pieces();
  const std::lock_guard lock(p.mutex);
  const auto found = p.of.find(handle);
  if (found == p.of.end() || p.mappings.contains(address)) return CUDA_ERROR_INVALID_VALUE;
  count(Counter::Map);
  ++found->second.maps;
  p.mappings[address] = Mapping{size, handle};
  return CUDA_SUCCESS;
}

// Waits for the device, as cudaFree does.
FSDP_STUB CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  Pieces& p = pieces();
  const std::lock_guard lock(p.mutex);
  const auto found = p.mappings.find(address);
  if (found == p.mappings.end() || found->second.bytes != size) return CUDA_ERROR_INVALID_VALUE;
  count(Counter::Unmap);
  const CUmemGenericAllocationHandle piece = found->second.piece;
  p.mappings.erase(found);
  --p.of.at(piece).maps;
  drop_if_unused(p, piece);
  return CUDA_SUCCESS;
}

// Access rights of a mapping: everybody has access.
FSDP_STUB CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return CUDA_SUCCESS;
}
