#pragma once

// Bounds on inputs, beyond those of single fields.

#include <cstdint>

namespace fsdp {

/// Micro-batches of an optimizer step. A schedule lists them one by one, and a report the collectives of each: this
/// many for Llama-3.1-8B take two seconds and 450 MB.
inline constexpr std::int64_t kMostMicroBatches = 4096;

}  // namespace fsdp
