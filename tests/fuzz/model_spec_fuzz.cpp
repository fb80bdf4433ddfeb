// libFuzzer: any bytes as a model spec. What is read is also built, for its default workload.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/spec/model_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto spec = fsdp::parse_model_spec({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!spec) {
    if (spec.error().empty()) std::abort();
    return 0;
  }
  const auto model = fsdp::build_model(*spec);
  if (!model && model.error().empty()) std::abort();
  return 0;
}
