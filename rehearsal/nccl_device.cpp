// NCCL inside of kernels (its device interface) is not there. Its structs differ between versions of NCCL, so no
// header.
#include "rehearsal/exported.h"

namespace {
constexpr int kInvalidUsage = 5;  // ncclInvalidUsage
}  // namespace

FSDP_STUB_MISSING(ncclDevCommCreate, kInvalidUsage)
FSDP_STUB_MISSING(ncclDevCommDestroy, kInvalidUsage)
