#include "core/base/units.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <concepts>

namespace fsdp {
namespace {

using namespace literals;

template <class A, class B>
concept CanBeAdded = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept CanBeMultiplied = requires(A a, B b) {
  a* b;
};
template <class A, class B>
concept CanBeDivided = requires(A a, B b) {
  a / b;
};
template <class A, class B>
concept CanBeCompared = requires(A a, B b) {
  a < b;
};

TEST(Units, DifferentKindsDoNotMix) {
  static_assert(CanBeAdded<Bytes, Bytes>);
  static_assert(!CanBeAdded<Bytes, Flops>);
  static_assert(!CanBeAdded<Bytes, std::int64_t>);
  static_assert(!CanBeAdded<BytesPerSecond, FlopsPerSecond>);
  static_assert(!CanBeCompared<Bytes, Flops>);
  static_assert(!CanBeMultiplied<Bytes, Bytes>);
  static_assert(!CanBeDivided<Bytes, FlopsPerSecond>);
  static_assert(!CanBeDivided<Flops, BytesPerSecond>);
  static_assert(!std::convertible_to<std::int64_t, Bytes>);
  static_assert(!std::convertible_to<Bytes, std::int64_t>);
}

TEST(Bytes, CountInPowersOf1024) {
  EXPECT_EQ(1_KiB, 1024_B);
  EXPECT_EQ(1_MiB, 1'048'576_B);
  EXPECT_EQ(80_GiB, 85'899'345'920_B);
}

TEST(Bytes, ShowAnUnderflowAsANegativeNumber) {
  EXPECT_EQ((1_B - 3_B).count(), -2);
}

// 900 GB at 450 GB/s take 2 s; 4e19 FLOPs at 1 PFLOP/s take 40,000 s.
TEST(Time, IsAnAmountDividedByARate) {
  EXPECT_EQ(Bytes(900'000'000'000) / BytesPerSecond(450e9), Seconds(2));
  EXPECT_EQ(Flops(4e19) / FlopsPerSecond(1e15), Seconds(40'000));
  EXPECT_EQ(Bytes(0) / BytesPerSecond(1), Seconds(0));
}

// A step of 16 million tokens on 405 billion parameters: 6 * 405e9 * 16e6 = 3.888e19, above 2^63 = 9.2e18.
TEST(Flops, HoldMoreThanAnInteger) {
  EXPECT_EQ((6.0 * 16e6) * Flops(405e9), Flops(3.888e19));
}

TEST(Ratio, TwoAmountsGiveAPlainNumber) {
  EXPECT_EQ(ratio(12_GiB, 16_GiB), 0.75);
}

RC_GTEST_PROP(Bytes, AddSubtractAndScaleAsTheirCountsDo, ()) {
  const auto a = *rc::gen::inRange<std::int64_t>(-(1LL << 50), 1LL << 50);
  const auto b = *rc::gen::inRange<std::int64_t>(-(1LL << 50), 1LL << 50);
  const auto factor = *rc::gen::inRange<std::int64_t>(-1000, 1000);
  RC_ASSERT((Bytes(a) + Bytes(b)).count() == a + b);
  RC_ASSERT((Bytes(a) - Bytes(b)).count() == a - b);
  RC_ASSERT((-Bytes(a)).count() == -a);
  RC_ASSERT((Bytes(a) * factor).count() == a * factor);
  RC_ASSERT((factor * Bytes(a)).count() == factor * a);
  RC_ASSERT((Bytes(a) < Bytes(b)) == (a < b));
}

}  // namespace
}  // namespace fsdp
