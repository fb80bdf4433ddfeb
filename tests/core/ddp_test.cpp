// DDP's buckets and its order of events. The figures of GPT-2 are those of the real DistributedDataParallel (torch
// 2.11 on the stub GPU, bytes of the tensors that it allocates as buckets); the plans that it trained as a whole are in
// tests/rehearsal/plan_cases.py.

#include <gtest/gtest.h>

#include <algorithm>

#include "core/frameworks/check_plan.h"
#include "core/frameworks/ddp/ddp_buckets.h"
#include "core/frameworks/layout.h"
#include "core/frameworks/lower.h"
#include "core/plan/plan_file.h"
#include "core/plan/ready_gradients.h"
#include "core/plan/schedule.h"
#include "tests/support/collective_models.h"
#include "tests/support/lowered.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

Plan ddp_plan(int ranks) {
  Plan plan;
  plan.mesh = {ranks, 1};
  plan.units = {{{""}, {}}};
  plan.runtime.framework = Framework::Ddp;
  return plan;
}

/// stem, two blocks of two linears each, head, all with biases, and a loss in the root.
Model small_model() {
  return collective_model("mlp", {{"in", "6"}, {"out", "5"}, {"blocks", "8,12,8;8,12,8"}}, Dtype::Float32);
}

std::vector<std::int64_t> sizes_of_buckets(const std::vector<GradientBucket>& buckets) {
  std::vector<std::int64_t> bytes;
  for (const GradientBucket& bucket : buckets) bytes.push_back(bucket.bytes().count());
  return bytes;
}

std::int64_t count_of(const Schedule& schedule, InstructionKind kind, int micro_batch) {
  return std::count_if(schedule.instructions.begin(), schedule.instructions.end(),
                       [&](const Instruction& step) { return step.kind == kind && step.micro_batch == micro_batch; });
}

TEST(Ddp, BucketsOfGpt2MatchRealDdp) {
  const Model model = model_of("gpt2.json");
  const Lowered lowered = lowered_of(model, ddp_plan(2));
  std::vector<std::int64_t> expected = {9446400};
  expected.insert(expected.end(), 11, 28351488);
  expected.push_back(176446464);
  EXPECT_EQ(sizes_of_buckets(lowered.layout.buckets), expected);
  EXPECT_EQ(sizes_of_buckets(lowered.layout.first_buckets), std::vector<std::int64_t>{497759232});
}

// PyTorch 2.11 makes the first bucket of the parameters as they are registered (_ddp_init_helper).
TEST(Ddp, TheFirstReductionHasOneBucketInTheOrderOfTheModel) {
  const Model model = model_of("gpt2.json");
  const Plan plan = ddp_plan(2);
  const Lowered lowered = lowered_of(model, plan);
  const std::vector<GradientBucket> first = lowered.layout.first_buckets;
  ASSERT_EQ(first.size(), 1U);
  EXPECT_TRUE(std::is_sorted(first.front().parameters.begin(), first.front().parameters.end()));
  EXPECT_FALSE(std::is_sorted(lowered.layout.buckets.front().parameters.begin(),
                              lowered.layout.buckets.front().parameters.end()));
  EXPECT_EQ(first.front().ready, lowered.layout.buckets.back().ready);
}

TEST(Ddp, UsersCapAppliesToTheFirstBucketToo) {
  Plan plan = ddp_plan(2);
  plan.ddp.bucket_cap_mb = 40;
  const Lowered lowered = lowered_of(model_of("gpt2.json"), plan);
  ASSERT_FALSE(lowered.layout.buckets.empty());
  EXPECT_GE(lowered.layout.buckets.front().bytes(), Bytes(40 << 20));
}

