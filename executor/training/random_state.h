#pragma once

// The generator of random numbers of a rank: what dropout draws from.

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace fsdp::executor {

/// All that its next numbers follow from.
std::string random_state(c10::Device device);

/// Goes on where another one was. REQUIRES: `state` comes from `random_state` of the same kind of device.
void set_random_state(c10::Device device, const std::string& state);

}  // namespace fsdp::executor
