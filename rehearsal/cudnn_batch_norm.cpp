// cuDNN's batch normalization, which PyTorch takes for convolutional nets in training. It does nothing; its workspace
// is unknown, as that of the plans (cudnn.cpp). Between forward and backward it keeps nothing: the reserve space serves
// the fusion with an activation, which PyTorch does not ask for.
#include <cstddef>

#include "rehearsal/exported.h"
#include "rehearsal/options.h"

namespace {

int workspace(size_t* bytes) {
  *bytes = fsdp::rehearsal::options().cudnn_workspace_bytes.value_or(0);
  return 0;
}

}  // namespace

FSDP_STUB_COUNTED(cudnnBatchNormalizationForwardTrainingEx, Cudnn)
FSDP_STUB_COUNTED(cudnnBatchNormalizationForwardInference, Cudnn)
FSDP_STUB_COUNTED(cudnnBatchNormalizationBackwardEx, Cudnn)

// The size is the last of the arguments: handle, mode, operation, descriptors of x, z, y, statistics, activation.
FSDP_STUB int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void*, int, int, void*, void*, void*, void*,
                                                                       void*, size_t* bytes) {
  return workspace(bytes);
}

// Handle, mode, operation, descriptors of x, y, dy, dz, dx, statistics, activation.
FSDP_STUB int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void*, int, int, void*, void*, void*, void*, void*,
                                                                void*, void*, size_t* bytes) {
  return workspace(bytes);
}

// Handle, mode, operation, descriptors of activation and x.
FSDP_STUB int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void*, int, int, void*, void*, size_t* bytes) {
  *bytes = 0;
  return 0;
}
