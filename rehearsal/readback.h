#pragma once

// Unknown contents that the host reads: the only thing that can make a rehearsal's sizes wrong.

#include <cstdint>

namespace fsdp::rehearsal {

/// Passes the bytes and the reading operation to the callback of stub_gpu_on_readback. The caller holds no lock.
void notice_readback(uint64_t bytes);

}  // namespace fsdp::rehearsal
