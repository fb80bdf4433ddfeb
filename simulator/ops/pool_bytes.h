#pragma once

// Bytes by the caching allocator's pools.

#include <algorithm>
#include <cstdint>

#include "core/base/rounding.h"

namespace fsdp::simulator {

/// Bytes in blocks of 512, by the pool of their request's size.
struct PoolBytes {
  static constexpr std::int64_t kBlock = 512;
  static constexpr std::int64_t kLargestSmall = 1 << 20;  ///< For one request, in bytes.

  std::int64_t small = 0;
  std::int64_t large = 0;

  /// Adds `count` tensors of this size; a negative count removes them.
  void add(std::int64_t bytes, std::int64_t count = 1) {
    const std::int64_t rounded = round_up_to_power(bytes, kBlock);
    (rounded > kLargestSmall ? large : small) += count * rounded;
  }
};

/// The smaller number of each pool.
inline PoolBytes least_of(const PoolBytes& a, const PoolBytes& b) {
  return {.small = std::min(a.small, b.small), .large = std::min(a.large, b.large)};
}

}  // namespace fsdp::simulator
