// CUDA graphs: nothing is ever captured. Starting a capture is among the functions of runtime_missing.cpp.
#include <cuda_runtime_api.h>

#include "rehearsal/exported.h"

FSDP_STUB cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id,
                                               cudaGraph_t* graph, const cudaGraphNode_t** nodes,
                                               const cudaGraphEdgeData** edges, size_t* number) {
  *status = cudaStreamCaptureStatusNone;
  if (id != nullptr) *id = 0;
  if (graph != nullptr) *graph = nullptr;
  if (nodes != nullptr) *nodes = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (number != nullptr) *number = 0;
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}
