#pragma once

// The collectives that the program issued, for stub_gpu_collectives.

#include <nccl.h>

#include "rehearsal/counters.h"
#include "rehearsal/nccl_communicator.h"

namespace fsdp::rehearsal {

/// Adds a record. `kind` is one of the collectives' counters, which it moves; `elements` are those of the full tensor.
void log_collective(Counter kind, uint64_t elements, ncclDataType_t type, const Communicator& communicator);

}  // namespace fsdp::rehearsal
