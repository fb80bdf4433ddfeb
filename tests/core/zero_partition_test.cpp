// ZeRO-1 and 2's parts of parameters, buckets and order of events, on sizes that can be added up in the head. What the
// real DeepSpeed does with whole models is in tests/rehearsal/plan_cases_zero.py.

#include "core/frameworks/zero/zero_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/frameworks/check_plan.h"
#include "core/frameworks/layout.h"
#include "core/frameworks/lower.h"
#include "core/plan/plan_file.h"
#include "core/plan/schedule.h"
#include "tests/support/collective_models.h"

namespace fsdp {
namespace {

Plan zero_plan(Framework stage, int ranks) {
  Plan plan;
  plan.mesh = {1, ranks};
  plan.units = {{{""}, {}}};
  plan.runtime.framework = stage;
  plan.parameter_dtype = Dtype::Float32;
  plan.sync_every_micro_batch = stage == Framework::Zero2;
  return plan;
}

Model zero_model() {
  return collective_model("mlp", {{"in", "6"}, {"out", "5"}, {"blocks", "8,12,8;8,12,8"}}, Dtype::Float32);
}

// Parameters of 13 and 4 elements, padded to 3 parts of 6: 17 + 1.
ZeroBuffer three_parts() {
  return {.parameters = {0, 1}, .begins = {0, 13, 17}, .ranks = 3, .elements = 18};
}

TEST(ZeroPartition, AParameterMayLieOnThreeRanksAndTheLastOnePads) {
  using Slices = std::vector<ZeroSlice>;
  EXPECT_EQ(slices_of_rank(three_parts(), 0), (Slices{{0, 0, 6}}));
  EXPECT_EQ(slices_of_rank(three_parts(), 1), (Slices{{0, 6, 6}}));
  EXPECT_EQ(slices_of_rank(three_parts(), 2), (Slices{{0, 12, 1}, {1, 0, 4}}));
}

TEST(ZeroPartition, ARankTouchesWholeParameters) {
  EXPECT_EQ(touched_elements(three_parts(), 0), 13);
  EXPECT_EQ(touched_elements(three_parts(), 2), 17);
  EXPECT_EQ(rank_that_touches_most(three_parts()), 2);
}

// One parameter of 3 elements over 4 ranks: 8 with the padding, parts of 2.
TEST(ZeroPartition, ARankMayHaveNothing) {
  const ZeroBuffer buffer{.parameters = {0}, .begins = {0, 3}, .ranks = 4, .elements = 8};
  EXPECT_EQ(slices_of_rank(buffer, 1), (std::vector<ZeroSlice>{{0, 2, 1}}));
  EXPECT_TRUE(slices_of_rank(buffer, 2).empty());
  EXPECT_EQ(touched_elements(buffer, 1), 3);
  EXPECT_EQ(touched_elements(buffer, 3), 0);
}

// A gradient of 13 in a buffer of 5: 6 of rank 0 are more than 5 and are sent, 6 of rank 1 too, and 1 of rank 2 is
// left. In a buffer of 8, those of ranks 0 and 1 are sent together: 6 is not more than 8, 12 is.
TEST(ZeroPartition, GradientLargerThanTheBufferIsReducedInParts) {
  using Reductions = std::vector<ZeroReduction>;
  Layout layout;
  layout.zero = three_parts();
  Plan plan = zero_plan(Framework::Zero2, 3);
  const GradientBucket bucket{.parameters = {0}, .elements = 13};
  plan.zero.reduce_bucket_size = 5;
  EXPECT_EQ(reductions_of(bucket, layout, plan), (Reductions{{6, 1}, {6, 1}, {1, 1}}));
  plan.zero.reduce_bucket_size = 8;
  EXPECT_EQ(reductions_of(bucket, layout, plan), (Reductions{{12, 2}, {1, 1}}));
  plan.zero.reduce_bucket_size = 13;
  EXPECT_EQ(reductions_of(bucket, layout, plan), (Reductions{{13, 3}}));
}

TEST(ZeroPartition, OnlyStage1WithoutOverlapReducesInParameterOrder) {
  const Model model = zero_model();
  const ModelIndex index = index_of(model);
  const auto first_of = [&](Framework stage, bool overlaps) {
    Plan plan = zero_plan(stage, 2);
    plan.zero.overlap_comm = overlaps;
    return model.parameters[make_layout(index, plan)->buckets.front().parameters.front()].name;
  };
  EXPECT_EQ(first_of(Framework::Zero1, false), model.parameters.front().name);
  EXPECT_EQ(first_of(Framework::Zero1, true), "head.bias");
  EXPECT_EQ(first_of(Framework::Zero2, false), "head.bias");
}

TEST(LowerZero, SchedulesAreValid) {
  const Model model = zero_model();
  const ModelIndex index = index_of(model);
  for (const Framework stage : {Framework::Zero1, Framework::Zero2}) {
    for (const bool overlaps : {false, true}) {
      for (const int accumulation : {1, 3}) {
        Plan plan = zero_plan(stage, 4);
        plan.accumulation = accumulation;
        plan.zero.overlap_comm = overlaps;
        plan.zero.reduce_bucket_size = 100;
        const Layout layout = make_layout(index, plan).value();
        ASSERT_GT(layout.buckets.size(), 1U);
        const Schedule schedule = lower(index, plan, layout);
        for (const Error& error : validate(schedule, index, layout)) ADD_FAILURE() << to_string(error);
        const auto reductions =
            std::count_if(schedule.instructions.begin(), schedule.instructions.end(),
                          [](const Instruction& step) { return step.kind == InstructionKind::ReduceBucket; });
        const std::size_t backwards = stage == Framework::Zero2 ? accumulation : 1;
        EXPECT_EQ(static_cast<std::size_t>(reductions), backwards * layout.buckets.size());
      }
    }
  }
}

std::vector<std::string> places_after(const std::function<void(Plan&)>& change) {
  const Model model = zero_model();
  Plan plan = zero_plan(Framework::Zero2, 2);
  change(plan);
  std::vector<std::string> places;
  for (const Error& error : check_zero_plan(plan, model)) places.push_back(error.where);
  return places;
}

TEST(ZeroPlan, UnpredictedFeaturesAreRefused) {
  using Places = std::vector<std::string>;
  EXPECT_EQ(places_after([](Plan&) {}), Places{});
  EXPECT_EQ(places_after([](Plan& plan) { plan.mesh = {2, 1}; }), Places{"mesh"});
  EXPECT_EQ(places_after([](Plan& plan) {
              plan.units.insert(plan.units.begin(), Unit{{"blocks.0"}, {}});
            }),
            Places{"units"});
  EXPECT_EQ(
      places_after([](Plan& plan) { plan.units[0].reshard_after_forward.kind = ReshardAfterForward::Kind::Never; }),
      Places{"units/0"});
  EXPECT_EQ(places_after([](Plan& plan) { plan.forward_prefetch = 1; }), Places{"prefetch"});
  EXPECT_EQ(places_after([](Plan& plan) { plan.cpu_offload = true; }), Places{});
  EXPECT_EQ(places_after([](Plan& plan) { plan.zero.pin_memory = false; }), Places{"zero/pin_memory"});
  EXPECT_EQ(places_after([](Plan& plan) { plan.zero.offload_param = plan.cpu_offload = true; }),
            Places{"zero/offload_param"});
  EXPECT_EQ(places_after([](Plan& plan) {
              plan.runtime.framework = Framework::Zero3;
              plan.zero.offload_param = true;
            }),
            Places{"zero/offload_param"});
  EXPECT_EQ(places_after([](Plan& plan) { plan.initialization = Initialization::Cpu; }), Places{});
  EXPECT_EQ(places_after([](Plan& plan) {
              plan.runtime.framework = Framework::Zero3;
              plan.initialization = Initialization::Cpu;
            }),
            Places{"initialization"});
  EXPECT_EQ(places_after([](Plan& plan) { plan.mixed_precision.param_dtype = Dtype::BFloat16; }),
            Places{"mixed_precision"});
  EXPECT_EQ(places_after([](Plan& plan) {
              plan.accumulation = 2;
              plan.sync_every_micro_batch = false;
            }),
            Places{"sync_every_micro_batch"});
}

TEST(ZeroPlan, PrecisionsAreDeepSpeedsOwn) {
  using Places = std::vector<std::string>;
  const auto mixed = [](Plan& plan, Dtype dtype) {
    plan.mixed_precision = {.param_dtype = dtype, .reduce_dtype = dtype};
  };
  EXPECT_EQ(places_after([&](Plan& plan) { mixed(plan, Dtype::Float16); }), Places{});
  EXPECT_EQ(places_after([&](Plan& plan) { mixed(plan, Dtype::Float64); }), Places{"mixed_precision"});
  EXPECT_EQ(places_after([](Plan& plan) { plan.parameter_dtype = Dtype::BFloat16; }), Places{});
  EXPECT_EQ(places_after([](Plan& plan) { plan.parameter_dtype = Dtype::Float16; }), Places{"parameter_dtype"});
  EXPECT_EQ(places_after([&](Plan& plan) {
              mixed(plan, Dtype::BFloat16);
              plan.parameter_dtype = Dtype::BFloat16;
            }),
            Places{"parameter_dtype"});
  EXPECT_EQ(places_after([](Plan& plan) { plan.zero.fp16.loss_scale = 8; }), Places{"zero/fp16"});
}

// DeepSpeed asserts that its own Adam updates 16 bits on the host.
TEST(ZeroPlan, SgdUpdatesBFloat16OnTheDeviceOnly) {
  const Model model = zero_model();
  Plan plan = zero_plan(Framework::Zero2, 2);
  plan.parameter_dtype = Dtype::BFloat16;
  plan.optimizer.kind = OptimizerKind::Sgd;
  EXPECT_EQ(check(plan, model), Errors{});
  plan.cpu_offload = true;
  const Errors errors = check(plan, model);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors.front().where, "optimizer/kind");
}

TEST(ZeroPlan, PartialOffloadAndHpzNeedStage3) {
  using Places = std::vector<std::string>;
  const auto with_ratio = [](Plan& plan) {
    plan.runtime.framework = Framework::Zero3;
    plan.initialization = Initialization::Meta;
    plan.cpu_offload = true;
    plan.zero.offload_ratio = 0.5;
  };
  EXPECT_EQ(places_after(with_ratio), Places{});
  EXPECT_EQ(places_after([&](Plan& plan) {
              with_ratio(plan);
              plan.cpu_offload = false;
            }),
            Places{"zero/offload_ratio"});
  // The other part is updated by AdamW, whatever the optimizer is.
  EXPECT_EQ(places_after([&](Plan& plan) {
              with_ratio(plan);
              plan.optimizer.kind = OptimizerKind::Adam;
            }),
            Places{"zero/offload_ratio"});
  const auto places_with_neighbors = [&](Framework stage, std::int64_t ranks, std::int64_t neighbors) {
    return places_after([=](Plan& plan) {
      plan.runtime.framework = stage;
      plan.initialization = Initialization::Meta;
      plan.mesh.dp_shard() = ranks;
      plan.zero.hpz_partition_size = neighbors;
    });
  };
  EXPECT_EQ(places_with_neighbors(Framework::Zero3, 8, 4), Places{});
  EXPECT_EQ(places_with_neighbors(Framework::Zero3, 4, 8), Places{});  // As many as there are.
  EXPECT_EQ(places_with_neighbors(Framework::Zero3, 8, 3), Places{"zero/hpz_partition_size"});
  EXPECT_EQ(places_with_neighbors(Framework::Zero3, 1, 2), Places{"zero/hpz_partition_size"});
  EXPECT_EQ(places_with_neighbors(Framework::Zero2, 8, 4), Places{"zero/hpz_partition_size"});
}

TEST(ZeroPlan, TheFirstSubGroupsMayStayOnTheDevice) {
  Plan plan = zero_plan(Framework::Zero3, 1);
  ZeroBuffer buffer{.parameters = {0, 1, 2}, .begins = {0, 10, 30, 60}, .ranks = 1, .elements = 60};
  buffer.group_begins = {0, 1, 2, 3};
  EXPECT_EQ(groups_on_device(buffer, plan), 3U);
  EXPECT_EQ(elements_on_host(buffer, plan), 0);
  plan.cpu_offload = true;
  EXPECT_EQ(groups_on_device(buffer, plan), 0U);
  EXPECT_EQ(elements_on_host(buffer, plan), 60);
  plan.zero.offload_ratio = 0.5;  // int(0.5 * 3) = 1
  EXPECT_EQ(groups_on_device(buffer, plan), 1U);
  EXPECT_EQ(elements_on_host(buffer, plan), 50);
}

TEST(ZeroPlan, PlanReadsBackAsWritten) {
  PlanFile file;
  file.plan = zero_plan(Framework::Zero1, 2);
  file.plan.model = file.plan.model_file = "gpt2";
  file.plan.zero.overlap_comm = !file.plan.zero.overlap_comm;
  file.plan.zero.reduce_bucket_size = 12345;
  const auto read = read_plan(*parse_json(to_text(file), "plan.json"));
  ASSERT_TRUE(read.has_value()) << to_string(read.error().front());
  EXPECT_EQ(read->plan.zero, file.plan.zero);
  EXPECT_EQ(read->plan.runtime.framework, Framework::Zero1);
  file.plan.mixed_precision = {.param_dtype = Dtype::Float16, .reduce_dtype = Dtype::Float16};
  file.plan.zero.fp16 = {.auto_cast = true,
                         .loss_scale = 0.5,
                         .initial_scale_power = 3,
                         .loss_scale_window = 7,
                         .hysteresis = 5,
                         .consecutive_hysteresis = true,
                         .min_loss_scale = 9};
  EXPECT_EQ(read_plan(*parse_json(to_text(file), "plan.json"))->plan.zero, file.plan.zero);
}

}  // namespace
}  // namespace fsdp
