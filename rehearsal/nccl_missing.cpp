// The functions of NCCL that the stub does not have. Their structs differ between versions of NCCL, so no header here.
#include "rehearsal/exported.h"

namespace {
constexpr int kInvalidUsage = 5;  // ncclInvalidUsage
}  // namespace

// NCCL inside kernels, and memory of other ranks (PyTorch's symmetric memory).
FSDP_STUB_MISSING(ncclDevCommCreate, kInvalidUsage)
FSDP_STUB_MISSING(ncclDevCommDestroy, kInvalidUsage)
FSDP_STUB_MISSING(ncclGetLsaMultimemDevicePointer, kInvalidUsage)
FSDP_STUB_MISSING(ncclGetPeerDevicePointer, kInvalidUsage)
FSDP_STUB_MISSING(ncclWinGetUserPtr, kInvalidUsage)
FSDP_STUB_MISSING(ncclPutSignal, kInvalidUsage)
FSDP_STUB_MISSING(ncclSignal, kInvalidUsage)
FSDP_STUB_MISSING(ncclWaitSignal, kInvalidUsage)

// Communicators that grow, sleep and report their contents.
FSDP_STUB_MISSING(ncclCommGetUniqueId, kInvalidUsage)
FSDP_STUB_MISSING(ncclCommGrow, kInvalidUsage)
FSDP_STUB_MISSING(ncclCommMemStats, kInvalidUsage)
FSDP_STUB_MISSING(ncclCommResume, kInvalidUsage)
FSDP_STUB_MISSING(ncclCommSuspend, kInvalidUsage)
