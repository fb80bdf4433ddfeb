// Every collective of a training step, in order, against what the real FSDP2 issued (tests/golden/fsdp2_collectives).

#include <gtest/gtest.h>

#include <algorithm>

#include "core/frameworks/fsdp2/lower_fsdp2.h"
#include "core/frameworks/layout.h"
#include "core/plan/schedule.h"
#include "simulator/prepared/prediction.h"
#include "simulator/report_traffic.h"
#include "tests/support/collective_cases.h"

namespace fsdp::simulator {
namespace {

std::vector<CollectiveCase> golden_cases() {
  return read_collective_cases("tests/golden/fsdp2_collectives/collectives.txt");
}

std::string text_of(const std::vector<SeenCollective>& collectives) {
  std::string text;
  for (const SeenCollective& seen : collectives) text += to_string(seen) + "\n";
  return text;
}

/// What count_traffic reads off a schedule, without times and memory.
std::vector<Collective> traffic_of(const Plan& plan, const Layout& layout, const Schedule& schedule) {
  Cluster cluster;
  cluster.gpus_per_node = 8;
  PreparedPlan prepared;
  prepared.cluster = &cluster;
  prepared.plan = plan;
  prepared.layout = layout;
  prepared.schedule = schedule;
  prepared.unit_times.resize(layout.units.size());
  return count_traffic(prepared, MeshCosts{}, TimelineResult{}, LiveAtCollectives{}).collectives;
}

std::vector<SeenCollective> collectives_of(const Plan& plan, const Layout& layout, const Schedule& schedule) {
  std::vector<SeenCollective> seen;
  for (const Collective& one : traffic_of(plan, layout, schedule)) {
    seen.push_back({.kind = std::string(name_of(one.kind)),
                    .phase = std::string(name_of(one.phase)),
                    .unit = one.unit,
                    .elements = one.elements,
                    .dtype = std::string(name_of(one.dtype)),
                    .group_size = one.group_size});
  }
  return seen;
}

TEST(Fsdp2Collectives, MatchRealFsdp2InOrder) {
  const std::vector<CollectiveCase> cases = golden_cases();
  ASSERT_FALSE(cases.empty());
  std::size_t compared = 0;
  for (const CollectiveCase& wanted : cases) {
    SCOPED_TRACE(wanted.name);
    const ModelIndex index = index_of(wanted.model);
    const auto layout = make_layout(index, wanted.plan);
    ASSERT_TRUE(layout.has_value()) << to_string(layout.error().front());
    const Schedule schedule = lower_fsdp2(index, wanted.plan, *layout);
    for (const Error& error : validate(schedule, index, *layout)) ADD_FAILURE() << to_string(error);
    EXPECT_EQ(text_of(collectives_of(wanted.plan, *layout, schedule)), text_of(wanted.collectives));
    compared += wanted.collectives.size();
  }
  EXPECT_GT(compared, 500u);
}

// tests/oracle compares these with the real ones, of drawn plans.
TEST(Fsdp2Collectives, AverageUnlessTheDtypeCouldOverflow) {
  const CollectiveCase some = golden_cases().front();
  const ModelIndex index = index_of(some.model);
  for (const auto& [dtype, op] : {std::pair(Dtype::Float32, ReduceOp::Avg), std::pair(Dtype::BFloat16, ReduceOp::Avg),
                                  std::pair(Dtype::Float16, ReduceOp::Sum)}) {
    Plan plan = some.plan;
    plan.mesh.dp_replicate() = 2;
    plan.mixed_precision.reduce_dtype = dtype;
    plan.optimizer.clip_grad_norm = 1.0;
    plan.accumulation = 2;
    const auto layout = make_layout(index, plan);
    ASSERT_TRUE(layout.has_value());
    std::int64_t last = 0;
    for (const Collective& one : traffic_of(plan, *layout, lower_fsdp2(index, plan, *layout))) {
      const bool is_norm = one.phase == StepPhase::Optimizer;
      const bool gathers = one.kind == CollectiveKind::AllGather;
      EXPECT_EQ(one.reduce_op, gathers ? ReduceOp::None : (is_norm ? ReduceOp::Sum : op)) << one.unit;
      EXPECT_TRUE(is_norm ? one.micro_batch == -1 : one.micro_batch >= last) << one.unit << " " << one.micro_batch;
      last = one.micro_batch;
    }
    EXPECT_EQ(last, -1) << "the norms come last";
  }
}

}  // namespace
}  // namespace fsdp::simulator
