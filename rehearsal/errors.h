#pragma once

// The last error of a thread, for cudaGetLastError.

#include <cuda_runtime_api.h>

namespace fsdp::rehearsal {

/// Returns the error, and stores it unless it is success.
cudaError_t report(cudaError_t error);

}  // namespace fsdp::rehearsal
