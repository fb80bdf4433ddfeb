// cuBLASLt: matrix products with an epilogue (Linear with bias). PyTorch keeps a workspace for it beside that of
// cuBLAS.
#include <cstring>

#include "rehearsal/exported.h"

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
  constexpr size_t kBytesOfResult = 96;  // cublasLtMatmulHeuristicResult_t, in cuBLAS 12 and 13
  std::memset(results, 0, kBytesOfResult);
  *found = 1;
  return 0;
}
