// The bound of live bytes plays tapes in runs: simulator/ops/tape_runs.cpp. Here its single events are counted.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/plan/framework_traits.h"
#include "core/plan/plan.h"
#include "planner/space/families.h"
#include "simulator/memory/block_sums.h"
#include "simulator/memory/memory_walk.h"
#include "simulator/prepared/prediction.h"
#include "simulator/time/tape_library.h"
#include "tests/support/search_cases.h"

namespace fsdp::planner {
namespace {

using simulator::LiveSink;
using simulator::MemoryEvent;
using simulator::MemoryWalk;
using simulator::PreparedPlan;
using simulator::TapeLibrary;
using simulator::TraceSink;
using simulator::WalkInput;

template <class Sink>
void walk(const WalkInput& input, Sink& sink) {
  MemoryWalk<Sink> walk(input, sink);
  walk.initialize();
  walk.make_states();
  walk.step();
}

LiveSink counted_in_runs(const PreparedPlan& prepared) {
  LiveSink sink;
  sink.reset(prepared.ids.total);
  WalkInput input = prepared.walk_input();
  const simulator::LayoutSums sums = simulator::sums_of(prepared.layout, prepared.plan.mixed_precision);
  const bool is_fsdp2 = !prepared.layout.is_replicated && prepared.layout.flat == FlatParameters::None;
  if (is_fsdp2) input.sums = &sums;
  walk(input, sink);
  return sink;
}

LiveSink counted_one_by_one(const PreparedPlan& prepared) {
  TraceSink trace;
  walk(prepared.walk_input(), trace);
  LiveSink sink;
  sink.reset(prepared.ids.total);
  for (const MemoryEvent& event : trace.events()) {
    event.is_free() ? sink.free(event.id) : sink.alloc(event.id, event.bytes, event.stream, event.category);
  }
  return sink;
}

// Units inside blocks, of which a tape is played in parts, are in the space, and so are checkpoints.
RC_GTEST_PROP(LiveBound, CountsOfRunsEqualCountsOneByOne, ()) {
  const Case c = random_case();
  Engine engine(c);
  const std::vector<Box> boxes = engine.cost.space();
  for (int i = 0; i < 8; ++i) {
    Box box = boxes[*rc::gen::inRange<std::size_t>(0, boxes.size())];
    for (Interval& range : box.ranges) range.first = range.last = *rc::gen::inRange(range.first, range.last + 1);
    const PlanPoint plan_point = engine.cost.plan_point_of(box);
    const Plan plan = plan_of(c.space.base, engine.families, plan_point);
    // Its bound begins again where the cache is emptied, of which the trace knows nothing.
    if (traits_of(plan).zero_stage > 0) continue;
    const ModelIndex index = index_of(engine.cost.predictor_of(plan_point).model());
    TapeLibrary library(index);
    const auto costs = simulator::mesh_costs(c.cluster, plan.mesh);
    const auto prepared = simulator::prepare(index, c.cluster, plan, costs, library, 0, simulator::PreparedFor::Bound);
    RC_ASSERT(prepared.has_value());
    const LiveSink runs = counted_in_runs(*prepared);
    const LiveSink events = counted_one_by_one(*prepared);
    RC_ASSERT(runs.reserved_lower_bound() == events.reserved_lower_bound());
    RC_ASSERT(runs.segments_lower_bound(Bytes(20 << 20)) == events.segments_lower_bound(Bytes(20 << 20)));
  }
}

}  // namespace
}  // namespace fsdp::planner
