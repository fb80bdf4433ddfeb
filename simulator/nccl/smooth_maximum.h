#pragma once

#include <cmath>

namespace fsdp::simulator {

/// Combines the latency of a ring's steps and the transfer that hides most of it: a smooth transition to the larger
/// one. The norm is that of the tables over networks (network_clock.cpp); we use it over PCIe, too.
inline double smooth_maximum(double a, double b) {
  constexpr double kNorm = 1.3;
  return std::pow(std::pow(a, kNorm) + std::pow(b, kNorm), 1 / kNorm);
}

}  // namespace fsdp::simulator
