#include "rehearsal/handles.h"

#include <atomic>
#include <cstdint>

namespace fsdp::rehearsal {

void* fresh_handle() {
  static std::atomic<uintptr_t> next{0x10000};
  constexpr uintptr_t kStep = 16;  // as a real, aligned object
  return reinterpret_cast<void*>(next += kStep);
}

}  // namespace fsdp::rehearsal
