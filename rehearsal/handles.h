#pragma once

// Opaque objects: contexts, library handles, descriptors. Nobody but us looks through a handle.

namespace fsdp::rehearsal {

/// A handle that was never given out before. PyTorch keeps one cuBLAS workspace for each pair of handle and stream, so
/// two threads must not be given the same one.
void* fresh_handle();

}  // namespace fsdp::rehearsal
