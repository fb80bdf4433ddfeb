// Describes the card to cuDNN.
//
// Host code that reads properties of the card decides which engine runs a convolution and how much workspace it needs.
// For ahead-of-time compilation cuDNN accepts them as a JSON text (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR) in place of a
// handle. The keys are those that cuDNN itself writes for a card. Its answer does not depend on clocks, the driver's
// version or the name; we fill them in, because it requires every key.
//
// Sources: cudnn_graph.h 9.19, "CUDNN_ATTR_DEVICEPROP_*", since 9.8. Checked against recordings of real cards:
// docs/real_gpus.md.

#include "rehearsal/real_cudnn.h"

#include <string>

#include "rehearsal/card_facts.h"
#include "rehearsal/loaded_library.h"
#include "rehearsal/options.h"

namespace fsdp::rehearsal {
namespace {

constexpr const char* kLibrary = "libcudnn.so";

// cudnnBackendDescriptorType_t, cudnnBackendAttributeName_t and cudnnBackendAttributeType_t of cudnn_graph.h.
constexpr int kDevicePropDescriptor = 38;
constexpr int kDevicePropJson = 2702;
constexpr int kTypeChar = 24;

// The driver of CUDA 13.0 and clocks of no card in particular, in kHz.
constexpr int kDriverVersion = 13000;
constexpr int kSmClock = 1500000;
constexpr int kMemoryClock = 2000000;

std::string member(const char* key, const std::string& value) {
  return std::string(", \"") + key + "\": " + value;
}

std::string member(const char* key, uint64_t value) {
  return member(key, std::to_string(value));
}

std::string card_as_json() {
  const Card& card = options().card;
  const auto number = [](int value) { return std::to_string(value); };
  std::string json = "{\"deviceVer\": " + number(card.compute_capability * 10);
  json += member("driverVer", kDriverVersion) + member("cudaDeviceId", 0);
  json +=
      member("maxGridSize", "[" + number(kMostGridX) + ", " + number(kMostGridYZ) + ", " + number(kMostGridYZ) + "]");
  json += member("maxBlockSize", "[" + number(kMostThreadsPerBlock) + ", " + number(kMostThreadsPerBlock) + ", " +
                                     number(kMostBlockZ) + "]");
  json += member("regsPerBlock", kRegisters) + member("maxRegistersPerSM", kRegisters);
  json += member("multiProcessorCount", static_cast<uint64_t>(card.sms)) + member("warpSize", kWarp);
  json += member("maxSharedMemoryPerBlock", kSharedPerBlock);
  json += member("maxSharedMemoryPerBlockOptin", static_cast<uint64_t>(card.shared_per_block_bytes));
  json += member("reservedSharedMemoryPerBlock", kReservedSharedPerBlock);
  json += member("maxCtasPerSM", static_cast<uint64_t>(most_blocks_per_sm(card.compute_capability)));
  json += member("maxThreadsPerBlock", kMostThreadsPerBlock);
  json += member("maxThreadsPerSM", static_cast<uint64_t>(card.threads_per_sm));
  json += member("pciDeviceId", 0) + member("isTccDriver", 0) + member("supportCoopLaunch", 1);
  json += member("smClockRateKHz", kSmClock) + member("memClockRateKHz", kMemoryClock);
  json += member("l2CacheSize", static_cast<uint64_t>(card.l2_bytes)) + member("totalGlobalMem", card.total_bytes);
  return json + member("deviceName", std::string("\"NVIDIA GPU\"")) + "}";
}

template <class Function>
bool find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(real_function(kLibrary, name));
  return function != nullptr;
}

const RealCudnn* make() {
  static RealCudnn real;
  if (options().cudnn_workspace_bytes) return nullptr;
  if (!find(real.create, "cudnnBackendCreateDescriptor") || !find(real.destroy, "cudnnBackendDestroyDescriptor") ||
      !find(real.finalize, "cudnnBackendFinalize") || !find(real.set, "cudnnBackendSetAttribute") ||
      !find(real.get, "cudnnBackendGetAttribute")) {
    return nullptr;
  }
  const std::string json = card_as_json();
  const auto size = static_cast<int64_t>(json.size()) + 1;  // Including the zero at the end.
  if (real.create(kDevicePropDescriptor, &real.card) != 0) return nullptr;
  if (real.set(real.card, kDevicePropJson, kTypeChar, size, json.c_str()) != 0) return nullptr;
  return real.finalize(real.card) == 0 ? &real : nullptr;
}

}  // namespace

const RealCudnn* real_cudnn() {
  static const RealCudnn* const found = make();
  return found;
}

}  // namespace fsdp::rehearsal
