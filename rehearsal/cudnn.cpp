// cuDNN's graph interface: convolutions and cuDNN attention. Every plan exists and asks for
// STUB_GPU_CUDNN_WORKSPACE_BYTES of workspace; the true sizes are known to cuDNN alone, which needs a card to find a
// plan.
#include <cstdint>

#include "rehearsal/exported.h"
#include "rehearsal/options.h"

FSDP_STUB_CREATES(cudnnCreate)
FSDP_STUB_SUCCEEDS(cudnnDestroy)
FSDP_STUB_SUCCEEDS(cudnnSetStream)
FSDP_STUB int cudnnGetStream(void*, void** stream) {
  *stream = nullptr;
  return 0;
}

// A graph is made of descriptors with attributes. They are taken and forgotten.
FSDP_STUB int cudnnBackendCreateDescriptor(int, void** descriptor) {
  *descriptor = fsdp::rehearsal::fresh_handle();
  return 0;
}
FSDP_STUB_SUCCEEDS(cudnnBackendDestroyDescriptor)
FSDP_STUB_SUCCEEDS(cudnnBackendFinalize)
FSDP_STUB_SUCCEEDS(cudnnBackendSetAttribute)
FSDP_STUB_COUNTED(cudnnBackendExecute, Cudnn)

namespace {

/// cudnnBackendAttributeName_t, of cudnn_graph.h 9.
enum Attribute {
  kHeuristicResults = 202,
  kConfigurationEngine = 300,
  kConfigurationWorkspace = 303,
  kConfigurationSharedMemory = 304,
  kPlanWorkspace = 402,
  kEngineGlobalIndex = 1301,
};

}  // namespace

// What PyTorch and cudnn_frontend read: one configuration of one engine, in the descriptors that the caller has made.
FSDP_STUB int cudnnBackendGetAttribute(void*, int attribute, int, int64_t, int64_t* found, void* out) {
  int64_t number = 1;
  switch (attribute) {
    case kHeuristicResults:
    case kConfigurationEngine:
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
        *static_cast<int64_t*>(out) = static_cast<int64_t>(fsdp::rehearsal::options().cudnn_workspace_bytes);
      }
      break;
    default:
      number = 0;
  }
  if (found != nullptr) *found = number;
  return 0;
}
