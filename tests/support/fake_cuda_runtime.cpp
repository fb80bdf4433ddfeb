// The CUDA runtime as far as libc10_cuda.so needs one to run its caching allocator: one device with addresses and
// without memory. It carries the soname and the symbol version of the real library, so that it can be loaded in its
// place. It answers from one thread.
//
// Sources: the headers of CUDA 13 for the signatures; the undefined symbols of libc10_cuda.so of torch 2.11.0+cu130 for
// the list.
//
// Not modeled: copies, peers, memory pools, graphs and IPC, which answer "not supported".

#include "tests/support/fake_cuda_runtime.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

namespace {

constexpr std::int64_t kUnit = 2LL << 20;
constexpr std::int64_t kBase = 1LL << 44;

struct Stream {
  std::int64_t submitted = 0;
  std::int64_t completed = 0;
};

struct Event {
  Stream* stream = nullptr;
  std::int64_t number = 0;
};

struct Device {
  std::int64_t total = 80LL << 30;
  std::int64_t used_by_others = 0;
  std::int64_t next_address = kBase;
  std::int64_t next_handle = 1;
  bool holds_events = false;
  std::map<std::int64_t, std::int64_t> segments;  ///< By address: bytes.
  std::map<std::int64_t, std::int64_t> ranges;    ///< Reserved ones, by address.
  std::map<std::int64_t, std::int64_t> handles;   ///< Memory without an address: bytes.
  std::map<std::int64_t, std::int64_t> mapped;    ///< By address: bytes.
  std::map<void*, Stream> streams;
  FsdpFakeCalls calls{};
  cudaError_t last_error = cudaSuccess;