TEST(Ddp, GradientsBecomeReadyInReverseOpOrderBiasFirst) {
  const Model model = small_model();
  const ModelIndex index = index_of(model);
  std::vector<std::string> names;
  for (const ReadyGradient& ready : gradients_as_they_are_ready(index)) {
    names.push_back(model.parameters[ready.parameter].name);
  }
  ASSERT_EQ(names.size(), model.parameters.size());
  EXPECT_EQ(names.front(), "head.bias");
  EXPECT_EQ(names[1], "head.weight");
  EXPECT_EQ(names.back(), "stem.weight");
}

TEST(Ddp, FindUnusedParametersUsesReverseModelOrder) {
  const Model model = model_of("qwen3_tts.json");
  Plan plan = ddp_plan(4);
  const ModelIndex index = index_of(model);
  const auto refused = make_layout(index, plan);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().front().where, "ddp/find_unused_parameters");
  EXPECT_TRUE(has_unused_parameters(model));

  plan.ddp.find_unused_parameters = true;
  const Lowered lowered = lowered_of(model, plan);
  const std::vector<GradientBucket>& buckets = lowered.layout.buckets;
  EXPECT_GT(buckets.front().parameters.front(), buckets.back().parameters.front());
  EXPECT_EQ(buckets.back().parameters.front(), 0);
  EXPECT_TRUE(lowered.layout.first_buckets.empty());
  EXPECT_EQ(count_of(lowered.schedule, InstructionKind::ReduceUsedMap, 0), 1);
  EXPECT_EQ(used_map_bytes(model),
            Bytes(4 * std::count_if(model.parameters.begin(), model.parameters.end(),
                                    [](const Parameter& parameter) { return parameter.trainable; })));
}

TEST(Ddp, WithoutSyncOnlyTheLastMicroBatchReduces) {
  Plan plan = ddp_plan(4);
  plan.accumulation = 3;
  plan.sync_every_micro_batch = false;
  const Lowered lowered = lowered_of(small_model(), plan);
  const auto num_buckets = static_cast<std::int64_t>(lowered.layout.buckets.size());
  for (int m = 0; m < 3; ++m) {
    EXPECT_EQ(count_of(lowered.schedule, InstructionKind::PrepareReduce, m), m == 2 ? 1 : 0);
    EXPECT_EQ(count_of(lowered.schedule, InstructionKind::ReduceBucket, m), m == 2 ? num_buckets : 0);
    EXPECT_EQ(count_of(lowered.schedule, InstructionKind::FinishReduce, m), 1);
  }
}

TEST(Ddp, BuffersAreBroadcastBeforeForwardsThatFollowASync) {
  const Model model = model_of("qwen3_0_6b.json");
  Plan plan = ddp_plan(2);
  plan.accumulation = 3;
  plan.sync_every_micro_batch = false;
  const Lowered once = lowered_of(model, plan);
  EXPECT_EQ(count_of(once.schedule, InstructionKind::SyncBuffers, 0), 1);
  EXPECT_EQ(count_of(once.schedule, InstructionKind::SyncBuffers, 1), 0);
  plan.sync_every_micro_batch = true;
  EXPECT_EQ(count_of(lowered_of(model, plan).schedule, InstructionKind::SyncBuffers, 1), 1);
  plan.ddp.broadcast_buffers = false;
  EXPECT_EQ(count_of(lowered_of(model, plan).schedule, InstructionKind::SyncBuffers, 0), 0);
}

// The scales of 4-bit weights are plain attributes: DistributedDataParallel does not know them.
TEST(Ddp, TensorsBesideBuffersAreNotBroadcast) {
  Model model = small_model();
  model.buffers.push_back({.name = "absmax", .shape = {64}, .registered = false});
  EXPECT_EQ(count_of(lowered_of(model, ddp_plan(2)).schedule, InstructionKind::SyncBuffers, 0), 0);
  model.buffers.back().registered = true;
  EXPECT_EQ(count_of(lowered_of(model, ddp_plan(2)).schedule, InstructionKind::SyncBuffers, 0), 1);
}

