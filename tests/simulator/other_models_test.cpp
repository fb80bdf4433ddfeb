// Models beside the trained one, by arithmetic. Against the real PyTorch: tests/rehearsal/plan_cases_also.py.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/report/report.h"
#include "simulator/predictor.h"
#include "tests/support/small_models.h"

namespace fsdp::simulator {
namespace {

constexpr int kOtherGpus = 4;
constexpr planner::SmallTransformer kOtherSizes{.layers = 4, .hidden = 512, .heads = 8, .vocabulary = 4096};

Plan plan_beside(std::vector<OtherModel> also) {
  Plan plan;
  plan.mesh = {1, kOtherGpus};
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  for (int i = 0; i < kOtherSizes.layers; ++i) plan.units.push_back({{"model.layers." + std::to_string(i)}, {}});
  plan.units.push_back({{""}, {}});
  plan.also = std::move(also);
  return plan;
}

Predictor predictor_beside(const Plan& plan,
                           Cluster cluster = planner::small_cluster(kOtherGpus, 1, Bytes(15LL << 30))) {
  const auto spec = std::make_shared<const ModelSpec>(planner::small_transformer(kOtherSizes));
  Workload workload;
  for (const OtherModel& other : plan.also) workload.also.push_back({other, spec});
  return {*build_model(*spec, workload), std::move(cluster)};
}

StepReport report_beside(std::vector<OtherModel> also) {
  const Plan plan = plan_beside(std::move(also));
  return *predictor_beside(plan).report(plan);
}

OtherModel other_with(OtherWrap wrap, bool offload = false, OtherTurn turn = OtherTurn::After) {
  return {.file = "small", .wrap = wrap, .offload = offload, .dtype = Dtype::BFloat16, .turn = turn};
}

// Two bytes for each parameter, over four GPUs: all rows divide. On the host there are none; whole there are all.
TEST(OtherModels, ItsShardsLiveOnTheDevice) {
  const StepReport sharded = report_beside({other_with(OtherWrap::Root)});
  const Bytes buffers = sharded.buffers;
  EXPECT_EQ(sharded.others.front().resident, Bytes(2 * sharded.parameters / kOtherGpus) + buffers);
  EXPECT_EQ(report_beside({other_with(OtherWrap::None)}).others.front().resident,
            Bytes(2 * sharded.parameters) + buffers);
  const StepReport offloaded = report_beside({other_with(OtherWrap::Root, true)});
  EXPECT_EQ(offloaded.others.front().resident, buffers);
  EXPECT_GE(offloaded.others.front().host, Bytes(2 * sharded.parameters));
}

// One unit gathers all of it, in bf16, in one collective; as many units as blocks and a root gather the same in five.
TEST(OtherModels, OneUnitIsGatheredWhole) {
  const OtherReport root = report_beside({other_with(OtherWrap::Root)}).others.front();
  const StepReport report = report_beside({other_with(OtherWrap::Blocks)});
  const OtherReport blocks = report.others.front();
  EXPECT_EQ(root.gathers, 1);
  EXPECT_EQ(blocks.gathers, kOtherSizes.layers + 1);
  EXPECT_EQ(root.gathered, Bytes(2 * report.parameters));
  EXPECT_EQ(blocks.gathered, root.gathered);
  EXPECT_GT(root.forward, blocks.forward);
  EXPECT_GE(root.forward, 2 * root.gathered);
}

// After the trained model's forward its activations wait; before it nothing does.
TEST(OtherModels, ItsForwardPeaksBesideTheActivations) {
  const StepReport alone = report_beside({});
  const StepReport after = report_beside({other_with(OtherWrap::Root)});
  const StepReport before = report_beside({other_with(OtherWrap::Root, false, OtherTurn::Before)});
  EXPECT_GT(after.memory.peaks.live, before.memory.peaks.live);
  EXPECT_GT(before.memory.peaks.live, alone.memory.peaks.live);
  EXPECT_EQ(after.memory.peak.instruction.find("forward of "), 0u);
}

TEST(OtherModels, AStepTakesLongerByItsForwards) {
  const StepReport alone = report_beside({});
  const StepReport with = report_beside({other_with(OtherWrap::Blocks)});
  EXPECT_NEAR(with.time.step.count(), (alone.time.step + with.others.front().time).count(),
              0.05 * with.time.step.count());
  EXPECT_GT(with.others.front().time, Seconds(0));
}

// The tensors of both models have names of their own.
TEST(OtherModels, LiveTensorsNameTheirModel) {
  const StepReport report = report_beside({other_with(OtherWrap::Root)});
  const std::string name = report.others.front().name + ": ";
  Bytes of_other;
  for (const LiveTensor& tensor : report.memory.live_at_peak) {
    if (tensor.name.starts_with(name)) of_other += tensor.bytes;
  }
  EXPECT_GE(of_other, report.others.front().resident + report.others.front().gathered);
}

// A bound of the device is never above the prediction.
TEST(OtherModels, BoundsStayBelow) {
  for (const OtherWrap wrap : {OtherWrap::Root, OtherWrap::Blocks, OtherWrap::None}) {
    for (const OtherTurn turn : {OtherTurn::After, OtherTurn::Before}) {
      const Plan plan = plan_beside({other_with(wrap, false, turn)});
      Predictor predictor = predictor_beside(plan);
      const Outcome bound = *predictor.evaluate(plan, Detail::Live);
      const Outcome device = *predictor.evaluate(plan, Detail::Device);
      EXPECT_LE(bound.own_lower_bound, device.peaks.device);
      EXPECT_GT(bound.own_lower_bound.count(), device.peaks.device.count() * 8 / 10);
    }
  }
}

}  // namespace
}  // namespace fsdp::simulator
