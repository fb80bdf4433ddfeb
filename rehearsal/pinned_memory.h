#pragma once

// Host memory that the card may read directly.

namespace fsdp::rehearsal {

/// Whether a host address lies in memory from cudaHostAlloc or cudaHostRegister.
bool is_pinned(const void* pointer);

}  // namespace fsdp::rehearsal