StepSchedules steps_of(const Lowered& lowered, const Plan& plan) {
  StepSchedules steps = lower_steps(lowered.index, plan, lowered.layout);
  for (const Schedule* schedule : {&steps.first, &steps.second, &steps.steady}) {
    if (schedule->instructions.empty()) continue;
    for (const Error& error : validate(*schedule, lowered.index, lowered.layout)) ADD_FAILURE() << to_string(error);
  }
  return steps;
}

// One bucket has all gradients, ready with the last of them. The second forward of the run frees it, and from then on
// there are the buckets of all later steps: here one, too, with gradients in the order in which they are ready.
TEST(Ddp, TheFirstStepReducesInOneBucketThatTheNextForwardFrees) {
  const Model model = small_model();
  const Lowered lowered = lowered_of(model, ddp_plan(2));
  const StepSchedules steps = steps_of(lowered, ddp_plan(2));
  const std::string rest = R"(Forward stem:stem [0, 1)
Forward blocks.0:block [0, 4)
Forward blocks.1:block [0, 4)
Forward head:head [0, 1)
Forward :loss [0, 3)
LeaveRoot
PrepareReduce
Backward :loss [0, 3)
Backward head:head [0, 1)
Backward blocks.1:block [0, 4)
Backward blocks.0:block [0, 4)
Backward stem:stem [0, 1)
ReduceBucket BUCKET
FinishReduce
OptimizerStep
ZeroGrad
)";
  const auto text_of = [&](const Schedule& schedule) { return to_text(schedule, lowered.index, lowered.layout); };
  const auto with_bucket = [&](const char* bucket) {
    std::string text = rest;
    return text.replace(text.find("BUCKET"), 6, bucket);
  };
  EXPECT_EQ(text_of(steps.first), "LoadInputs\n" + with_bucket("1"));
  EXPECT_EQ(text_of(steps.second), "LoadInputs\nFree \"\" first buckets\n" + with_bucket("0"));
  EXPECT_EQ(text_of(steps.steady), "LoadInputs\n" + with_bucket("0"));
  EXPECT_EQ(steps.steady, lowered.schedule);
}

TEST(Ddp, TheSecondMicroBatchHasTheLaterBucketsIfTheFirstOneReduces) {
  Plan plan = ddp_plan(2);
  plan.accumulation = 2;
  const Model model = small_model();
  const Lowered lowered = lowered_of(model, plan);
  const auto is_first = [&](const Instruction& step) { return step.bucket == 1; };
  for (const bool syncs : {true, false}) {
    plan.sync_every_micro_batch = syncs;
    const StepSchedules steps = steps_of(lowered, plan);
    const std::vector<Instruction>& first = steps.first.instructions;
    const auto reduction = std::find_if(first.begin(), first.end(), is_first);
    ASSERT_NE(reduction, first.end());
    EXPECT_EQ(reduction->micro_batch, syncs ? 0 : 1);
    EXPECT_EQ(count_of(steps.first, InstructionKind::Free, 1), syncs ? 1 : 0);
    EXPECT_EQ(steps.second.instructions.empty(), syncs);
  }
}

TEST(Ddp, AReductionInBucketsThatAreNotThereIsFound) {
  const Plan plan = ddp_plan(2);
  const Model model = small_model();
  const Lowered lowered = lowered_of(model, plan);
  StepSchedules steps = lower_steps(lowered.index, plan, lowered.layout);
  const auto set_bucket = [&](Schedule& schedule, int bucket) {
    for (Instruction& step : schedule.instructions) {
      if (step.kind == InstructionKind::ReduceBucket) step.bucket = bucket;
    }
    const Errors errors = validate(schedule, lowered.index, lowered.layout);
    return errors.empty() ? std::string() : errors.front().what;
  };
  EXPECT_EQ(set_bucket(steps.second, 1), "Bucket 1 is reduced after its Free.");
  Schedule none_free = steps.second;
  std::erase_if(none_free.instructions, [](const Instruction& step) { return step.kind == InstructionKind::Free; });
  EXPECT_EQ(set_bucket(none_free, 0), "");
}

