// How many blocks of a kernel a multiprocessor runs, and the attributes of a kernel.
//
// The true answer needs the registers and the shared memory of each kernel, which are in its machine code. Ours counts
// threads only. It affects allocations through the grid sizes of a few reductions of cub, whose temporaries have some
// KiB.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "rehearsal/exported.h"
#include "rehearsal/kernels.h"
#include "rehearsal/options.h"

using namespace fsdp::rehearsal;

// CUTLASS and cub read the versions to learn the architecture of a kernel: cub launches nothing for one that is not in
// its list, such as the 8.9 of a card that runs code for 8.6.
FSDP_STUB cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  const Card& card = options().card;
  *attributes = cudaFuncAttributes{};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->maxDynamicSharedSizeBytes = 49152;
  const CompiledCode code = code_of_kernel(kernel);
  attributes->ptxVersion = code.architecture > 0 ? code.architecture : card.compute_capability;
  attributes->binaryVersion = code.is_ptx ? card.compute_capability : attributes->ptxVersion;
  return cudaSuccess;
}

// More shared memory for one kernel than the default: granted.
FSDP_STUB cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

FSDP_STUB cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads,
                                                                             size_t, unsigned int) {
  constexpr int kMostBlocks = 16;  // of the smallest simulated architecture; more blocks do not change a grid
  *blocks = std::clamp(options().card.threads_per_sm / std::max(threads, 1), 1, kMostBlocks);
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                                    size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared, 0);
}
