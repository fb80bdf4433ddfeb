#include "runs/plan_check.h"

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
PlanCheck check_of(Gathers rehearsed) {
  Comparison comparison;
  comparison.terms = {{"all_gather count", TermUnit::Count, 9, rehearsed.count},
                      {"steady step: live peak", TermUnit::Bytes, 200 * kMiB, 200 * kMiB},
                      {"all_gather payload", TermUnit::Bytes, 30 * kMiB, rehearsed.payload},
                      {"reduce_scatter count", TermUnit::Count, 5, 5},
                      {"reduce_scatter payload", TermUnit::Bytes, 10 * kMiB, 10 * kMiB}};
  return checked(comparison, Cluster{});
}

TEST(PlanCheck, HoldsWhereAllIsAsPredicted) {
  const PlanCheck check = check_of({9, 30 * kMiB});
  EXPECT_TRUE(check.holds());
  EXPECT_EQ(check.collectives_beside, 0);
}

TEST(PlanCheck, AScriptThatGathersAMetricIsCaptured) {
  const PlanCheck check = check_of({14, 30 * kMiB + 80});
  EXPECT_TRUE(check.holds());
  EXPECT_EQ(check.collectives_beside, 5);
  EXPECT_EQ(check.bytes_beside, Bytes(80));
}

// All collectives move 40 MiB and what is gathered beside, 0.5 % of it are 210,770 bytes.
TEST(PlanCheck, WhatGathersMuchMoreIsNotTheScriptsOwn) {
  EXPECT_TRUE(check_of({309, 30 * kMiB + 209'000}).holds());
  EXPECT_FALSE(check_of({309, 30 * kMiB + 211'000}).holds());
}

TEST(PlanCheck, AGatherAsLargeAsAUnitIsNotTheScriptsOwn) {
  EXPECT_TRUE(check_of({10, 30 * kMiB + 1024}).holds());
  EXPECT_FALSE(check_of({10, 30 * kMiB + 1025}).holds());
}

TEST(PlanCheck, AGatherThatIsMissingIsAnErrorHoweverSmall) {
  EXPECT_FALSE(check_of({8, 30 * kMiB}).holds());
  EXPECT_FALSE(check_of({8, 30 * kMiB - 80}).holds());
}

TEST(PlanCheck, MoreGathersOfFewerBytesAreAnError) {
  EXPECT_FALSE(check_of({10, 30 * kMiB - 80}).holds());
}

// One of 300 all-gathers is 0.33 %, and a payload of one byte in 30 MiB is nothing at all: neither is what was planned.
TEST(PlanCheck, CollectivesAreEqual) {
  Comparison comparison;
  comparison.terms = {{"all_gather count", TermUnit::Count, 300, 301},
                      {"all_gather payload", TermUnit::Bytes, 30 * kMiB, 30 * kMiB + 100 * 1024}};
  EXPECT_EQ(checked(comparison, Cluster{}).beyond, comparison.terms);
  comparison.terms = {{"all_gather payload", TermUnit::Bytes, 30 * kMiB, 30 * kMiB + 1}};
  EXPECT_EQ(checked(comparison, Cluster{}).beyond, comparison.terms);
  EXPECT_FALSE(checked(comparison, Cluster{}, 0.5).holds());
}

TEST(PlanCheck, SaysCollectivesFirst) {
  Comparison comparison;
  comparison.terms = {{"steady step: allocated peak", TermUnit::Bytes, 100, 200},
                      {"all_gather count", TermUnit::Count, 3, 5}};
  const PlanCheck check = checked(comparison, Cluster{});
  ASSERT_EQ(check.beyond.size(), 2);
  EXPECT_EQ(check.beyond.front().name, "all_gather count");
}

TEST(PlanCheck, OnlyAToleranceHoldsReservedMemoryAndWholeRuns) {
  Comparison comparison;
  comparison.terms = {{"steady step: reserved peak", TermUnit::Bytes, 100, 110},
                      {"allocated peak", TermUnit::Bytes, 100, 102}};
  EXPECT_TRUE(checked(comparison, Cluster{}).holds());
  EXPECT_TRUE(checked(comparison, Cluster{}, 0.1).holds());
  EXPECT_EQ(checked(comparison, Cluster{}, 0.05).beyond.size(), 1);
  EXPECT_EQ(checked(comparison, Cluster{}, 0.01).beyond.size(), 2);
}

}  // namespace
}  // namespace fsdp::planner
