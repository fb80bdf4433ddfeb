// cuBLAS: matrix products that do nothing. PyTorch passes its own workspace to cuBLAS, one for each pair of handle and
// stream, from its own allocator; the stub adds nothing.
#include <cstring>

#include "rehearsal/exported.h"

namespace {
constexpr int kNotSupported = 15;      // CUBLAS_STATUS_NOT_SUPPORTED
constexpr size_t kBytesOfResult = 96;  // cublasLtMatmulHeuristicResult_t, in cuBLAS 12 and 13
}  // namespace

// Each handle is new: the thread of the backward pass has its own handle, and so its own workspace.
FSDP_STUB_CREATES(cublasCreate_v2)
FSDP_STUB_SUCCEEDS(cublasDestroy_v2)
FSDP_STUB_SUCCEEDS(cublasSetStream_v2)
FSDP_STUB_SUCCEEDS(cublasSetWorkspace_v2)

// Modes: writes are ignored, reads return the default (0).
FSDP_STUB_SUCCEEDS(cublasSetMathMode)
FSDP_STUB_SUCCEEDS(cublasSetPointerMode_v2)
FSDP_STUB int cublasGetMathMode(void*, int* mode) {
  return *mode = 0;
}
FSDP_STUB int cublasGetPointerMode_v2(void*, int* mode) {
  return *mode = 0;
}

// The share of the card that a product may use.
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

// The others, which MAGMA, inside PyTorch, and torch.linalg call. Every function that takes a handle must be here,
// reachable or not, since the real one would dereference our invented handle.
//
// One function for each type of number: float, double and their complex pairs.
#define FSDP_STUB_TYPES_SDCZ(of, name, what) \
  of(cublasS##name, what) of(cublasD##name, what) of(cublasC##name, what) of(cublasZ##name, what)
#define FSDP_STUB_TYPES_SD(of, name, what) of(cublasS##name, what) of(cublasD##name, what)
#define FSDP_STUB_TYPES_CZ(of, name, what) of(cublasC##name, what) of(cublasZ##name, what)

// Matrix with matrix: products of symmetric and triangular matrices, and triangular solves, all in place.
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, gemmBatched, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, symm_v2, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, syrk_v2, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, syr2k_v2, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, trmm_v2, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, trsm_v2, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, trsmBatched, Gemm)
FSDP_STUB_TYPES_CZ(FSDP_STUB_COUNTED, hemm_v2, Gemm)
FSDP_STUB_TYPES_CZ(FSDP_STUB_COUNTED, herk_v2, Gemm)
FSDP_STUB_TYPES_CZ(FSDP_STUB_COUNTED, her2k_v2, Gemm)

// Matrix with vector, in place.
FSDP_STUB_TYPES_CZ(FSDP_STUB_COUNTED, gemv_v2, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, symv_v2, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, syr_v2, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, syr2_v2, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, trmv_v2, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, trsv_v2, Gemm)
FSDP_STUB_TYPES_SD(FSDP_STUB_COUNTED, ger_v2, Gemm)
FSDP_STUB_TYPES_CZ(FSDP_STUB_COUNTED, gerc_v2, Gemm)
FSDP_STUB_TYPES_CZ(FSDP_STUB_COUNTED, geru_v2, Gemm)
FSDP_STUB_TYPES_CZ(FSDP_STUB_COUNTED, hemv_v2, Gemm)
FSDP_STUB_TYPES_CZ(FSDP_STUB_COUNTED, her_v2, Gemm)
FSDP_STUB_TYPES_CZ(FSDP_STUB_COUNTED, her2_v2, Gemm)

// Vector with vector, in place. PyTorch's dot products leave the result on the card.
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, axpy_v2, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, copy_v2, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, scal_v2, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, swap_v2, Gemm)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_COUNTED, rot_v2, Gemm)
FSDP_STUB_TYPES_SD(FSDP_STUB_COUNTED, rotm_v2, Gemm)
FSDP_STUB_TYPES_CZ(FSDP_STUB_COUNTED, dotc_v2, Gemm)
FSDP_STUB_TYPES_CZ(FSDP_STUB_COUNTED, dotu_v2, Gemm)
FSDP_STUB_COUNTED(cublasCsrot_v2, Gemm)
FSDP_STUB_COUNTED(cublasZdrot_v2, Gemm)
FSDP_STUB_COUNTED(cublasCsscal_v2, Gemm)
FSDP_STUB_COUNTED(cublasZdscal_v2, Gemm)

// Not supported: results that the host waits for, factorizations with a status, and copies.
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_MISSING, rotg_v2, kNotSupported)
FSDP_STUB_TYPES_SD(FSDP_STUB_MISSING, rotmg_v2, kNotSupported)
FSDP_STUB_TYPES_SD(FSDP_STUB_MISSING, asum_v2, kNotSupported)
FSDP_STUB_TYPES_SD(FSDP_STUB_MISSING, nrm2_v2, kNotSupported)
FSDP_STUB_MISSING(cublasScasum_v2, kNotSupported)
FSDP_STUB_MISSING(cublasDzasum_v2, kNotSupported)
FSDP_STUB_MISSING(cublasScnrm2_v2, kNotSupported)
FSDP_STUB_MISSING(cublasDznrm2_v2, kNotSupported)
FSDP_STUB_MISSING(cublasIsamax_v2, kNotSupported)
FSDP_STUB_MISSING(cublasIdamax_v2, kNotSupported)
FSDP_STUB_MISSING(cublasIcamax_v2, kNotSupported)
FSDP_STUB_MISSING(cublasIzamax_v2, kNotSupported)
FSDP_STUB_MISSING(cublasIsamin_v2, kNotSupported)
FSDP_STUB_MISSING(cublasIdamin_v2, kNotSupported)
FSDP_STUB_MISSING(cublasIcamin_v2, kNotSupported)
FSDP_STUB_MISSING(cublasIzamin_v2, kNotSupported)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_MISSING, gelsBatched, kNotSupported)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_MISSING, geqrfBatched, kNotSupported)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_MISSING, getrfBatched, kNotSupported)
FSDP_STUB_TYPES_SDCZ(FSDP_STUB_MISSING, getrsBatched, kNotSupported)
FSDP_STUB_MISSING(cublasGetMatrixAsync, kNotSupported)
FSDP_STUB_MISSING(cublasSetMatrixAsync, kNotSupported)
FSDP_STUB_MISSING(cublasGetVectorAsync, kNotSupported)
FSDP_STUB_MISSING(cublasSetVectorAsync, kNotSupported)

// cuBLASLt: matrix products with an epilogue (Linear with bias). PyTorch has a second workspace for it.
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

// Finds one algorithm for any product, and it needs no workspace. PyTorch allocates the workspace before this query, so
// the algorithm's own need changes nothing.
FSDP_STUB int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void* results,
                                             int* found) {
  std::memset(results, 0, kBytesOfResult);
  *found = 1;
  return 0;
}

// PyTorch 2.14 also makes algorithms by hand: any is accepted, and none needs a workspace.
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
