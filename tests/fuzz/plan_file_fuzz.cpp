// libFuzzer: any bytes as a plan file. What is read must be written and read as the same plan.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/plan/plan_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fsdp::JsonDocument;
  using fsdp::PlanFile;
  using fsdp::Result;
  const Result<JsonDocument> document = fsdp::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!document) return 0;
  const Result<PlanFile> file = fsdp::read_plan(*document);
  if (!file) {
    if (file.error().empty()) std::abort();
    return 0;
  }
  const Result<JsonDocument> written = fsdp::parse_json(to_text(*file), "written.json");
  if (!written) std::abort();
  const Result<PlanFile> again = fsdp::read_plan(*written);
  if (!again || *again != *file) std::abort();
  return 0;
}
