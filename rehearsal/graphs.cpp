// CUDA graphs: a capture is stored as the list of its collectives, and a launch issues them again (captures.h).
// PyTorch's allocator does the rest: its private pools are real.
//
// Not modeled: the driver's own device memory for a graph (some KiB for each kernel in it). User objects of a graph are
// kept as long as the process, so that nobody is told of their end; the graphs of a training loop live as long. Graphs
// that are built node by node, conditional nodes and graphs that allocate are among the functions of
// runtime_missing.cpp.
#include <cuda_runtime_api.h>

#include "rehearsal/captures.h"
#include "rehearsal/collectives_log.h"
#include "rehearsal/errors.h"
#include "rehearsal/exported.h"
#include "rehearsal/known_contents.h"
#include "rehearsal/work.h"

using namespace fsdp::rehearsal;

namespace {

CapturedWork& behind(const void* graph) {
  return *static_cast<CapturedWork*>(const_cast<void*>(graph));
}

cudaError_t instantiate(cudaGraphExec_t* executable, cudaGraph_t graph) {
  *executable = reinterpret_cast<cudaGraphExec_t>(new CapturedWork(behind(graph)));
  return cudaSuccess;
}

}  // namespace

FSDP_STUB cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return begin_capture(stream) ? cudaSuccess : report(cudaErrorIllegalState);
}

FSDP_STUB cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(end_capture(stream));
  return *graph != nullptr ? cudaSuccess : report(cudaErrorIllegalState);
}

FSDP_STUB cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = capture_of(stream) == 0 ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

// PyTorch reads the status and the number of the capture. Nodes are not stored, so there are no dependencies.
FSDP_STUB cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                               unsigned long long* id, cudaGraph_t* graph,
                                               const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                               size_t* number) {
  if (id != nullptr) *id = capture_of(stream);
  if (graph != nullptr) *graph = nullptr;
  if (nodes != nullptr) *nodes = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (number != nullptr) *number = 0;
  return cudaStreamIsCapturing(stream, status);
}

// Which calls of other threads invalidate a capture: here, none.
FSDP_STUB cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}

FSDP_STUB cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return instantiate(executable, graph);
}
FSDP_STUB cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                                    unsigned long long) {
  return instantiate(executable, graph);
}

// The graph's kernels may write anywhere; its collectives are issued again.
FSDP_STUB cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  count(Counter::GraphLaunch);
  kernel_launched(stream);
  forget_everything();
  submit(stream);
  for (const stub_gpu_collective& collective : behind(executable).collectives) log_collective(collective);
  return cudaSuccess;
}

// PyTorch warns about an empty graph, and never inspects a node.
FSDP_STUB cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t* nodes, size_t* number) {
  if (nodes != nullptr && *number > 0) *nodes = nullptr;
  *number = 1;
  return cudaSuccess;
}

// ProcessGroupNCCL of PyTorch 2.15 hands a capture what its collectives need.
FSDP_STUB cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* held, cudaHostFn_t, unsigned int,
                                           unsigned int) {
  *object = reinterpret_cast<cudaUserObject_t>(held);
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaUserObjectRelease(cudaUserObject_t, unsigned int) {
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaGraphRetainUserObject(cudaGraph_t, cudaUserObject_t, unsigned int, unsigned int) {
  return cudaSuccess;
}

FSDP_STUB cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete &behind(graph);
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete &behind(executable);
  return cudaSuccess;
}
