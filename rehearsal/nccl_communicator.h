#pragma once

// A communicator with one real rank: ours.

#include <nccl.h>

#include <cstdint>

namespace fsdp::rehearsal {

struct Communicator {
  int number = 0;  ///< 0, 1, ... in the order in which they were made.
  int ranks = 1;
  int rank = 0;
  int device = 0;
  uint64_t bytes = 0;  ///< Device memory that it has taken.
};

/// What a handle stands for.
inline Communicator& behind(ncclComm_t handle) {
  return *reinterpret_cast<Communicator*>(handle);
}

/// Bytes of one element; 8 for a type that NCCL may add.
uint64_t bytes_of(ncclDataType_t type);

}  // namespace fsdp::rehearsal
