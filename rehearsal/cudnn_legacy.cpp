// cuDNN's older interface: recurrent nets, CTC, pooling, dropout, spatial transformers, convolutions as before
// version 8. Descriptors are made by the real cuDNN, which needs no card for them; work with our invented handles must
// not reach it, and says "not supported". torch.backends.cudnn.enabled = False takes PyTorch's own kernels instead.
#include "rehearsal/exported.h"

namespace {
constexpr int kNotSupported = 3000;  // CUDNN_STATUS_NOT_SUPPORTED of cuDNN 9
}  // namespace

FSDP_STUB_MISSING(cudnnCTCLoss, kNotSupported)
FSDP_STUB_MISSING(cudnnCTCLoss_v8, kNotSupported)
FSDP_STUB_MISSING(cudnnGetCTCLossWorkspaceSize, kNotSupported)
FSDP_STUB_MISSING(cudnnGetCTCLossWorkspaceSize_v8, kNotSupported)

FSDP_STUB_MISSING(cudnnConvolutionBackwardData, kNotSupported)
FSDP_STUB_MISSING(cudnnConvolutionBackwardFilter, kNotSupported)
FSDP_STUB_MISSING(cudnnConvolutionBiasActivationForward, kNotSupported)
FSDP_STUB_MISSING(cudnnConvolutionForward, kNotSupported)
FSDP_STUB_MISSING(cudnnFindConvolutionBackwardDataAlgorithmEx, kNotSupported)
FSDP_STUB_MISSING(cudnnFindConvolutionBackwardFilterAlgorithmEx, kNotSupported)
FSDP_STUB_MISSING(cudnnFindConvolutionForwardAlgorithmEx, kNotSupported)
FSDP_STUB_MISSING(cudnnGetConvolutionBackwardDataAlgorithm_v7, kNotSupported)
FSDP_STUB_MISSING(cudnnGetConvolutionBackwardDataWorkspaceSize, kNotSupported)
FSDP_STUB_MISSING(cudnnGetConvolutionBackwardFilterAlgorithm_v7, kNotSupported)
FSDP_STUB_MISSING(cudnnGetConvolutionBackwardFilterWorkspaceSize, kNotSupported)
FSDP_STUB_MISSING(cudnnGetConvolutionForwardAlgorithm_v7, kNotSupported)
FSDP_STUB_MISSING(cudnnGetConvolutionForwardWorkspaceSize, kNotSupported)

FSDP_STUB_MISSING(cudnnDropoutGetStatesSize, kNotSupported)
FSDP_STUB_MISSING(cudnnSetDropoutDescriptor, kNotSupported)
FSDP_STUB_MISSING(cudnnRestoreDropoutDescriptor, kNotSupported)

FSDP_STUB_MISSING(cudnnGetRNNTempSpaceSizes, kNotSupported)
FSDP_STUB_MISSING(cudnnGetRNNWeightParams, kNotSupported)
FSDP_STUB_MISSING(cudnnGetRNNWeightSpaceSize, kNotSupported)
FSDP_STUB_MISSING(cudnnRNNBackwardData_v8, kNotSupported)
FSDP_STUB_MISSING(cudnnRNNBackwardWeights_v8, kNotSupported)
FSDP_STUB_MISSING(cudnnRNNForward, kNotSupported)

FSDP_STUB_MISSING(cudnnPoolingForward, kNotSupported)
FSDP_STUB_MISSING(cudnnSpatialTfGridGeneratorBackward, kNotSupported)
FSDP_STUB_MISSING(cudnnSpatialTfGridGeneratorForward, kNotSupported)
FSDP_STUB_MISSING(cudnnSpatialTfSamplerBackward, kNotSupported)
FSDP_STUB_MISSING(cudnnSpatialTfSamplerForward, kNotSupported)
