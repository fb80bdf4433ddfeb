#pragma once

// Opaque objects: contexts, library handles, descriptors. Only the stub looks inside a handle.

namespace fsdp::rehearsal {

/// A handle that was never used before. PyTorch has one cuBLAS workspace for each pair of handle and stream, so two
/// threads must not share a handle.
void* fresh_handle();

}  // namespace fsdp::rehearsal
