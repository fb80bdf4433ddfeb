#include "rehearsal/pinned_memory.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <map>
#include <mutex>

#include "rehearsal/device_memory.h"
#include "rehearsal/errors.h"
#include "rehearsal/exported.h"

// Pinned memory is ordinary memory of zeros here. Untouched pages cost nothing, so a rehearsal with offloading needs
// less host memory than the real run, which locks all of it.

namespace fsdp::rehearsal {
namespace {

struct Pinned {
  std::mutex mutex;
  std::map<uint64_t, uint64_t> ranges;  // address to bytes
};

// Memory of zeros whose pages exist once they are touched.
void* map_zeros(size_t size) {
  void* const got = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return got == MAP_FAILED ? nullptr : got;
}

Pinned& pinned() {
  static Pinned* const instance = new Pinned;  // never destroyed: static destructors still call us
  return *instance;
}

}  // namespace

bool is_pinned(const void* pointer) {
  Pinned& p = pinned();
  const std::lock_guard lock(p.mutex);
  const auto after = p.ranges.upper_bound(address_of(pointer));
  if (after == p.ranges.begin()) return false;
  const auto& [start, bytes] = *std::prev(after);
  return address_of(pointer) < start + bytes;
}

}  // namespace fsdp::rehearsal

using namespace fsdp::rehearsal;

FSDP_STUB cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned int) {
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  void* const got = map_zeros(size);
  if (got == nullptr) return report(cudaErrorMemoryAllocation);
  count(Counter::HostAlloc);
  Pinned& p = pinned();
  const std::lock_guard lock(p.mutex);
  p.ranges[address_of(got)] = size;
  *pointer = got;
  return cudaSuccess;
}

FSDP_STUB cudaError_t cudaFreeHost(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  Pinned& p = pinned();
  const std::lock_guard lock(p.mutex);
  const auto found = p.ranges.find(address_of(pointer));
  if (found == p.ranges.end()) return report(cudaErrorInvalidValue);
  munmap(pointer, found->second);
  p.ranges.erase(found);
  return cudaSuccess;
}

// Pins existing memory of the program, which still owns it.
FSDP_STUB cudaError_t cudaHostRegister(void* pointer, size_t size, unsigned int) {
  Pinned& p = pinned();
  const std::lock_guard lock(p.mutex);
  p.ranges[address_of(pointer)] = size;
  return cudaSuccess;
}

FSDP_STUB cudaError_t cudaHostUnregister(void* pointer) {
  Pinned& p = pinned();
  const std::lock_guard lock(p.mutex);
  return p.ranges.erase(address_of(pointer)) == 1 ? cudaSuccess : report(cudaErrorInvalidValue);
}

// Unified memory, as of bitsandbytes' paged optimizers: the driver would keep it on the card while there is room and
// evict it to the host otherwise. Here it is the host's, and no memory of the card. Nothing gives it back.
FSDP_STUB cudaError_t cudaMallocManaged(void** pointer, size_t size, unsigned int) {
  *pointer = size == 0 ? nullptr : map_zeros(size);
  return size == 0 || *pointer != nullptr ? cudaSuccess : report(cudaErrorMemoryAllocation);
}
