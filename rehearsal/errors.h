#pragma once

// The last error of a thread, which cudaGetLastError asks for.

#include <cuda_runtime_api.h>

namespace fsdp::rehearsal {

/// Returns the error, and remembers it unless it is success.
cudaError_t report(cudaError_t error);

}  // namespace fsdp::rehearsal
