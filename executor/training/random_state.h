#pragma once

// The random number generator of a rank, for dropout.

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace fsdp::executor {

/// Its complete state.
std::string random_state(c10::Device device);

/// Restores a state. REQUIRES: `state` comes from `random_state` of the same kind of device.
void set_random_state(c10::Device device, const std::string& state);

}  // namespace fsdp::executor
