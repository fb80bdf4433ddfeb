#pragma once

// The real cuDNN's choice of engines, which needs to be told of a card and does not need to have one.

#include <cstdint>

namespace fsdp::rehearsal {

/// Functions of cuDNN's graph interface, of the library that is loaded beside the stub.
struct RealCudnn {
  int (*create)(int type, void** descriptor) = nullptr;
  int (*destroy)(void* descriptor) = nullptr;
  int (*finalize)(void* descriptor) = nullptr;
  int (*set)(void* descriptor, int attribute, int type, int64_t count, const void* values) = nullptr;
  int (*get)(void* descriptor, int attribute, int type, int64_t asked, int64_t* found, void* out) = nullptr;
  void* card = nullptr;  ///< A finalized descriptor of the card that is played.
};

/// Null where plans have a fixed workspace (STUB_GPU_CUDNN_WORKSPACE_BYTES), where no cuDNN is loaded, and where it is
/// older than 9.8, which cannot be told of a card. The answer never changes once a descriptor was made.
const RealCudnn* real_cudnn();

}  // namespace fsdp::rehearsal
