// Kernels: their registration when a library is loaded, and their launches, which do nothing.
#include "rehearsal/kernels.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "rehearsal/errors.h"
#include "rehearsal/exported.h"
#include "rehearsal/fat_binary.h"
#include "rehearsal/known_contents.h"
#include "rehearsal/options.h"
#include "rehearsal/work.h"

namespace fsdp::rehearsal {
namespace {

/// The target of a fat binary's handle.
struct FatBinary {
  CompiledCode code;  // that the card runs
};

struct Registered {
  const char* name;
  const FatBinary* binary;
};

struct Names {
  std::mutex mutex;
  std::unordered_map<const void*, Registered> of;
};

Names& names() {
  static Names* const instance = new Names;  // never destroyed: static destructors still call us
  return *instance;
}

bool names_are_wanted() {
  static const bool wanted = std::ranges::count(options().traces, Trace::Kernels) > 0;
  return wanted;
}

const char* name_of_kernel(const void* kernel) {
  if (!names_are_wanted()) return nullptr;
  Names& n = names();
  const std::lock_guard lock(n.mutex);
  const auto found = n.of.find(kernel);
  return found == n.of.end() ? nullptr : found->second.name;
}

/// The compiler passes the launch shape in two calls between `<<<...>>>` and the launch.
struct PendingLaunch {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};
thread_local PendingLaunch pending_launch;

}  // namespace

cudaError_t launch(const char* name, dim3 grid, dim3 block, cudaStream_t stream) {
  count(Counter::Kernel);
  kernel_launched(stream);
  forget_everything();
  if (names_are_wanted()) trace(Trace::Kernels, "kernel %s", name == nullptr ? "?" : name);
  constexpr uint64_t kLargestGridX = 2147483647, kLargestGridYZ = 65535, kMostThreads = 1024;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const bool grid_fits = grid.x != 0 && grid.y != 0 && grid.z != 0 && grid.x <= kLargestGridX &&
                         grid.y <= kLargestGridYZ && grid.z <= kLargestGridYZ;
  return grid_fits && threads != 0 && threads <= kMostThreads ? cudaSuccess : report(cudaErrorInvalidConfiguration);
}

CompiledCode code_of_kernel(const void* kernel) {
  Names& n = names();
  const std::lock_guard lock(n.mutex);
  const auto found = n.of.find(kernel);
  return found == n.of.end() ? CompiledCode{} : found->second.binary->code;
}

}  // namespace fsdp::rehearsal

using namespace fsdp::rehearsal;

// A library with device code registers it when it is loaded. The code is never read; cub and CUTLASS query its
// architectures.
FSDP_STUB void** __cudaRegisterFatBinary(void* wrapper) {
  // Never freed: queries about an unloaded library may still come.
  return reinterpret_cast<void**>(new FatBinary{code_for(compiled_code(wrapper), options().card.compute_capability)});
}
FSDP_STUB void __cudaRegisterFatBinaryEnd(void**) {}
FSDP_STUB void __cudaUnregisterFatBinary(void**) {}
FSDP_STUB char __cudaInitModule(void**) {
  return 1;
}
FSDP_STUB void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
FSDP_STUB void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*, uint3*,
                                      dim3*, dim3*, int*) {
  Names& n = names();
  const std::lock_guard lock(n.mutex);
  n.of[host] = {name, reinterpret_cast<const FatBinary*>(handle)};
}

// `<<<grid, block, shared, stream>>>` in two halves.
FSDP_STUB unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  pending_launch = PendingLaunch{grid, block, shared, stream};
  return 0;
}
FSDP_STUB cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = pending_launch.grid;
  *block = pending_launch.block;
  *shared = pending_launch.shared;
  *static_cast<cudaStream_t*>(stream) = pending_launch.stream;
  return cudaSuccess;
}

// A kernel's handle is the address of its host function.
FSDP_STUB cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
FSDP_STUB cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**, size_t,
                                         cudaStream_t stream) {
  return launch(name_of_kernel(kernel), grid, block, stream);
}
FSDP_STUB cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void**, size_t, cudaStream_t stream) {
  return launch(name_of_kernel(kernel), grid, block, stream);
}
FSDP_STUB cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void**, size_t,
                                                  cudaStream_t stream) {
  return launch(name_of_kernel(kernel), grid, block, stream);
}
FSDP_STUB cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void**) {
  return launch(name_of_kernel(kernel), config->gridDim, config->blockDim, config->stream);
}
