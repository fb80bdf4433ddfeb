#pragma once

// Quotients and multiples, rounded up. Sizes are not negative.

#include <cstdint>

namespace fsdp {

constexpr std::int64_t div_up(std::int64_t n, std::int64_t by) {
  return (n + by - 1) / by;
}

/// The first multiple of `step` that is at least n.
constexpr std::int64_t round_up(std::int64_t n, std::int64_t step) {
  return div_up(n, step) * step;
}

/// The same without a division, for code that runs once per allocation.
constexpr std::int64_t round_up_to_power(std::int64_t n, std::int64_t power_of_2) {
  return (n + power_of_2 - 1) & -power_of_2;
}

}  // namespace fsdp
