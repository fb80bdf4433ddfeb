#pragma once

// The host's knowledge of a value that it is about to read from the device.

#include <cstdint>

namespace fsdp::rehearsal {

/// Fills `to` with the next answer of this thread, and says whether there was one of that many bytes or more.
bool answer_readback(void* to, uint64_t bytes);

}  // namespace fsdp::rehearsal
