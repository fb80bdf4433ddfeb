// cuBLAS: matrix products that do nothing. PyTorch gives cuBLAS its workspace itself, from its own allocator, one for
// each pair of handle and stream; the stub adds nothing.
#include "rehearsal/exported.h"

// Each handle is new: the thread of the backward pass has a handle, and with it a workspace, of its own.
FSDP_STUB_CREATES(cublasCreate_v2)
FSDP_STUB_SUCCEEDS(cublasDestroy_v2)
FSDP_STUB_SUCCEEDS(cublasSetStream_v2)
FSDP_STUB_SUCCEEDS(cublasSetWorkspace_v2)

// Modes: set and forgotten, read as the default (0).
FSDP_STUB_SUCCEEDS(cublasSetMathMode)
FSDP_STUB_SUCCEEDS(cublasSetPointerMode_v2)
FSDP_STUB int cublasGetMathMode(void*, int* mode) {
  return *mode = 0;
}
FSDP_STUB int cublasGetPointerMode_v2(void*, int* mode) {
  return *mode = 0;
}

// How much of the card a product may use.
FSDP_STUB_SUCCEEDS(cublasSetSmCountTarget)

// Matrix times matrix, matrix times vector, dot products.
FSDP_STUB_COUNTED(cublasGemmEx, Gemm)
FSDP_STUB_COUNTED(cublasGemmStridedBatchedEx, Gemm)
FSDP_STUB_COUNTED(cublasSgemmEx, Gemm)
FSDP_STUB_COUNTED(cublasSgemm_v2, Gemm)
FSDP_STUB_COUNTED(cublasDgemm_v2, Gemm)
FSDP_STUB_COUNTED(cublasCgemm_v2, Gemm)
FSDP_STUB_COUNTED(cublasZgemm_v2, Gemm)
FSDP_STUB_COUNTED(cublasSgemmStridedBatched, Gemm)
FSDP_STUB_COUNTED(cublasDgemmStridedBatched, Gemm)
FSDP_STUB_COUNTED(cublasCgemmStridedBatched, Gemm)
FSDP_STUB_COUNTED(cublasZgemmStridedBatched, Gemm)
FSDP_STUB_COUNTED(cublasSgemv_v2, Gemm)
FSDP_STUB_COUNTED(cublasDgemv_v2, Gemm)
FSDP_STUB_COUNTED(cublasSdot_v2, Gemm)
FSDP_STUB_COUNTED(cublasDdot_v2, Gemm)
FSDP_STUB_COUNTED(cublasDotEx, Gemm)