TEST(Ddp, OneGpuHasNoWrapper) {
  const Lowered lowered = lowered_of(model_of("gpt2.json"), ddp_plan(1));
  EXPECT_TRUE(lowered.layout.buckets.empty());
  for (const Instruction& step : lowered.schedule.instructions) {
    EXPECT_NE(step.kind, InstructionKind::ReduceBucket);
    EXPECT_NE(step.kind, InstructionKind::SyncBuffers);
  }
}

TEST(Ddp, BrokenScheduleIsFound) {
  Plan plan = ddp_plan(2);
  plan.ddp.bucket_cap_mb = 1;
  const Model model = model_of("gpt2.json");
  const Lowered lowered = lowered_of(model, plan);
  const auto errors_after = [&](auto change) {
    Schedule schedule = lowered.schedule;
    change(schedule.instructions);
    std::vector<std::string> texts;
    for (const Error& error : validate(schedule, lowered.index, lowered.layout)) texts.push_back(error.what);
    return texts;
  };
  const auto is_reduction = [](const Instruction& step) { return step.kind == InstructionKind::ReduceBucket; };
  const auto missing = errors_after(
      [&](std::vector<Instruction>& steps) { steps.erase(std::find_if(steps.begin(), steps.end(), is_reduction)); });
  ASSERT_FALSE(missing.empty());
  EXPECT_EQ(missing.front(), "Bucket 1 is reduced where 0 comes next.");
  const auto early = errors_after([&](std::vector<Instruction>& steps) {
    const auto first = std::find_if(steps.begin(), steps.end(), is_reduction);
    const Instruction reduction = *first;
    steps.erase(first);
    const auto backward = std::find_if(steps.begin(), steps.end(),
                                       [](const Instruction& step) { return step.kind == InstructionKind::Backward; });
    steps.insert(backward, reduction);
  });
  EXPECT_EQ(early, std::vector<std::string>{"Bucket 0 is reduced before its gradients are there."});
  const auto short_of = errors_after([&](std::vector<Instruction>& steps) {
    const auto last = std::find_if(steps.rbegin(), steps.rend(), is_reduction);
    steps.erase(std::next(last).base());
  });
  ASSERT_EQ(short_of.size(), 1U);
  EXPECT_NE(short_of.front().find("buckets are reduced."), std::string::npos);
}

TEST(Ddp, UnsupportedPlansReportEveryError) {
  Plan plan = ddp_plan(2);
  plan.mesh = {1, 2};
  plan.units = {{{"transformer.h.0"}, {}}, {{""}, {}}};
  plan.cpu_offload = true;
  plan.mixed_precision.param_dtype = Dtype::BFloat16;
  const Model model = model_of("gpt2.json");
  std::vector<std::string> places;
  for (const Error& error : check(plan, model)) places.push_back(error.where);
  for (const char* place : {"mesh", "units", "cpu_offload", "mixed_precision"}) {
    EXPECT_NE(std::find(places.begin(), places.end(), place), places.end()) << place;
  }
}

TEST(Ddp, PlanReadsBackAsWritten) {
  PlanFile file;
  file.plan = ddp_plan(2);
  file.plan.model = file.plan.model_file = "gpt2";
  file.plan.ddp = {.bucket_cap_mb = 50, .gradient_as_bucket_view = true, .broadcast_buffers = false};
  file.plan.ddp.find_unused_parameters = true;
  const std::string text = to_text(file);
  EXPECT_NE(text.find("\"pytorch-ddp\""), std::string::npos);
  const auto read = read_plan(*parse_json(text, "plan.json"));
  ASSERT_TRUE(read.has_value()) << to_string(read.error().front());
  EXPECT_EQ(read->plan.ddp, file.plan.ddp);
  EXPECT_EQ(read->plan.runtime.framework, Framework::Ddp);
}

}  // namespace
}  // namespace fsdp
