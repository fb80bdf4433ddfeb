// cuSOLVER: decompositions (torch.linalg.eigh, qr, svd, ...) are not there. All of them start with a handle, so
// refusing it is enough, and names the reason in the record.
#include "rehearsal/exported.h"

namespace {
constexpr int kNotSupported = 9;  // CUSOLVER_STATUS_NOT_SUPPORTED
}  // namespace

FSDP_STUB_MISSING(cusolverDnCreate, kNotSupported)
