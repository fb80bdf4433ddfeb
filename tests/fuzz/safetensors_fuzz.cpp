// libFuzzer: any bytes as a safetensors file. In a header that is read every byte of the file has its tensor.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The first byte says how many bytes of tensors there are, so that the fuzzer can find a size that fits.
  if (size == 0) return 0;
  const std::string header(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::int64_t begin = fsdp::kSafetensorsLengthBytes + static_cast<std::int64_t>(header.size());
  const std::int64_t file_bytes = begin + data[0];
  const auto read = fsdp::parse_safetensors_header(header, "fuzz", file_bytes);
  if (!read) {
    if (read.error().empty()) std::abort();
    return 0;
  }
  std::int64_t next = begin;
  for (const fsdp::SafetensorsEntry& entry : read->entries) {
    if (entry.begin != next || entry.end < entry.begin) std::abort();
    if (entry.dtype && fsdp::checked_bytes(entry.shape, *entry.dtype) != entry.end - entry.begin) std::abort();
    if (entry.saved_offsets && entry.saved_offsets->size() != entry.shape.size()) std::abort();
    next = entry.end;
  }
  if (next != file_bytes) std::abort();
  return 0;
}
