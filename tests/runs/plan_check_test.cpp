#include "runs/plan_check.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "core/report/compare.h"
#include "core/spec/captured_model.h"
#include "runs/given_plan.h"

namespace fsdp::runs {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

struct Gathers {
  std::int64_t count = 0, payload = 0;
};

/// A step that gathers 9 times, 30 MiB in all, and what was rehearsed of it.
PlanCheck check_of(Gathers rehearsed, const std::vector<std::string>& own = {}) {
  Comparison comparison;
  comparison.terms = {{"all_gather count", TermUnit::Count, 9, rehearsed.count},
                      {"steady step: live peak", TermUnit::Bytes, 200 * kMiB, 200 * kMiB},
                      {"all_gather payload", TermUnit::Bytes, 30 * kMiB, rehearsed.payload},
                      {"reduce_scatter count", TermUnit::Count, 5, 5},
                      {"reduce_scatter payload", TermUnit::Bytes, 10 * kMiB, 10 * kMiB}};
  return checked(comparison, Cluster{}, std::nullopt, own);
}

TEST(PlanCheck, PassesIfAllIsAsPredicted) {
  const PlanCheck check = check_of({9, 30 * kMiB});
  EXPECT_TRUE(check.holds());
  EXPECT_EQ(check.collectives_beside, 0);
}

TEST(PlanCheck, SmallGathersOfAScriptAreAllowed) {
  const PlanCheck check = check_of({14, 30 * kMiB + 80});
  EXPECT_TRUE(check.holds());
  EXPECT_EQ(check.collectives_beside, 5);
  EXPECT_EQ(check.bytes_beside, Bytes(80));
}

// All collectives move 40 MiB and what is gathered beside, 0.5 % of it are 210,770 bytes.
TEST(PlanCheck, LargeExtraGathersFailTheCheck) {
  EXPECT_TRUE(check_of({309, 30 * kMiB + 209'000}).holds());
  EXPECT_FALSE(check_of({309, 30 * kMiB + 211'000}).holds());
}

TEST(PlanCheck, ExtraGatherOfTheSizeOfAUnitFailsTheCheck) {
  EXPECT_TRUE(check_of({10, 30 * kMiB + 1024}).holds());
  EXPECT_FALSE(check_of({10, 30 * kMiB + 1025}).holds());
}

// 2 of 8 MiB: of one less or more, or of another kind, something else was run than was captured.
TEST(PlanCheck, GathersSeenInTheCaptureAreAllowed) {
  const Gathers rehearsed{11, 46 * kMiB};
  EXPECT_FALSE(check_of(rehearsed).holds());
  const PlanCheck check = check_of(rehearsed, {"all_gather", "reduce_scatter", "all_gather"});
  EXPECT_FALSE(check_of({10, 38 * kMiB}, {"all_gather", "all_gather"}).holds());
  EXPECT_FALSE(check_of(rehearsed, {"all_gather", "all_reduce"}).holds());
  EXPECT_TRUE(check.holds());
  EXPECT_EQ(check.collectives_beside, 2);
  EXPECT_EQ(check.bytes_beside, Bytes(16 * kMiB));
  Given given;
  given.file.plan.accumulation = 2;
  EXPECT_TRUE(own_collectives(given).empty());
  CapturedModel captured;
  captured.own_collectives = {"all_gather", "all_reduce"};
  given.spec.captured = std::make_shared<CapturedModel>(captured);
  EXPECT_EQ(own_collectives(given), (std::vector<std::string>{"all_gather", "all_reduce", "all_gather", "all_reduce"}));
}

TEST(PlanCheck, AnyMissingGatherFailsTheCheck) {
  EXPECT_FALSE(check_of({8, 30 * kMiB}).holds());
  EXPECT_FALSE(check_of({8, 30 * kMiB - 80}).holds());
}

TEST(PlanCheck, MoreGathersOfFewerBytesFailTheCheck) {
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

TEST(PlanCheck, ListsCollectivesFirst) {
  Comparison comparison;
  comparison.terms = {{"steady step: allocated peak", TermUnit::Bytes, 100, 200},
                      {"all_gather count", TermUnit::Count, 3, 5}};
  const PlanCheck check = checked(comparison, Cluster{});
  ASSERT_EQ(check.beyond.size(), 2);
  EXPECT_EQ(check.beyond.front().name, "all_gather count");
}

TEST(PlanCheck, OnlyAToleranceChecksReservedMemoryAndWholeRuns) {
  Comparison comparison;
  comparison.terms = {{"steady step: reserved peak", TermUnit::Bytes, 100, 110},
                      {"allocated peak", TermUnit::Bytes, 100, 102}};
  EXPECT_TRUE(checked(comparison, Cluster{}).holds());
  EXPECT_TRUE(checked(comparison, Cluster{}, 0.1).holds());
  EXPECT_EQ(checked(comparison, Cluster{}, 0.05).beyond.size(), 1);
  EXPECT_EQ(checked(comparison, Cluster{}, 0.01).beyond.size(), 2);
}

}  // namespace
}  // namespace fsdp::runs
