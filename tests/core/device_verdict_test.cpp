// Three answers: a device has room, it is tight, or it does not do. In GiB, of a device with 80.

#include "core/report/device_verdict.h"

#include <gtest/gtest.h>

namespace fsdp {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

DeviceVerdict of(std::int64_t peak, std::int64_t margin, std::int64_t held = 0, std::int64_t flushes = -1) {
  return verdict_of({.budget = Bytes(80 * kGiB),
                     .peak = Bytes(peak * kGiB),
                     .margin = Bytes(margin * kGiB),
                     .held = Bytes(held * kGiB),
                     .flushes = flushes});
}

constexpr DeviceVerdict kRoom{Verdict::Fits, Tightness::None};
constexpr DeviceVerdict kNo{Verdict::DoesNotFit, Tightness::None};

TEST(DeviceVerdict, RoomIncludesTheMargin) {
  EXPECT_EQ(of(75, 5), kRoom);
  EXPECT_TRUE(of(75, 5).has_room());
  EXPECT_EQ(of(75, 6), (DeviceVerdict{Verdict::Fits, Tightness::Margin}));
  EXPECT_FALSE(of(75, 6).has_room());
  EXPECT_EQ(of(80, 6), (DeviceVerdict{Verdict::Fits, Tightness::Margin}));
}

// T5-3B under FSDP1 on one A100: a peak of 55 GiB, and 66 that a CPU far ahead would find held.
TEST(DeviceVerdict, StreamMemoryMakesAPlanTightButRefusesNone) {
  EXPECT_EQ(of(55, 69, 66), (DeviceVerdict{Verdict::Fits, Tightness::Streams}));
  EXPECT_EQ(of(70, 10, 5), kRoom);
  EXPECT_EQ(of(78, 10, 5), (DeviceVerdict{Verdict::Fits, Tightness::Margin}));
}

TEST(DeviceVerdict, PlanThatEmptiesTheCacheRunsAndIsTight) {
  EXPECT_EQ(of(84, 5, 0, 1), (DeviceVerdict{Verdict::Fits, Tightness::Flushes}));
  EXPECT_EQ(of(84, 5, 0, 0), (DeviceVerdict{Verdict::Fits, Tightness::Flushes}));
  EXPECT_EQ(of(84, 5, 0, -1), kNo);
}

TEST(DeviceVerdict, ConsidersTheDeviceAlone) {
  StepReport report{.verdict = Verdict::DoesNotFit};
  report.memory.budget = Bytes(80 * kGiB);
  report.memory.peaks.device = Bytes(77 * kGiB);
  report.memory.margin = Bytes(5 * kGiB);
  EXPECT_EQ(device_verdict_of(report.memory).tightness, Tightness::Margin);
  EXPECT_EQ(missing_room(report.memory), Bytes(2 * kGiB));
  report.memory.tightness = Tightness::Margin;
  EXPECT_FALSE(is_tight(report));  // It does not run: its host lacks memory, say.
  report.verdict = Verdict::Fits;
  EXPECT_TRUE(is_tight(report));
  EXPECT_FALSE(has_room(report));
}

}  // namespace
}  // namespace fsdp
