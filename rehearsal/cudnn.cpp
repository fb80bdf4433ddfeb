// cuDNN's graph interface: convolutions and cuDNN attention.
//
// Descriptors are the real cuDNN's. For a graph of convolutions it chooses the engine for the simulated card, and
// returns the workspace size (real_cudnn.h). Our handles are invented, so we remove them; an attribute that asks for
// one to learn about the card gets the card's description instead. The plan is a real one, and never runs.
//
// cuDNN compiles other graphs (attention, fused convolutions) for the card when it looks for an engine, which needs a
// real driver. For them, and if the real cuDNN is missing or the user fixed the workspace size, we assume an answer:
// one engine exists, and it needs STUB_GPU_CUDNN_WORKSPACE_BYTES or no workspace. An assumption about a graph applies
// to everything made from it: heuristics, configurations, engines, plans.

#include <cstdint>
#include <map>
#include <mutex>

#include "rehearsal/exported.h"
#include "rehearsal/options.h"
#include "rehearsal/real_cudnn.h"

FSDP_STUB_CREATES(cudnnCreate)
FSDP_STUB_SUCCEEDS(cudnnDestroy)
FSDP_STUB_SUCCEEDS(cudnnSetStream)
FSDP_STUB int cudnnGetStream(void*, void** stream) {
  *stream = nullptr;
  return 0;
}

