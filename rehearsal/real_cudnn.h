#pragma once

// The real cuDNN's choice of engines, which needs the description of a card, but no card.

#include <cstdint>

namespace fsdp::rehearsal {

/// Functions of cuDNN's graph interface, of the library that is loaded besides the stub.
struct RealCudnn {
  int (*create)(int type, void** descriptor) = nullptr;
  int (*destroy)(void* descriptor) = nullptr;
  int (*finalize)(void* descriptor) = nullptr;
  int (*set)(void* descriptor, int attribute, int type, int64_t count, const void* values) = nullptr;
  int (*get)(void* descriptor, int attribute, int type, int64_t asked, int64_t* found, void* out) = nullptr;
  void* card = nullptr;  ///< A finalized descriptor of the simulated card.
};

/// Null if plans have a fixed workspace (STUB_GPU_CUDNN_WORKSPACE_BYTES), if no cuDNN is loaded, or if it is older than
/// 9.8, which accepts no description of a card. The answer never changes after the first descriptor.
const RealCudnn* real_cudnn();

}  // namespace fsdp::rehearsal
