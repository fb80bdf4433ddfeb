// Where no plan has room to spare, the fastest that runs is named, and what runs is what an allocator with the device's
// limit survives.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/report/device_verdict.h"
#include "planner/advice/explained_search.h"
#include "planner/search/search.h"
#include "planner/search/ties.h"
#include "tests/support/search_cases.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

Case small_case(Bytes memory) {
  Case c;
  c.spec = small_transformer({.layers = 4, .hidden = 512, .vocabulary = 2048, .batch = 8, .sequence = 128});
  c.cluster = small_cluster(2, 1, memory);
  c.space.base = *base_plan(c.spec, c.workload);
  c.space.cpu_offload = false;
  c.space.explain = false;
  c.space.pareto_points = 0;
  return c;
}

SearchResult found(const Case& c) {
  return search(c.spec, c.workload, c.cluster, c.space).value();
}

/// The least memory with which some plan has room to spare.
Bytes least_with_room() {
  Bytes none(0);
  Bytes enough(std::int64_t{16} << 30);
  while (enough - none > Bytes(1)) {
    const Bytes middle = none + Bytes((enough - none).count() / 2);
    const Case c = small_case(middle);
    (has_fitting_plan(c.spec, c.workload, c.cluster, c.space)->value() ? enough : none) = middle;
  }
  return enough;
}

struct Runs {
  double nanoseconds = std::numeric_limits<double>::infinity();
  std::int64_t number = 0;
};

/// The fastest plan of the space that runs, and how many do: by a prediction of each.
Runs runs_by_brute_force(const Case& c) {
  Engine engine(c);
  Runs runs;
  for (const Priced& point : price_all(engine, Bytes(0))) {
    const PlanPoint plan_point = engine.cost.plan_point_of(point.box);
    const auto outcome =
        engine.cost.predictor_of(plan_point).evaluate(engine.cost.plan_of(plan_point), simulator::Detail::Tight);
    if (outcome->device.verdict != Verdict::Fits) continue;
    ++runs.number;
    runs.nanoseconds = std::min(runs.nanoseconds, point.nanoseconds + 1e9 * outcome->flush_time.count());
  }
  return runs;
}

TEST(TightSearch, NamesATightPlanIfNoneHasRoom) {
  Case c = small_case(least_with_room() - Bytes(1));
  EXPECT_EQ(found(c).verdict, Verdict::DoesNotFit);
  c.space.room = Room::Either;
  const SearchResult tight = found(c);
  ASSERT_EQ(tight.verdict, Verdict::Fits);
  ASSERT_TRUE(is_tight(tight.report));
  EXPECT_EQ(tight.report.memory.tightness, Tightness::Margin);
  EXPECT_EQ(tight.notes.front(), "No plan has room to spare: this is the fastest that runs.");
  EXPECT_EQ(tight.best.missing, Bytes(0));
}

TEST(TightSearch, DoesNotChangeAPlanWithRoom) {
  Case c = small_case(least_with_room());
  const SearchResult with_room = found(c);
  c.space.room = Room::Either;
  EXPECT_EQ(found(c), with_room);
}

// From where nothing has room to where nothing runs.
TEST(TightSearch, FindsTheFastestTightPlanAsBruteForceDoes) {
  const Bytes least = least_with_room();
  bool has_flushed = false;
  bool has_ended = false;
  for (Bytes memory = least - Bytes(1); !has_ended; memory -= Bytes(least.count() / 25)) {
    Case c = small_case(memory);
    const Runs runs = runs_by_brute_force(c);
    c.space.room = Room::Either;
    const SearchResult result = found(c);
    SCOPED_TRACE(memory.count());
    has_ended = runs.number == 0;
    if (has_ended) continue;
    ASSERT_EQ(result.verdict, Verdict::Fits);
    EXPECT_TRUE(result.proof.is_proven);
    const Seconds step = result.report.time.step + result.report.memory.flush_time;
    EXPECT_LE(1e9 * step.count(), (1 + kTieShare) * runs.nanoseconds + 2);
    has_flushed = has_flushed || result.report.memory.tightness == Tightness::Flushes;
  }
  EXPECT_TRUE(has_flushed);
}

}  // namespace
}  // namespace fsdp::planner
