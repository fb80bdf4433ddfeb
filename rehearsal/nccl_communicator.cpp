// NCCL's communicators. Each is ready at once, whatever its size: there are no other ranks to wait for. PyTorch's real
// ProcessGroupNCCL runs on top, with its futures, tensor lifetimes and flattened copies.
#include "rehearsal/nccl_communicator.h"

#include <atomic>
#include <cstring>

#include "rehearsal/device_memory.h"
#include "rehearsal/devices.h"
#include "rehearsal/exported.h"
#include "rehearsal/loaded_library.h"
#include "rehearsal/options.h"
#include "rehearsal/stub_gpu.h"

namespace fsdp::rehearsal {
namespace {

std::atomic<int> ranks_of_next_split{0};

/// Takes the memory of a communicator on a device, which may not fit.
ncclResult_t make(ncclComm_t* handle, int ranks, int rank, int device = current_device()) {
  static std::atomic<int> next{0};
  *handle = nullptr;
  if (ranks < 1 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  const uint64_t bytes = nccl_bytes_of(ranks);
  if (!charge(device, bytes, ChargedTo::Nccl)) return ncclUnhandledCudaError;
  count(Counter::Communicator);
  const int number = next++;
  trace(Trace::Nccl, "communicator %d: rank %d of %d, %lu bytes", number, rank, ranks, bytes);
  *handle = reinterpret_cast<ncclComm_t>(new Communicator{number, ranks, rank, device, bytes});
  return ncclSuccess;
}

/// Frees the memory. The handle remains valid: the watchdog thread of ProcessGroupNCCL may still query its errors.
ncclResult_t drop(ncclComm_t handle) {
  if (handle == nullptr) return ncclSuccess;
  Communicator& communicator = behind(handle);
  discharge(communicator.device, communicator.bytes, ChargedTo::Nccl);
  communicator.bytes = 0;
  return ncclSuccess;
}

}  // namespace

uint64_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

}  // namespace fsdp::rehearsal

using namespace fsdp::rehearsal;

// The version of the real NCCL that is loaded in the process: programs print it and choose features by it.
FSDP_STUB ncclResult_t ncclGetVersion(int* version) {
  static const int real = real_version("libnccl.so", "ncclGetVersion", NCCL_VERSION_CODE);
  *version = real;
  return ncclSuccess;
}
FSDP_STUB ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 1, sizeof(*id));
  return ncclSuccess;
}

FSDP_STUB ncclResult_t ncclCommInitRank(ncclComm_t* handle, int ranks, ncclUniqueId, int rank) {
  return make(handle, ranks, rank);
}
FSDP_STUB ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int ranks, ncclUniqueId, int rank, ncclConfig_t*) {
  return make(handle, ranks, rank);
}
FSDP_STUB ncclResult_t ncclCommInitRankScalable(ncclComm_t* handle, int ranks, int rank, int, ncclUniqueId*,
                                                ncclConfig_t*) {
  return make(handle, ranks, rank);
}

// One process with several cards (DataParallel): a communicator for each. Without a list, for the first ones.
FSDP_STUB ncclResult_t ncclCommInitAll(ncclComm_t* handles, int ranks, const int* devices) {
  for (int rank = 0; rank < ranks; ++rank) {
    const int device = devices == nullptr ? rank : devices[rank];
    if (const ncclResult_t result = make(handles + rank, ranks, rank, device); result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

// Only the other ranks know how many share our color; stub_gpu_next_split may set the number. The color does not reveal
// it: PyTorch passes a hash of the ranks, or the first of them, depending on its version. The key is our rank in the
// new group.
FSDP_STUB ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* handle, ncclConfig_t*) {
  *handle = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  const int told = ranks_of_next_split.exchange(0);
  if (told == 0) note_missing("the size of a group made by ncclCommSplit");
  return make(handle, told == 0 ? behind(parent).ranks : told, key);
}
FSDP_STUB ncclResult_t ncclCommShrink(ncclComm_t parent, int* left_out, int number, ncclComm_t* handle, ncclConfig_t*,
                                      int) {
  int before_us = 0;
  for (int i = 0; i < number; ++i) before_us += left_out[i] < behind(parent).rank ? 1 : 0;
  return make(handle, behind(parent).ranks - number, behind(parent).rank - before_us);
}

FSDP_STUB ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  return drop(handle);
}
FSDP_STUB ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (handle != nullptr) trace(Trace::Nccl, "communicator %d: aborted", behind(handle).number);
  return drop(handle);
}
FSDP_STUB ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  if (handle != nullptr) trace(Trace::Nccl, "communicator %d: finalized", behind(handle).number);
  return ncclSuccess;
}
FSDP_STUB ncclResult_t ncclCommRevoke(ncclComm_t, int) {
  return ncclSuccess;
}

FSDP_STUB ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
FSDP_STUB ncclResult_t ncclCommCount(const ncclComm_t handle, int* ranks) {
  *ranks = behind(handle).ranks;
  return ncclSuccess;
}
FSDP_STUB ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
  *rank = behind(handle).rank;
  return ncclSuccess;
}
FSDP_STUB ncclResult_t ncclCommCuDevice(const ncclComm_t handle, int* device) {
  *device = behind(handle).device;
  return ncclSuccess;
}

FSDP_STUB const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess              ? "no error"
         : result == ncclUnhandledCudaError ? "unhandled cuda error"
                                            : "error of the stub NCCL";
}
FSDP_STUB const char* ncclGetLastError(ncclComm_t) {
  return "";
}

// Registered buffers make transfers faster and change nothing else.
FSDP_STUB ncclResult_t ncclCommRegister(const ncclComm_t, void* buffer, size_t, void** handle) {
  *handle = buffer;
  return ncclSuccess;
}
FSDP_STUB ncclResult_t ncclCommDeregister(const ncclComm_t, void*) {
  return ncclSuccess;
}
FSDP_STUB ncclResult_t ncclCommWindowRegister(ncclComm_t, void* buffer, size_t, ncclWindow_t* window, int) {
  *window = reinterpret_cast<ncclWindow_t>(buffer);
  return ncclSuccess;
}
FSDP_STUB ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
  return ncclSuccess;
}
FSDP_STUB ncclResult_t ncclMemAlloc(void** pointer, size_t size) {
  return cudaMalloc(pointer, size) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
FSDP_STUB ncclResult_t ncclMemFree(void* pointer) {
  return cudaFree(pointer) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

void stub_gpu_next_split(int32_t ranks) {
  ranks_of_next_split = ranks;
}
