// cuSOLVER: decompositions (torch.linalg.eigh, qr, svd, ...) are not supported. All of them start with a handle, so we
// refuse the handle, which also records the reason.
#include "rehearsal/exported.h"

namespace {
constexpr int kNotSupported = 9;  // CUSOLVER_STATUS_NOT_SUPPORTED
}  // namespace

FSDP_STUB_MISSING(cusolverDnCreate, kNotSupported)
