// The functions of the CUDA runtime that the stub does not have. A program that calls one gets "not supported", and the
// record of the rehearsal names the function. No CUDA header here: these need no arguments.
#include "rehearsal/exported.h"

namespace {
constexpr int kNotSupported = 801;  // cudaErrorNotSupported
}  // namespace

// The driver's own allocator (PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync).
FSDP_STUB_MISSING(cudaMallocAsync, kNotSupported)
FSDP_STUB_MISSING(cudaFreeAsync, kNotSupported)
FSDP_STUB_MISSING(cudaDeviceGetDefaultMemPool, kNotSupported)
FSDP_STUB_MISSING(cudaMemPoolGetAttribute, kNotSupported)
FSDP_STUB_MISSING(cudaMemPoolSetAccess, kNotSupported)
FSDP_STUB_MISSING(cudaMemPoolSetAttribute, kNotSupported)
FSDP_STUB_MISSING(cudaMemPoolTrimTo, kNotSupported)

// Memory and events of other processes, and of other cards.
FSDP_STUB_MISSING(cudaDeviceEnablePeerAccess, kNotSupported)
FSDP_STUB_MISSING(cudaIpcCloseMemHandle, kNotSupported)
FSDP_STUB_MISSING(cudaIpcGetEventHandle, kNotSupported)
FSDP_STUB_MISSING(cudaIpcGetMemHandle, kNotSupported)
FSDP_STUB_MISSING(cudaIpcOpenEventHandle, kNotSupported)
FSDP_STUB_MISSING(cudaIpcOpenMemHandle, kNotSupported)

// Graphs that are built node by node, and graphs that allocate.
FSDP_STUB_MISSING(cudaStreamBeginCaptureToGraph, kNotSupported)
FSDP_STUB_MISSING(cudaStreamUpdateCaptureDependencies, kNotSupported)
FSDP_STUB_MISSING(cudaStreamUpdateCaptureDependencies_v2, kNotSupported)
FSDP_STUB_MISSING(cudaGraphAddEmptyNode, kNotSupported)
FSDP_STUB_MISSING(cudaGraphAddNode, kNotSupported)
FSDP_STUB_MISSING(cudaGraphConditionalHandleCreate, kNotSupported)
FSDP_STUB_MISSING(cudaGraphNodeGetType, kNotSupported)
FSDP_STUB_MISSING(cudaDeviceGetGraphMemAttribute, kNotSupported)
FSDP_STUB_MISSING(cudaDeviceSetGraphMemAttribute, kNotSupported)
FSDP_STUB_MISSING(cudaGraphDebugDotPrint, kNotSupported)
FSDP_STUB_MISSING(cudaGraphNodeGetDependencies, kNotSupported)

// A hint to move unified memory, which has one place here.
FSDP_STUB_SUCCEEDS(cudaMemPrefetchAsync)
