#pragma once

// The devices of this node, and which one a thread uses.

namespace fsdp::rehearsal {

/// The device that the calling thread chose with cudaSetDevice; 0 before.
int current_device();

/// Whether there is such a device.
bool device_exists(int device);

}  // namespace fsdp::rehearsal
