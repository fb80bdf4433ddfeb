// cuBLASLt: matrix products with an epilogue (Linear with bias). PyTorch keeps a workspace for it beside that of
// cuBLAS.
#include <cstring>

#include "rehearsal/exported.h"

namespace {
constexpr size_t kBytesOfResult = 96;  // cublasLtMatmulHeuristicResult_t, in cuBLAS 12 and 13
}  // namespace

FSDP_STUB_CREATES(cublasLtMatmulDescCreate)
FSDP_STUB_SUCCEEDS(cublasLtMatmulDescDestroy)
FSDP_STUB_SUCCEEDS(cublasLtMatmulDescSetAttribute)
FSDP_STUB_CREATES(cublasLtMatrixLayoutCreate)
FSDP_STUB_SUCCEEDS(cublasLtMatrixLayoutDestroy)
FSDP_STUB_SUCCEEDS(cublasLtMatrixLayoutSetAttribute)
FSDP_STUB_CREATES(cublasLtMatmulPreferenceCreate)
FSDP_STUB_SUCCEEDS(cublasLtMatmulPreferenceDestroy)
FSDP_STUB_SUCCEEDS(cublasLtMatmulPreferenceSetAttribute)
FSDP_STUB_COUNTED(cublasLtMatmul, LtMatmul)

// One algorithm is found for any product, and it needs no workspace. PyTorch allocates the workspace that it offered
// before it asks, so what the algorithm uses of it changes nothing.
FSDP_STUB int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void* results,
                                             int* found) {
  std::memset(results, 0, kBytesOfResult);
  *found = 1;
  return 0;
}

// PyTorch 2.14 also makes algorithms by hand: any is fine, and needs no workspace either.
FSDP_STUB_SUCCEEDS(cublasLtMatmulAlgoInit)
FSDP_STUB_SUCCEEDS(cublasLtMatmulAlgoConfigSetAttribute)
FSDP_STUB int cublasLtMatmulAlgoConfigGetAttribute(void*, int, void* value, size_t bytes, size_t* written) {
  if (value != nullptr) std::memset(value, 0, bytes);
  if (written != nullptr) *written = bytes;
  return 0;
}
FSDP_STUB int cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, void*, void* result) {
  std::memset(result, 0, kBytesOfResult);
  return 0;
}
