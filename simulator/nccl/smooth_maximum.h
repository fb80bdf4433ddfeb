#pragma once

#include <cmath>

namespace fsdp::simulator {

/// The latency of a ring's steps, and the transfer that hides most of it: between the two the larger one goes over
/// smoothly. The norm is that of the tables over networks (network_clock.cpp); those over PCIe have no other.
inline double smooth_maximum(double a, double b) {
  constexpr double kNorm = 1.3;
  return std::pow(std::pow(a, kNorm) + std::pow(b, kNorm), 1 / kNorm);
}

}  // namespace fsdp::simulator
