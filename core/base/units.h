#pragma once

// Quantities with a unit. There are no implicit conversions: bytes and FLOPs do not add up. The only operators that
// cross types make a duration out of an amount and a rate.

#include <chrono>
#include <compare>
#include <cstdint>

namespace fsdp {

template <class Tag, class Rep>
class Quantity {
 public:
  using rep = Rep;

  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep count) : count_(count) {}
  constexpr Rep count() const { return count_; }

  constexpr auto operator<=>(const Quantity&) const = default;

  constexpr Quantity& operator+=(Quantity other) {
    count_ += other.count_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    count_ -= other.count_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.count_ + b.count_); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.count_ - b.count_); }
  friend constexpr Quantity operator-(Quantity a) { return Quantity(-a.count_); }
  friend constexpr Quantity operator*(Quantity a, Rep factor) { return Quantity(a.count_ * factor); }
  friend constexpr Quantity operator*(Rep factor, Quantity a) { return Quantity(factor * a.count_); }

 private:
  Rep count_{};
};

/// Signed, so that an underflow shows as a negative number instead of 16 EiB.
using Bytes = Quantity<struct BytesTag, std::int64_t>;
/// A double: a step of a 405B model on 16M tokens is 4e19 operations, more than 2^63.
using Flops = Quantity<struct FlopsTag, double>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag, double>;
using Seconds = std::chrono::duration<double>;

constexpr Seconds operator/(Bytes amount, BytesPerSecond rate) {
  return Seconds{static_cast<double>(amount.count()) / rate.count()};
}
constexpr Seconds operator/(Flops amount, FlopsPerSecond rate) {
  return Seconds{amount.count() / rate.count()};
}

/// The ratio of two amounts of one kind, as a plain number.
constexpr double ratio(Bytes a, Bytes b) {
  return static_cast<double>(a.count()) / static_cast<double>(b.count());
}

namespace literals {
constexpr Bytes operator""_B(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n));
}
constexpr Bytes operator""_KiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) << 10);
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) << 20);
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) << 30);
}
}  // namespace literals

static_assert(Bytes(80LL << 30) > Bytes(2'147'483'647), "sizes above 2 GiB fit");
static_assert(Bytes(900'000'000'000) / BytesPerSecond(450e9) == Seconds(2), "bytes over bytes per second are seconds");
static_assert(Flops(4e19) / FlopsPerSecond(1e15) == Seconds(4e4));

}  // namespace fsdp
