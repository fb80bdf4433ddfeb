#pragma once

// The devices of this node, and each thread's current device.

namespace fsdp::rehearsal {

/// The device that the calling thread chose with cudaSetDevice. Defaults to 0.
int current_device();

/// Whether a device has this number.
bool device_exists(int device);

}  // namespace fsdp::rehearsal
