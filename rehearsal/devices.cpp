#include "rehearsal/devices.h"

#include <cuda_runtime_api.h>

#include <cstdio>

#include "rehearsal/captures.h"
#include "rehearsal/card_facts.h"
#include "rehearsal/errors.h"
#include "rehearsal/exported.h"
#include "rehearsal/options.h"
#include "rehearsal/work.h"

namespace fsdp::rehearsal {
namespace {

thread_local int chosen_device = 0;

}  // namespace

int current_device() {
  return chosen_device;
}

bool device_exists(int device) {
  return device >= 0 && device < options().devices;
}

}  // namespace fsdp::rehearsal

using namespace fsdp::rehearsal;

// Every rank's process sees all cards of its node (STUB_GPU_COUNT), each with its own memory.
FSDP_STUB cudaError_t cudaGetDeviceCount(int* devices) {
  *devices = options().devices;
  return cudaSuccess;
}

FSDP_STUB cudaError_t cudaGetDevice(int* device) {
  *device = chosen_device;
  return cudaSuccess;
}

FSDP_STUB cudaError_t cudaSetDevice(int device) {
  if (!device_exists(device)) return report(cudaErrorInvalidDevice);
  chosen_device = device;
  return cudaSuccess;
}

// Waiting for a device finishes all work recorded on it.
FSDP_STUB cudaError_t cudaDeviceSynchronize() {
  count(Counter::DeviceSynchronize);
  if (anything_is_captured()) return report(cudaErrorStreamCaptureUnsupported);
  finish_everything();
  return state_of_device();
}

// Cards have no access to each other's memory: each rank is a separate process.
FSDP_STUB cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

FSDP_STUB cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", number_in_node(device) + 1);
  return cudaSuccess;
}

// Data-center GPUs have six priorities; the numbers fall as the priority rises.
FSDP_STUB cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}

// There is no profiler; starting one is no error.
FSDP_STUB cudaError_t cudaProfilerStart() {
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaProfilerStop() {
  return cudaSuccess;
}
