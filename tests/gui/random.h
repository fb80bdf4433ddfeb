#pragma once

// The same numbers on every machine, which <random>'s distributions do not promise.

#include <cstdint>

namespace fsdp::gui::test {

class Random {
 public:
  explicit Random(int seed) : state_(static_cast<std::uint32_t>(seed)) {}
  /// 0 to 2^24 - 1.
  int operator()() {
    state_ = state_ * 1664525U + 1013904223U;
    return static_cast<int>(state_ >> 8U);
  }

 private:
  std::uint32_t state_;
};

}  // namespace fsdp::gui::test