  /// Whether there is memory; takes it.
  bool take(std::int64_t bytes) {
    if (calls.used_bytes + used_by_others + bytes > total) return false;
    calls.used_bytes += bytes;
    calls.peak_used_bytes = std::max(calls.peak_used_bytes, calls.used_bytes);
    return true;
  }
  std::int64_t place(std::int64_t bytes) {
    const std::int64_t address = next_address;
    next_address += bytes;
    return address;
  }
  void complete_all() {
    for (auto& [handle, stream] : streams) stream.completed = stream.submitted;
  }
};

Device& device() {
  static Device* const only = new Device;  // Never destroyed: libc10_cuda calls until the very end.
  return *only;
}

cudaError_t fail(cudaError_t error) {
  device().last_error = error;
  return error;
}

std::int64_t round_up(std::int64_t bytes) {
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

bool is_whole(std::size_t bytes) {
  return bytes > 0 && bytes % kUnit == 0;
}

// The driver, as far as expandable segments reach it.

CUresult device_get(CUdevice* out, int ordinal) {
  *out = ordinal;
  return CUDA_SUCCESS;
}

CUresult device_get_attribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult get_granularity(std::size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *bytes = kUnit;
  return CUDA_SUCCESS;
}

CUresult address_reserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  if (!is_whole(bytes)) return CUDA_ERROR_INVALID_VALUE;
  ++device().calls.num_reserve;
  const std::int64_t placed = device().place(static_cast<std::int64_t>(bytes));
  device().ranges[placed] = static_cast<std::int64_t>(bytes);
  *address = static_cast<CUdeviceptr>(placed);
  return CUDA_SUCCESS;
}

CUresult address_free(CUdeviceptr address, std::size_t) {
  return device().ranges.erase(static_cast<std::int64_t>(address)) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult memory_create(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                       unsigned long long) {
  if (!is_whole(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_FABRIC) return CUDA_ERROR_NOT_PERMITTED;
  if (!device().take(static_cast<std::int64_t>(bytes))) {
    ++device().calls.num_create_failed;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++device().calls.num_create;
  *handle = static_cast<CUmemGenericAllocationHandle>(device().next_handle++);
  device().handles[static_cast<std::int64_t>(*handle)] = static_cast<std::int64_t>(bytes);
  return CUDA_SUCCESS;
}

/// Memory that is mapped is given back when it is unmapped, other memory at once.
CUresult memory_release(CUmemGenericAllocationHandle handle) {
  const auto held = device().handles.find(static_cast<std::int64_t>(handle));
  if (held == device().handles.end()) return CUDA_SUCCESS;
  device().calls.used_bytes -= held->second;
  device().handles.erase(held);
  return CUDA_SUCCESS;
}

CUresult memory_map(CUdeviceptr address, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle,
                    unsigned long long) {
  const auto held = device().handles.find(static_cast<std::int64_t>(handle));
  if (held == device().handles.end() || held->second != static_cast<std::int64_t>(bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool is_new =
      device().mapped.emplace(static_cast<std::int64_t>(address), static_cast<std::int64_t>(bytes)).second;
  if (!is_new) return CUDA_ERROR_INVALID_VALUE;
  device().handles.erase(held);
  return CUDA_SUCCESS;
}

CUresult memory_unmap(CUdeviceptr address, std::size_t bytes) {
  const auto mapping = device().mapped.find(static_cast<std::int64_t>(address));
  if (mapping == device().mapped.end() || mapping->second != static_cast<std::int64_t>(bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++device().calls.num_unmap;
  device().calls.used_bytes -= mapping->second;
  device().mapped.erase(mapping);
  return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
  return CUDA_SUCCESS;
}

CUresult error_text(CUresult, const char** text) {
  *text = "an error of the stand-in for the driver";
  return CUDA_SUCCESS;
}

CUresult not_supported() {
  return CUDA_ERROR_NOT_SUPPORTED;
}

void* driver_function(std::string_view name) {
  const std::pair<std::string_view, void*> known[] = {
      {"cuDeviceGet", reinterpret_cast<void*>(device_get)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(device_get_attribute)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(get_granularity)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(address_reserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(address_free)},
      {"cuMemCreate", reinterpret_cast<void*>(memory_create)},
      {"cuMemRelease", reinterpret_cast<void*>(memory_release)},
      {"cuMemMap", reinterpret_cast<void*>(memory_map)},
      {"cuMemUnmap", reinterpret_cast<void*>(memory_unmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(set_access)},
      {"cuGetErrorString", reinterpret_cast<void*>(error_text)}};
  for (const auto& [known_name, function] : known) {
    if (known_name == name) return function;
  }
  return reinterpret_cast<void*>(not_supported);  // libc10_cuda wants an address for every name.
}

}  // namespace

extern "C" {

void fsdp_fake_set_total(std::int64_t bytes) {
  device().total = bytes;
}

void fsdp_fake_set_used_by_others(std::int64_t bytes) {
  device().used_by_others = bytes;
}

void fsdp_fake_hold_events(bool hold) {
  device().holds_events = hold;
}

void fsdp_fake_complete(void* stream) {
  Stream& queue = device().streams[stream];
  queue.completed = queue.submitted;
}

void fsdp_fake_complete_all() {
  device().complete_all();
}

FsdpFakeCalls fsdp_fake_calls() {
  return device().calls;
}

std::int64_t fsdp_fake_base() {
  return kBase;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  const std::int64_t whole = round_up(static_cast<std::int64_t>(bytes));
  if (!device().take(whole)) {
    ++device().calls.num_malloc_failed;
    return fail(cudaErrorMemoryAllocation);
  }
  ++device().calls.num_malloc;
  const std::int64_t address = device().place(whole);
  device().segments[address] = whole;
  *pointer = reinterpret_cast<void*>(address);
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  const auto segment = device().segments.find(reinterpret_cast<std::int64_t>(pointer));
  if (segment == device().segments.end()) return fail(cudaErrorInvalidValue);
  ++device().calls.num_free;
  device().calls.used_bytes -= segment->second;
  device().segments.erase(segment);
  device().complete_all();  // It waits for the whole device.
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  const std::int64_t taken = device().calls.used_bytes + device().used_by_others;
  *total_bytes = static_cast<std::size_t>(device().total);
  *free_bytes = static_cast<std::size_t>(std::max<std::int64_t>(0, device().total - taken));
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* ordinal) {
  *ordinal = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "no GPU");
  properties->totalGlobalMem = static_cast<std::size_t>(device().total);
  properties->major = 9;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  device().complete_all();
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return std::exchange(device().last_error, cudaSuccess);
}

const char* cudaGetErrorName(cudaError_t) {
  return "cudaError";
}

const char* cudaGetErrorString(cudaError_t) {
  return "an error of the stand-in for the CUDA runtime";
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = reinterpret_cast<cudaStream_t>(device().next_handle++ << 32);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Stream& queue = device().streams[stream];
  return queue.completed == queue.submitted ? cudaSuccess : fail(cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  fsdp_fake_complete(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**, std::size_t*) {
  *status = cudaStreamCaptureStatusNone;
  if (id != nullptr) *id = 0;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<Event*>(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ++device().calls.num_event_record;
  Stream& queue = device().streams[stream];
  *reinterpret_cast<Event*>(event) = {&queue, ++queue.submitted};
  if (!device().holds_events) queue.completed = queue.submitted;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto* asked = reinterpret_cast<const Event*>(event);
  const bool is_done = asked->stream == nullptr || asked->number <= asked->stream->completed;
  return is_done ? cudaSuccess : fail(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto* asked = reinterpret_cast<const Event*>(event);
  if (asked->stream != nullptr) asked->stream->completed = std::max(asked->stream->completed, asked->number);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  *function = driver_function(name);
  if (status != nullptr) *status = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// What the library is linked with and its caching allocator does not call.
#define FSDP_FAKE_REFUSES(name, ...)    \
  cudaError_t name(__VA_ARGS__) {       \
    return fail(cudaErrorNotSupported); \
  }
FSDP_FAKE_REFUSES(cudaDeviceEnablePeerAccess, int, unsigned)
FSDP_FAKE_REFUSES(cudaDeviceGetDefaultMemPool, cudaMemPool_t*, int)
FSDP_FAKE_REFUSES(cudaFreeAsync, void*, cudaStream_t)
FSDP_FAKE_REFUSES(cudaMallocAsync, void**, std::size_t, cudaStream_t)
FSDP_FAKE_REFUSES(cudaMemPoolGetAttribute, cudaMemPool_t, cudaMemPoolAttr, void*)
FSDP_FAKE_REFUSES(cudaMemPoolSetAttribute, cudaMemPool_t, cudaMemPoolAttr, void*)
FSDP_FAKE_REFUSES(cudaMemPoolSetAccess, cudaMemPool_t, const cudaMemAccessDesc*, std::size_t)
FSDP_FAKE_REFUSES(cudaMemPoolTrimTo, cudaMemPool_t, std::size_t)
FSDP_FAKE_REFUSES(cudaGraphNodeGetDependencies, cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, std::size_t*)
FSDP_FAKE_REFUSES(cudaIpcCloseMemHandle, void*)
FSDP_FAKE_REFUSES(cudaIpcGetMemHandle, cudaIpcMemHandle_t*, void*)
FSDP_FAKE_REFUSES(cudaIpcOpenMemHandle, void**, cudaIpcMemHandle_t, unsigned)
FSDP_FAKE_REFUSES(cudaMemcpy, void*, const void*, std::size_t, cudaMemcpyKind)
FSDP_FAKE_REFUSES(cudaMemcpyAsync, void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t)
FSDP_FAKE_REFUSES(cudaMemcpyPeerAsync, void*, int, const void*, int, std::size_t, cudaStream_t)

}  // extern "C"
