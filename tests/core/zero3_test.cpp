// What ZeRO-3's coordinator decides, on sizes that can be added up in the head. What the real DeepSpeed does with whole
// models is in tests/rehearsal/plan_cases_zero3.py.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "core/frameworks/layout.h"
#include "core/frameworks/lower.h"
#include "core/frameworks/zero/zero_coordinator.h"
#include "core/frameworks/zero/zero_partition.h"
#include "core/plan/plan_file.h"
#include "core/plan/schedule.h"
#include "tests/support/collective_models.h"

namespace fsdp {
namespace {

Plan zero3_plan(int ranks) {
  Plan plan;
  plan.mesh = {1, ranks};
  plan.units = {{{""}, {}}};
  plan.runtime.framework = Framework::Zero3;
  plan.parameter_dtype = Dtype::Float32;
  plan.zero = default_zero_options(Framework::Zero3);
  return plan;
}

// Three modules with one parameter each, of 10, 20 and 30 elements.
Layout three_modules(int ranks) {
  Layout layout;
  layout.zero.ranks = ranks;
  layout.zero.parameters = {0, 1, 2};
  layout.units.emplace_back();
  for (int p = 0; p < 3; ++p) {
    const ShardedParameter parameter{.parameter = p, .elements = 10 * (p + 1)};
    layout.units.front().parameters.push_back(parameter);
    layout.hooked.emplace_back().parameters.push_back(parameter);
  }
  return layout;
}

// One word for each instruction: "fetch 0,1". Where a parameter is asked for is told on demand.
std::vector<std::string> words_in(const Schedule& schedule, bool tells_asked) {
  std::vector<std::string> words;
  for (const Instruction& step : schedule.instructions) {
    if (step.kind == InstructionKind::LimitGathers && !tells_asked) continue;
    std::string text;
    for (const int p : schedule.groups[step.group].parameters) text += (text.empty() ? "" : ",") + std::to_string(p);
    const char* word = step.kind == InstructionKind::FetchParameters     ? "fetch "
                       : step.kind == InstructionKind::WaitForParameters ? "wait "
                       : step.kind == InstructionKind::LimitGathers      ? "ask "
                       : step.kind == InstructionKind::DropFetched       ? "drop "
                       : step.kind == InstructionKind::ReleaseParameters ? "release "
                                                                         : "whole ";
    words.push_back(word + text);
  }
  return words;
}

// A micro-batch of modules that run one after the other, and back.
void run(ZeroCoordinator& coordinator) {
  coordinator.begin_forward();
  for (int module = 0; module < 3; ++module) {
    coordinator.fetch(module, true);
    coordinator.release(module, true);
  }
  for (int module = 2; module >= 0; --module) {
    coordinator.fetch(module, false);
    coordinator.release(module, false);
  }
  coordinator.release_left();
}

std::vector<std::string> step(ZeroCoordinator& coordinator, bool tells_asked = false) {
  ScheduleWriter out;
  coordinator.write_to(out);
  run(coordinator);
  coordinator.release_all();
  coordinator.gather_persistent();
  return words_in(out.schedule, tells_asked);
}

using Steps = std::vector<std::string>;

const Steps kOneByOne = {"fetch 0", "wait 0", "release 0", "fetch 1", "wait 1", "release 1",
                         "fetch 2", "wait 2", "release 2", "fetch 2", "wait 2", "release 2",
                         "fetch 1", "wait 1", "release 1", "fetch 0", "wait 0", "release 0"};

TEST(ZeroCoordinator, WithoutThresholdsEachModuleGathersWhatItNeeds) {
  Plan plan = zero3_plan(2);
  plan.zero.prefetch_bucket_size = plan.zero.max_reuse_distance = plan.zero.param_persistence_threshold = 0;
  ZeroCoordinator coordinator(three_modules(2), plan, 3);
  EXPECT_EQ(step(coordinator), kOneByOne);
  EXPECT_EQ(step(coordinator), kOneByOne);
}

// 20 elements ahead: after module 0 the second parameter fills them; after module 1 the third one, which may exceed
// them. After module 2 its own parameter is passed over, because it is there, and the second one is gathered for the
// backward. What was passed over for the very next module is let go all the same: DeepSpeed compares with "greater".
TEST(ZeroCoordinator, GathersAheadFromTheSecondStepOn) {
  Plan plan = zero3_plan(2);
  plan.zero.prefetch_bucket_size = 20;
  plan.zero.max_reuse_distance = plan.zero.param_persistence_threshold = 0;
  ZeroCoordinator coordinator(three_modules(2), plan, 3);
  EXPECT_EQ(step(coordinator), kOneByOne);
  EXPECT_EQ(step(coordinator), (Steps{"fetch 0", "wait 0", "fetch 1", "release 0", "wait 1", "fetch 2", "release 1",
                                      "wait 2", "fetch 1", "release 2", "fetch 2", "wait 2", "fetch 0", "release 2",
                                      "wait 1", "release 1", "wait 0", "release 0"}));
}

// 30 elements after module 1 in the forward: module 2 takes them all, so that module 1 is let go, and module 2 is kept
// for its backward.
TEST(ZeroCoordinator, KeepsModulesThatAreReusedSoon) {
  Plan plan = zero3_plan(2);
  plan.zero.prefetch_bucket_size = plan.zero.param_persistence_threshold = 0;
  plan.zero.max_reuse_distance = 30;
  ZeroCoordinator coordinator(three_modules(2), plan, 3);
  EXPECT_EQ(step(coordinator), kOneByOne);
  EXPECT_EQ(step(coordinator),
            (Steps{"fetch 0", "wait 0", "release 0", "fetch 1", "wait 1", "release 1", "fetch 2", "wait 2", "release 2",
                   "fetch 1", "wait 1", "release 1", "fetch 0", "wait 0", "release 0"}));
}

// The first step lets go of everything, and the optimizer's turn does; in between they stay from the second step on.
TEST(ZeroCoordinator, SmallParametersStayWholeBetweenSteps) {
  Plan plan = zero3_plan(2);
  plan.zero.prefetch_bucket_size = plan.zero.max_reuse_distance = 0;
  plan.zero.param_persistence_threshold = 20;
  ZeroCoordinator coordinator(three_modules(2), plan, 3);
  Steps first = kOneByOne;
  first.emplace_back("whole 0,1");
  EXPECT_EQ(step(coordinator), first);
  EXPECT_EQ(step(coordinator),
            (Steps{"fetch 2", "wait 2", "release 2", "fetch 2", "wait 2", "release 2", "release 0,1", "whole 0,1"}));
}

// The output of a gather of two goes when the second one is asked for.
TEST(ZeroCoordinator, GatherOutputLivesUntilItsLastParameterIsRequested) {
  Plan plan = zero3_plan(2);
  plan.zero.prefetch_bucket_size = 50;
  plan.zero.max_reuse_distance = 1000;
  plan.zero.param_persistence_threshold = 0;
  ZeroCoordinator coordinator(three_modules(2), plan, 3);
  EXPECT_EQ(step(coordinator), kOneByOne);
  EXPECT_EQ(step(coordinator),
            (Steps{"fetch 0", "wait 0", "fetch 1,2", "wait 1,2", "drop 1,2", "release 2", "release 1", "release 0"}));
}

// Each parameter counts when its module asks for it, and not when its gather is waited for; what is let go unasked does
// not.
TEST(ZeroCoordinator, EachRequestedParameterMayBlockTheCpu) {
  Plan plan = zero3_plan(2);
  plan.zero.prefetch_bucket_size = 50;
  plan.zero.max_reuse_distance = 1000;
  plan.zero.param_persistence_threshold = 0;
  ZeroCoordinator coordinator(three_modules(2), plan, 3);
  EXPECT_EQ(step(coordinator).size(), kOneByOne.size());
  EXPECT_EQ(step(coordinator, true), (Steps{"fetch 0", "ask 0", "wait 0", "fetch 1,2", "ask 1,2", "wait 1,2", "ask 1,2",
                                            "drop 1,2", "release 2", "release 1", "release 0"}));
}

TEST(ZeroCoordinator, OneRankMovesNothing) {
  ZeroCoordinator coordinator(three_modules(1), zero3_plan(1), 3);
  EXPECT_EQ(step(coordinator), Steps{});
}

// 13 and 4 elements over 3 ranks: parts of 5 and 2, sub-groups of 5 and of what is left.
TEST(Zero3, EachParameterIsSplitByItself) {
  const Model model = collective_model("mlp", {{"in", "6"}, {"out", "5"}, {"blocks", "8,12,8;8,12,8"}}, Dtype::Float32);
  const ModelIndex index = index_of(model);
  Plan plan = zero3_plan(3);
  plan.zero.sub_group_size = 40;
  const Layout layout = make_layout(index, plan).value();
  std::int64_t parts = 0;
  for (const Parameter& parameter : model.parameters) parts += (num_elements(parameter.shape) + 2) / 3;
  EXPECT_EQ(layout.zero.part_elements(), parts);
  EXPECT_EQ(layout.zero.group_begins.front(), 0U);
  EXPECT_EQ(layout.zero.group_begins.back(), layout.zero.parameters.size());
  ASSERT_GT(layout.zero.group_begins.size(), 2U);
  for (std::size_t g = 0; g + 2 < layout.zero.group_begins.size(); ++g) {
    const auto elements_until = [&](std::size_t end) {
      return layout.zero.begins[end] - layout.zero.begins[layout.zero.group_begins[g]];
    };
    // Full with its last parameter, and not before.
    EXPECT_GE(elements_until(layout.zero.group_begins[g + 1]), 40);
    EXPECT_LT(elements_until(layout.zero.group_begins[g + 1] - 1), 40);
  }
}

Plan drawn_plan() {
  Plan plan = zero3_plan(*rc::gen::element(1, 2, 3));
  const auto elements = [] { return *rc::gen::element<std::int64_t>(0, 10, 100, 1000, 1'000'000); };
  plan.zero.prefetch_bucket_size = elements();
  plan.zero.param_persistence_threshold = elements();
  plan.zero.max_live_parameters = elements();
  plan.zero.max_reuse_distance = elements();
  plan.zero.reduce_bucket_size = 1 + elements();
  plan.accumulation = *rc::gen::inRange(1, 4);
  return plan;
}

RC_GTEST_PROP(Zero3, SchedulesAreValid, ()) {
  const Model model = collective_model("mlp", {{"in", "6"}, {"out", "5"}, {"blocks", "8,12,8;8,12,8"}}, Dtype::Float32);
  const ModelIndex index = index_of(model);
  const Plan plan = drawn_plan();
  const Layout layout = make_layout(index, plan).value();
  const auto [first, steady, second] = lower_steps(index, plan, layout);
  for (const Schedule& schedule : {first, steady}) {
    for (const Error& error : validate(schedule, index, layout)) RC_FAIL(to_string(error));
  }
}

// [micro-batches] What a step does in each of them, in words.
std::vector<Steps> words_by_micro_batch(const Schedule& schedule) {
  std::vector<Steps> words;
  for (const Instruction& instruction : schedule.instructions) {
    if (instruction.phase == StepPhase::Optimizer) break;
    if (instruction.kind == InstructionKind::LoadInputs) words.emplace_back();
    Schedule alone;
    alone.instructions = {instruction};
    alone.groups = schedule.groups;
    const std::string of_call = std::to_string(instruction.call) + " " + std::to_string(instruction.op_begin) + " " +
                                std::to_string(instruction.op_end) + " " + std::to_string(instruction.bucket);
    words.back().push_back(instruction.group >= 0 ? words_in(alone, true).front()
                                                  : std::string(name_of(instruction.kind)) + " " + of_call);
  }
  return words;
}

// Micro-batches are written down once and repeated where they begin alike. With one in a step nothing is repeated.
RC_GTEST_PROP(Zero3, LaterMicroBatchesRepeatThoseOfAShorterStep, ()) {
  const Model model = collective_model("mlp", {{"in", "6"}, {"out", "5"}, {"blocks", "8,12,8;8,12,8"}}, Dtype::Float32);
  const ModelIndex index = index_of(model);
  Plan plan = drawn_plan();
  const Layout layout = make_layout(index, plan).value();
  plan.accumulation = 1;
  const Steps expected = words_by_micro_batch(lower(index, plan, layout)).back();
  plan.accumulation = *rc::gen::inRange(3, 7);
  const StepSchedules steps = lower_steps(index, plan, layout);
  const std::vector<Steps> steady = words_by_micro_batch(steps.steady);
  const std::vector<Steps> first = words_by_micro_batch(steps.first);
  RC_ASSERT(static_cast<std::int64_t>(steady.size()) == plan.accumulation);
  for (std::size_t m = 1; m < steady.size(); ++m) RC_ASSERT(steady[m] == expected);
  for (std::size_t m = 2; m < first.size(); ++m) RC_ASSERT(first[m] == expected);
}

// Whoever forgets a gather or a release is told.
TEST(Zero3, AScheduleWithoutAGatherIsRefused) {
  const Model model = collective_model("mlp", {{"in", "6"}, {"out", "5"}, {"blocks", "8,12,8"}}, Dtype::Float32);
  const ModelIndex index = index_of(model);
  Plan plan = zero3_plan(2);
  plan.zero.param_persistence_threshold = 0;
  const Layout layout = make_layout(index, plan).value();
  const Schedule whole = lower(index, plan, layout);
  EXPECT_TRUE(validate(whole, index, layout).empty());
  for (const InstructionKind kind :
       {InstructionKind::FetchParameters, InstructionKind::WaitForParameters, InstructionKind::ReleaseParameters}) {
    Schedule broken = whole;
    const auto first = std::find_if(broken.instructions.begin(), broken.instructions.end(),
                                    [&](const Instruction& step) { return step.kind == kind; });
    ASSERT_NE(first, broken.instructions.end());
    broken.instructions.erase(first);
    EXPECT_FALSE(validate(broken, index, layout).empty()) << name_of(kind);
  }
}

TEST(Zero3, MissingKeysOfAPlanTakeDeepSpeedsDefaults) {
  PlanFile file;
  file.plan = zero3_plan(2);
  file.plan.model = file.plan.model_file = "gpt2";
  EXPECT_TRUE(file.plan.zero.overlap_comm);
  file.plan.zero.max_reuse_distance = 12345;
  file.plan.zero.quantized_weights = file.plan.zero.quantized_gradients = true;
  const auto read = read_plan(*parse_json(to_text(file), "plan.json"));
  ASSERT_TRUE(read.has_value()) << to_string(read.error().front());
  EXPECT_EQ(read->plan.zero, file.plan.zero);
  std::string text = to_text(file);
  const std::size_t begin = text.find("\"zero\"");
  const std::size_t end = text.find('}', begin);
  text.replace(begin, end - begin + 1, "\"zero\": {}");
  const auto bare = read_plan(*parse_json(text, "plan.json"));
  ASSERT_TRUE(bare.has_value()) << to_string(bare.error().front());
  EXPECT_EQ(bare->plan.zero, default_zero_options(Framework::Zero3));
}

}  // namespace
}  // namespace fsdp