namespace {

using fsdp::rehearsal::real_cudnn;
using fsdp::rehearsal::RealCudnn;

/// cudnnBackendDescriptorType_t, of cudnn_graph.h 9; only the types that we inspect.
enum Type {
  kNothing = -1,
  kEngine = 2,
  kHeuristics = 4,
  kPlan = 5,
  kConvolutionForward = 10,
  kConvolutionBackwardFilter = 11,
  kConvolutionBackwardData = 12,
  kGraph = 15,
};

constexpr int kTypeDescriptor = 15;  // cudnnBackendAttributeType_t

/// cudnnBackendAttributeName_t.
enum Attribute {
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kHeuristicCard = 204,
  kConfigurationEngine = 300,
  kConfigurationWorkspace = 303,
  kConfigurationSharedMemory = 304,
  kPlanHandle = 400,
  kPlanConfiguration = 401,
  kPlanWorkspace = 402,
  kPlanCard = 407,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kEngineGraph = 1300,
  kEngineGlobalIndex = 1301,
  kEngineCard = 1307,
};

/// The attribute that describes the card to a descriptor of this type; 0 if it does not need it.
int card_attribute(int type) {
  switch (type) {
    case kEngine:
      return kEngineCard;
    case kHeuristics:
      return kHeuristicCard;
    case kPlan:
      return kPlanCard;
    default:
      return 0;
  }
}

bool is_convolution(int type) {
  return type == kConvolutionForward || type == kConvolutionBackwardFilter || type == kConvolutionBackwardData;
}

/// Known facts of a descriptor.
struct Known {
  int type = kNothing;
  bool is_assumed = false;
};

class Descriptors {
 public:
  void add(void* descriptor, Known known) {
    const std::lock_guard lock(mutex_);
    known_[descriptor] = known;
  }
  void assume(void* descriptor) {
    const std::lock_guard lock(mutex_);
    known_[descriptor].is_assumed = true;
  }
  void forget(void* descriptor) {
    const std::lock_guard lock(mutex_);
    known_.erase(descriptor);
  }
  Known of(void* descriptor) {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(descriptor);
    return found == known_.end() ? Known() : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<void*, Known> known_;
};

Descriptors& descriptors() {
  static auto* const instance = new Descriptors;  // never destroyed: static destructors still call us
  return *instance;
}

/// Whether setting this attribute makes the answers of its descriptor assumed.
bool passes_an_assumption_on(int attribute, int64_t count, const void* values) {
  const auto* const others = static_cast<void* const*>(values);
  switch (attribute) {
    case kGraphOperations:
      for (int64_t i = 0; i < count; ++i) {
        if (!is_convolution(descriptors().of(others[i]).type)) return true;
      }
      return false;
    case kHeuristicGraph:
    case kEngineGraph:
    case kConfigurationEngine:
    case kPlanConfiguration:
      return count > 0 && descriptors().of(others[0]).is_assumed;
    default:
      return false;
  }
}

/// The answers that PyTorch and cudnn_frontend read: one configuration of one engine, in the descriptors that the
/// caller has made.
int assumed_attribute(int attribute, int64_t* found, void* out) {
  int64_t number = 1;
  switch (attribute) {
    case kHeuristicResults:
    case kConfigurationEngine:
      if (out != nullptr && real_cudnn() != nullptr) descriptors().assume(*static_cast<void**>(out));
      break;
    case kEngineGlobalIndex:
      if (out != nullptr) *static_cast<int64_t*>(out) = 0;
      break;
    case kConfigurationSharedMemory:
      if (out != nullptr) *static_cast<int32_t*>(out) = 0;
      break;
    case kConfigurationWorkspace:
    case kPlanWorkspace:
      if (out != nullptr) {
        *static_cast<int64_t*>(out) =
            static_cast<int64_t>(fsdp::rehearsal::options().cudnn_workspace_bytes.value_or(0));
      }
      break;
    default:
      number = 0;
  }
  if (found != nullptr) *found = number;
  return 0;
}

}  // namespace

FSDP_STUB int cudnnBackendCreateDescriptor(int type, void** descriptor) {
  const RealCudnn* const real = real_cudnn();
  if (real == nullptr) {
    *descriptor = fsdp::rehearsal::fresh_handle();
    return 0;
  }
  const int status = real->create(type, descriptor);
  if (status == 0) descriptors().add(*descriptor, {.type = type});
  return status;
}

FSDP_STUB int cudnnBackendDestroyDescriptor(void* descriptor) {
  const RealCudnn* const real = real_cudnn();
  if (real == nullptr) return 0;
  descriptors().forget(descriptor);
  return real->destroy(descriptor);
}

FSDP_STUB int cudnnBackendSetAttribute(void* descriptor, int attribute, int type, int64_t count, const void* values) {
  const RealCudnn* const real = real_cudnn();
  if (real == nullptr || attribute == kGraphHandle || attribute == kPlanHandle) return 0;
  if (passes_an_assumption_on(attribute, count, values)) descriptors().assume(descriptor);
  if (descriptors().of(descriptor).is_assumed) return 0;
  return real->set(descriptor, attribute, type, count, values);
}

FSDP_STUB int cudnnBackendFinalize(void* descriptor) {
  const RealCudnn* const real = real_cudnn();
  const Known known = real == nullptr ? Known() : descriptors().of(descriptor);
  if (real == nullptr || known.is_assumed) return 0;
  // cuDNN itself fills in queries, which never come here.
  if (const int attribute = card_attribute(known.type); attribute != 0) {
    const int status = real->set(descriptor, attribute, kTypeDescriptor, 1, &real->card);
    if (status != 0) return status;
  }
  return real->finalize(descriptor);
}

FSDP_STUB int cudnnBackendGetAttribute(void* descriptor, int attribute, int type, int64_t asked, int64_t* found,
                                       void* out) {
  const RealCudnn* const real = real_cudnn();
  if (real == nullptr || descriptors().of(descriptor).is_assumed) return assumed_attribute(attribute, found, out);
  return real->get(descriptor, attribute, type, asked, found, out);
}

// Counts the plans whose workspace is assumed.
FSDP_STUB int cudnnBackendExecute(void*, void* plan, void*) {
  if (real_cudnn() == nullptr || descriptors().of(plan).is_assumed) {
    fsdp::rehearsal::count(fsdp::rehearsal::Counter::Cudnn);
  }
  return 0;
}

// Batch normalization, which PyTorch uses for convolutional nets in training. It does nothing; like that of the plans,
// its workspace is unknown. It stores nothing between forward and backward: the reserve space serves the fusion with an
// activation, which PyTorch does not request.

namespace {

int workspace(size_t* bytes) {
  *bytes = fsdp::rehearsal::options().cudnn_workspace_bytes.value_or(0);
  return 0;
}

}  // namespace

FSDP_STUB_COUNTED(cudnnBatchNormalizationForwardTrainingEx, Cudnn)
FSDP_STUB_COUNTED(cudnnBatchNormalizationForwardInference, Cudnn)
FSDP_STUB_COUNTED(cudnnBatchNormalizationBackwardEx, Cudnn)

// The size is the last argument, after handle, mode, operation, descriptors of x, z, y, statistics, activation.
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

// The older interface: recurrent nets, CTC, pooling, dropout, spatial transformers, convolutions as before version 8.
// The real cuDNN makes the descriptors, which need no card. Calls that do work take our invented handles and must not
// reach it; they return "not supported". torch.backends.cudnn.enabled = False selects PyTorch's own kernels instead.

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
