#pragma once

// Unknown contents that the host reads: the one thing that can make a rehearsal's sizes wrong.

#include <cstdint>

namespace fsdp::rehearsal {

/// Says so to whom stub_gpu_on_readback named, with the operation that asked. The caller holds no lock.
void notice_readback(uint64_t bytes);

}  // namespace fsdp::rehearsal
