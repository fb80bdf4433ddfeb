#include "runs/capture_check.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "core/report/compare.h"

namespace fsdp::planner {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

struct Gathers {
  std::int64_t count = 0, payload = 0;
};

/// A step that gathers 9 times, 30 MiB in all, and what was rehearsed of it.
CaptureCheck check_of(Gathers rehearsed) {
  Comparison comparison;
  comparison.terms = {{"all_gather count", TermUnit::Count, 9, rehearsed.count},
                      {"steady step: live peak", TermUnit::Bytes, 200 * kMiB, 200 * kMiB},
                      {"all_gather payload", TermUnit::Bytes, 30 * kMiB, rehearsed.payload},
                      {"reduce_scatter count", TermUnit::Count, 5, 5},
                      {"reduce_scatter payload", TermUnit::Bytes, 10 * kMiB, 10 * kMiB}};
  return checked(comparison, Cluster{});
}

TEST(CaptureCheck, HoldsWhereAllIsAsPredicted) {
  const CaptureCheck check = check_of({9, 30 * kMiB});
  EXPECT_TRUE(check.holds());
  EXPECT_EQ(check.collectives_beside, 0);
}

TEST(CaptureCheck, AScriptThatGathersAMetricIsCaptured) {
  const CaptureCheck check = check_of({14, 30 * kMiB + 80});
  EXPECT_TRUE(check.holds());
  EXPECT_EQ(check.collectives_beside, 5);
  EXPECT_EQ(check.bytes_beside, Bytes(80));
}

// All collectives move 40 MiB and what is gathered beside, 0.5 % of it are 210,770 bytes.
TEST(CaptureCheck, WhatGathersMuchMoreIsNotTheScriptsOwn) {
  EXPECT_TRUE(check_of({309, 30 * kMiB + 209'000}).holds());
  EXPECT_FALSE(check_of({309, 30 * kMiB + 211'000}).holds());
}

TEST(CaptureCheck, AGatherAsLargeAsAUnitIsNotTheScriptsOwn) {
  EXPECT_TRUE(check_of({10, 30 * kMiB + 1024}).holds());
  EXPECT_FALSE(check_of({10, 30 * kMiB + 1025}).holds());
}

TEST(CaptureCheck, AGatherThatIsMissingIsAnErrorHoweverSmall) {
  EXPECT_FALSE(check_of({8, 30 * kMiB}).holds());
  EXPECT_FALSE(check_of({8, 30 * kMiB - 80}).holds());
}

TEST(CaptureCheck, MoreGathersOfFewerBytesAreAnError) {
  EXPECT_FALSE(check_of({10, 30 * kMiB - 80}).holds());
}

}  // namespace
}  // namespace fsdp::planner
