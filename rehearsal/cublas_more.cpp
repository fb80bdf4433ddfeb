// The functions of cuBLAS beside the products of cublas.cpp: MAGMA, inside PyTorch, and torch.linalg call them. All
// that take a handle must be here, whether they are reached or not, since the real ones would follow our invented
// handle.
#include "rehearsal/exported.h"

namespace {
constexpr int kNotSupported = 15;  // CUBLAS_STATUS_NOT_SUPPORTED
}  // namespace

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

// Results that the host waits for, factorizations with a verdict, and copies: not there.
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
