#pragma once

// Bytes as the caching allocator tells them apart.

#include <cstdint>

namespace fsdp::simulator {

/// Bytes in blocks of 512, by the pool of their request's size (TapeRun::kLargestSmall).
struct PoolBytes {
  std::int64_t small = 0;
  std::int64_t large = 0;
};

}  // namespace fsdp::simulator
