#pragma once

// Values that the host knows before it reads them from the device.

#include <cstdint>

namespace fsdp::rehearsal {

/// Fills `to` with the next answer of this thread. Returns whether there was one of at least that many bytes.
bool answer_readback(void* to, uint64_t bytes);

}  // namespace fsdp::rehearsal
