// Copies and fills. No data moves between the host and the card, except small known contents (known_contents.h). Other
// bytes that the host reads are zeros, and the read is reported (readback.h).
//
// The direction follows from the addresses, as with cudaMemcpyDefault.
#include <cuda_runtime_api.h>

#include <cstring>

#include "rehearsal/answers.h"
#include "rehearsal/captures.h"
#include "rehearsal/device_memory.h"
#include "rehearsal/errors.h"
#include "rehearsal/exported.h"
#include "rehearsal/known_contents.h"
#include "rehearsal/options.h"
#include "rehearsal/pinned_memory.h"
#include "rehearsal/readback.h"
#include "rehearsal/work.h"

using namespace fsdp::rehearsal;

namespace {

/// Returns how many unknown bytes the host received.
uint64_t copy_bytes(void* to, const void* from, size_t size) {
  if (size == 0) return 0;
  const bool onto_device = is_device_address(to);
  if (!is_device_address(from)) {
    if (onto_device) {
      remember(address_of(to), from, size);
    } else {
      std::memmove(to, from, size);
    }
    return 0;
  }
  const std::optional<std::string> bytes = recall(address_of(from), size);
  if (onto_device) {
    bytes ? remember(address_of(to), bytes->data(), size) : forget(address_of(to), size);
    return 0;
  }
  if (bytes) {
    std::memcpy(to, bytes->data(), size);
    return 0;
  }
  if (answer_readback(to, size)) return 0;
  std::memset(to, 0, size);
  return size;
}

cudaError_t copy(void* to, const void* from, size_t size, cudaStream_t stream) {
  count(Counter::Copy);
  const bool host_waits = is_device_address(from) && !is_device_address(to) && !is_pinned(to);
  if (host_waits && capture_of(stream) != 0) return report(cudaErrorStreamCaptureUnsupported);
  if (is_device_address(to) && !is_device_address(from)) {
    trace(Trace::Memory, "%zu bytes to the card from %s memory", size, is_pinned(from) ? "pinned" : "pageable");
  }
  const uint64_t unknown = copy_bytes(to, from, size);
  // A copy into pageable memory returns when it and all work before it is done.
  submit(stream);
  if (host_waits) finish_stream(stream);
  if (unknown > 0) notice_readback(unknown);
  return cudaSuccess;
}

}  // namespace

FSDP_STUB cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind, cudaStream_t stream) {
  return copy(to, from, size, stream);
}

FSDP_STUB cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) {
  return copy(to, from, size, nullptr);
}

FSDP_STUB cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, cudaStream_t stream) {
  return copy(to, from, size, stream);
}

FSDP_STUB cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                        size_t height, cudaMemcpyKind, cudaStream_t stream) {
  count(Counter::Copy);
  submit(stream);
  uint64_t unknown = 0;
  for (size_t row = 0; row < height; ++row) {
    unknown +=
        copy_bytes(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  }
  if (unknown > 0) notice_readback(unknown);
  return cudaSuccess;
}

// Constants of a module: only kernels read them.
FSDP_STUB cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return cudaSuccess;
}

// A fill makes contents known, like a copy of that many equal bytes from the host.
FSDP_STUB cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  submit(stream);
  if (size <= kLargestKnown) {
    remember(address_of(to), std::string(size, static_cast<char>(value)).data(), size);
  } else {
    forget(address_of(to), size);
  }
  return cudaSuccess;
}

FSDP_STUB cudaError_t cudaMemset(void* to, int value, size_t size) {
  return cudaMemsetAsync(to, value, size, nullptr);
}
