#pragma once

// A communicator with one real rank: ours.

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>

namespace fsdp::rehearsal {

struct Communicator {
  int number = 0;  ///< 0, 1, ... in the order in which they were made.
  int ranks = 1;
  int rank = 0;
  int device = 0;
  uint64_t bytes = 0;  ///< Its device memory.
};

/// The communicator of a handle.
inline Communicator& behind(ncclComm_t handle) {
  return *reinterpret_cast<Communicator*>(handle);
}

/// Stores a broadcast until the end of the open group. False if none is open; the caller then handles it.
bool keep_in_group(uint64_t from, uint64_t to, size_t elements, ncclDataType_t type, int root, ncclComm_t handle,
                   cudaStream_t stream);

/// Bytes of one element; 8 for a type that NCCL may add.
uint64_t bytes_of(ncclDataType_t type);

}  // namespace fsdp::rehearsal
