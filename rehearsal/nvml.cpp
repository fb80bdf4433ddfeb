// NVML, the library of nvidia-smi: the cards of a machine and their memory. PyTorch calls it when memory runs out, so
// that its message includes this process's memory outside the allocator; since 2.13 also before it makes expandable
// segments. Training scripts call it for their logs.
//
// It is a separate library that is opened by its name. Next to the stub lies an empty one of that name,
// libnvidia-ml.so.1, which depends on the stub and is opened with it, so that a lookup of a function in it finds ours.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "rehearsal/card_facts.h"
#include "rehearsal/device_memory.h"
#include "rehearsal/devices.h"
#include "rehearsal/exported.h"
#include "rehearsal/options.h"

using namespace fsdp::rehearsal;

extern "C" int cudaDriverGetVersion(int* version);

namespace {

/// nvmlReturn_t.
enum Status { kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7 };

[[gnu::constructor]] void open_library_beside_us() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&open_library_beside_us), &info) == 0) return;
  std::string path = info.dli_fname;
  path.resize(path.rfind('/') + 1);  // npos + 1 is 0
  // If it is not found, this process has no NVML, as before.
  dlopen((path + "libnvidia-ml.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
}

/// A card's handle is its number, starting at 1, since 0 is no handle.
void* handle_of(int device) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1);
}
int device_behind(const void* handle) {
  return static_cast<int>(reinterpret_cast<intptr_t>(handle)) - 1;
}

int give_handle(int device, void** handle) {
  if (!device_exists(device)) return kNotFound;
  *handle = handle_of(device);
  return kSuccess;
}

int give_text(const std::string& text, char* out, unsigned int room) {
  if (text.size() >= room) return kInsufficientSize;
  std::copy_n(text.c_str(), text.size() + 1, out);
  return kSuccess;
}

/// As in cudaDeviceProp: the first byte counts the cards.
std::string uuid_of(int device) {
  char text[48];
  std::snprintf(text, sizeof(text), "GPU-%02x000000-0000-0000-0000-000000000000", number_in_node(device) + 1);
  return text;
}

}  // namespace

FSDP_STUB_SUCCEEDS(nvmlInit)
FSDP_STUB_SUCCEEDS(nvmlInit_v2)
FSDP_STUB_SUCCEEDS(nvmlInitWithFlags)
FSDP_STUB_SUCCEEDS(nvmlShutdown)
FSDP_STUB const char* nvmlErrorString(int status) {
  return status == kSuccess ? "Success" : "error of the stub NVML";
}

FSDP_STUB int nvmlSystemGetDriverVersion(char* text, unsigned int room) {
  return give_text("stub GPU", text, room);
}
FSDP_STUB int nvmlSystemGetCudaDriverVersion(int* version) {
  return cudaDriverGetVersion(version);
}
FSDP_STUB int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return cudaDriverGetVersion(version);
}

FSDP_STUB int nvmlDeviceGetCount(unsigned int* devices) {
  *devices = static_cast<unsigned int>(options().devices);
  return kSuccess;
}
FSDP_STUB int nvmlDeviceGetCount_v2(unsigned int* devices) {
  return nvmlDeviceGetCount(devices);
}
FSDP_STUB int nvmlDeviceGetHandleByIndex(unsigned int index, void** handle) {
  return give_handle(static_cast<int>(index), handle);
}
FSDP_STUB int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** handle) {
  return nvmlDeviceGetHandleByIndex(index, handle);
}
FSDP_STUB int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** handle) {
  unsigned int domain = 0;
  unsigned int number = 0;
  if (std::sscanf(bus, "%x:%x:", &domain, &number) != 2) return kInvalidArgument;
  return give_handle(static_cast<int>(number) - 1 - options().first_device, handle);  // pciBusID of card_facts.h
}
FSDP_STUB int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  for (int device = 0; device < options().devices; ++device) {
    if (uuid_of(device) == uuid) return give_handle(device, handle);
  }
  return kNotFound;
}

