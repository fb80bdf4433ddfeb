// The functions of the driver that the stub does not have, but that PyTorch or Triton may call. No CUDA header here.
#include "rehearsal/exported.h"

namespace {
constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED
}  // namespace

// Memory shared with other processes, or through NVSwitch (symmetric memory).
FSDP_STUB_MISSING(cuMemExportToShareableHandle, kNotSupported)
FSDP_STUB_MISSING(cuMemImportFromShareableHandle, kNotSupported)
FSDP_STUB_MISSING(cuMulticastAddDevice, kNotSupported)
FSDP_STUB_MISSING(cuMulticastBindMem, kNotSupported)
FSDP_STUB_MISSING(cuMulticastCreate, kNotSupported)
FSDP_STUB_MISSING(cuMulticastUnbind, kNotSupported)

// Linking pieces of machine code that were compiled at run time.
FSDP_STUB_MISSING(cuLinkCreate_v2, kNotSupported)
FSDP_STUB_MISSING(cuLinkAddData_v2, kNotSupported)
FSDP_STUB_MISSING(cuLinkComplete, kNotSupported)

// Descriptions of tensors for the copy engine of Hopper, for kernels that do not run.
FSDP_STUB_SUCCEEDS(cuTensorMapEncodeTiled)
FSDP_STUB_SUCCEEDS(cuTensorMapEncodeIm2col)

// Passes messages of the driver to a function of PyTorch 2.14. There are none.
FSDP_STUB int cuLogsRegisterCallback(void*, void*, void** registration) {
  if (registration != nullptr) *registration = fsdp::rehearsal::fresh_handle();
  return 0;
}
FSDP_STUB_SUCCEEDS(cuLogsUnregisterCallback)
