#pragma once

// What a launch does.

#include <cuda_runtime_api.h>

namespace fsdp::rehearsal {

/// Counts a launch, and refuses the grids that a card refuses. `name` may be null.
cudaError_t launch(const char* name, dim3 grid, dim3 block);

}  // namespace fsdp::rehearsal
