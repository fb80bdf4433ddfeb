// How PyTorch gets the driver's functions: it fills a table at its first use, and requires an address for each name. A
// name that the stub does not have gets a function that returns "not supported" and records the name if it is called.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string>
#include <utility>

#include "rehearsal/exported.h"
#include "rehearsal/options.h"

using namespace fsdp::rehearsal;

namespace {

constexpr size_t kPlaces = 128;  // the table of PyTorch 2.11 has 40 names, most of which the stub has

struct Unknown {
  std::mutex mutex;
  std::array<std::string, kPlaces> names;
  size_t known = 0;
};

Unknown& unknown() {
  static Unknown* const instance = new Unknown;  // never destroyed: static destructors still call us
  return *instance;
}

/// The stand-in function for the name at `kPlace`.
template <size_t kPlace>
int missing_function() {
  note_missing(unknown().names[kPlace]);
  return CUDA_ERROR_NOT_SUPPORTED;
}

using Function = int (*)();

template <size_t... kPlace>
constexpr std::array<Function, kPlaces> make_functions(std::index_sequence<kPlace...>) {
  return {missing_function<kPlace>...};
}
constexpr std::array<Function, kPlaces> kFunctions = make_functions(std::make_index_sequence<kPlaces>());

/// Null if all places are used.
void* stand_in_for(const std::string& name) {
  Unknown& u = unknown();
  const std::lock_guard lock(u.mutex);
  const auto end = u.names.begin() + static_cast<std::ptrdiff_t>(u.known);
  const auto place = static_cast<size_t>(std::find(u.names.begin(), end, name) - u.names.begin());
  if (place == kPlaces) return nullptr;
  if (place == u.known) {
    trace(Trace::Calls, "no driver function %s", name.c_str());
    u.names[u.known++] = name;
  }
  return reinterpret_cast<void*>(kFunctions[place]);
}

}  // namespace

FSDP_STUB cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int,
                                                       unsigned long long, cudaDriverEntryPointQueryResult* result) {
  *function = dlsym(RTLD_DEFAULT, symbol);
  if (*function == nullptr) *function = stand_in_for(symbol);
  if (result != nullptr) {
    *result = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}
