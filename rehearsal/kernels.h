#pragma once

// The effect of a launch.

#include <cuda_runtime_api.h>

#include "rehearsal/fat_binary.h"

namespace fsdp::rehearsal {

/// Counts a launch, and refuses the grids that a card refuses. `name` may be null.
cudaError_t launch(const char* name, dim3 grid, dim3 block, cudaStream_t stream);

/// The version of a kernel's code that the card runs. The architecture is 0 if it is unknown.
CompiledCode code_of_kernel(const void* kernel);

}  // namespace fsdp::rehearsal
