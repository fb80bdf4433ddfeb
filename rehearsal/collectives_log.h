#pragma once

// The log of issued collectives, for stub_gpu_collectives.

#include <nccl.h>

#include "rehearsal/counters.h"
#include "rehearsal/nccl_communicator.h"
#include "rehearsal/stub_gpu.h"

namespace fsdp::rehearsal {

/// Adds a record. `kind` is the counter of a collective and is incremented; `elements` are those of the full tensor. On
/// a capturing stream the collective is stored in the capture, and issued when the graph is launched.
void log_collective(Counter kind, uint64_t elements, ncclDataType_t type, const Communicator& communicator,
                    cudaStream_t stream);

/// Adds a record that was captured.
void log_collective(stub_gpu_collective record);

}  // namespace fsdp::rehearsal
