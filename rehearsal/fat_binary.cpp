// Fat binaries: a wrapper points to a container with a header and then one entry for each version of the code, each
// with its own header. No public header of CUDA has the layouts.
//
// Source: fatbinary_section.h of the CUDA toolkit (the wrapper); the output of cuobjdump -all for PyTorch's libraries
// (the rest).
#include "rehearsal/fat_binary.h"

#include <cstdint>
#include <cstring>

namespace fsdp::rehearsal {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1, kContainerMagic = 0xba55ed50;
constexpr uint16_t kPtx = 1, kMachineCode = 2;

struct Wrapper {
  uint32_t magic, version;
  const unsigned char* container;
};

struct Container {
  uint32_t magic;
  uint16_t version, header_size;
  uint64_t size;  // of all entries
};

struct Entry {
  uint16_t kind, flags;
  uint32_t header_size;
  uint64_t size;  // of the code after the header
  uint32_t compressed_size, options_offset;
  uint16_t minor, major;
  uint32_t architecture;
};
static_assert(sizeof(Container) == 16 && sizeof(Entry) == 32);

}  // namespace

std::vector<CompiledCode> compiled_code(const void* wrapper) {
  std::vector<CompiledCode> versions;
  Wrapper given{};
  if (wrapper != nullptr) std::memcpy(&given, wrapper, sizeof given);
  if (given.magic != kWrapperMagic || given.container == nullptr) return versions;
  Container container;
  std::memcpy(&container, given.container, sizeof container);
  if (container.magic != kContainerMagic) return versions;
  const unsigned char* at = given.container + container.header_size;
  const unsigned char* const end = at + container.size;
  while (at + sizeof(Entry) <= end) {
    Entry entry;
    std::memcpy(&entry, at, sizeof entry);
    if (entry.header_size < sizeof entry || entry.header_size + entry.size > static_cast<uint64_t>(end - at)) break;
    if (entry.kind == kPtx || entry.kind == kMachineCode) {
      versions.push_back({entry.kind == kPtx, static_cast<int>(entry.architecture)});
    }
    at += entry.header_size + entry.size;
  }
  return versions;
}

CompiledCode code_for(const std::vector<CompiledCode>& versions, int compute_capability) {
  CompiledCode best;
  for (const CompiledCode& code : versions) {
    const bool runs =
        code.architecture <= compute_capability && (code.is_ptx || code.architecture / 10 == compute_capability / 10);
    const bool is_better = best.architecture == 0 || (best.is_ptx && !code.is_ptx) ||
                           (best.is_ptx == code.is_ptx && code.architecture > best.architecture);
    if (runs && is_better) best = code;
  }
  return best;
}

}  // namespace fsdp::rehearsal