FSDP_STUB int nvmlDeviceGetIndex(void* handle, unsigned int* index) {
  *index = static_cast<unsigned int>(device_behind(handle));
  return kSuccess;
}
FSDP_STUB int nvmlDeviceGetName(void*, char* name, unsigned int room) {
  return give_text(options().card.name, name, room);
}
FSDP_STUB int nvmlDeviceGetUUID(void* handle, char* uuid, unsigned int room) {
  return give_text(uuid_of(device_behind(handle)), uuid, room);
}
FSDP_STUB int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = options().card.major();
  *minor = options().card.minor();
  return kSuccess;
}

// Total, free, used. The second version begins with a version number and adds the driver's reserved bytes: 0, since the
// total is CUDA's.
FSDP_STUB int nvmlDeviceGetMemoryInfo(void* handle, uint64_t* bytes) {
  const DeviceUse use = device_use(device_behind(handle));
  bytes[0] = use.total;
  bytes[1] = use.total - use.used;
  bytes[2] = use.used;
  return kSuccess;
}
FSDP_STUB int nvmlDeviceGetMemoryInfo_v2(void* handle, uint64_t* bytes) {
  const DeviceUse use = device_use(device_behind(handle));
  bytes[1] = use.total;
  bytes[2] = 0;
  bytes[3] = use.total - use.used;
  bytes[4] = use.used;
  return kSuccess;
}

namespace {

/// One process is on the card: ours. An entry has `words` words of 8 bytes: process, bytes, and from version 2 on the
/// part of a divided card (none).
int list_this_process(void* handle, unsigned int* number, uint64_t* entry, size_t words) {
  const unsigned int room = *number;
  *number = 1;
  if (entry == nullptr || room < 1) return kInsufficientSize;
  entry[0] = static_cast<uint64_t>(getpid());
  entry[1] = device_use(device_behind(handle)).used;
  std::fill(entry + 2, entry + words, ~uint64_t{0});
  return kSuccess;
}

}  // namespace

FSDP_STUB int nvmlDeviceGetComputeRunningProcesses(void* handle, unsigned int* number, uint64_t* entries) {
  return list_this_process(handle, number, entries, 2);
}
FSDP_STUB int nvmlDeviceGetComputeRunningProcesses_v2(void* handle, unsigned int* number, uint64_t* entries) {
  return list_this_process(handle, number, entries, 3);
}
FSDP_STUB int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned int* number, uint64_t* entries) {
  return list_this_process(handle, number, entries, 3);
}

// Unknowable values of a missing card are 0, so that the logs of a script continue.
FSDP_STUB int nvmlDeviceGetUtilizationRates(void*, uint32_t* gpu_and_memory) {
  gpu_and_memory[0] = gpu_and_memory[1] = 0;
  return kSuccess;
}
FSDP_STUB int nvmlDeviceGetTemperature(void*, int, uint32_t* degrees) {
  *degrees = 0;
  return kSuccess;
}
FSDP_STUB int nvmlDeviceGetPowerUsage(void*, uint32_t* milliwatts) {
  *milliwatts = 0;
  return kSuccess;
}
FSDP_STUB int nvmlDeviceGetClockInfo(void*, int, uint32_t* megahertz) {
  *megahertz = 0;
  return kSuccess;
}

// Cards of several nodes that share memory (fabric), and links between cards: none. The caller sets the state of the
// fabric to "not supported" before the query.
FSDP_STUB_SUCCEEDS(nvmlDeviceGetGpuFabricInfoV)
FSDP_STUB int nvmlDeviceGetNvLinkRemoteDeviceType() {
  return kNotSupported;
}
FSDP_STUB int nvmlDeviceGetNvLinkRemotePciInfo_v2() {
  return kNotSupported;
}
FSDP_STUB int nvmlDeviceGetP2PStatus() {
  return kNotSupported;
}
