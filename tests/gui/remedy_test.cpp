// What a suggestion promises is what its click gives.

#include <gtest/gtest.h>

#include <QAbstractButton>
#include <algorithm>
#include <cmath>

#include "core/report/device_verdict.h"
#include "gui/state/remedy.h"
#include "gui/window/main_window.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;
using test::wait_until_idle;

// Seconds. A report has the step of the rank that needs most, a price that of rank 0: a few elements of a shard more or
// less.
constexpr double kRanksDiffer = 1e-6;

void expect_prices_are_kept(const Inputs& inputs) {
  AppState state(test::library());
  state.open(inputs);
  ASSERT_TRUE(wait_until_idle(state));
  ASSERT_TRUE(state.errors().empty()) << to_string(state.errors().front());
  const SnapshotPtr before = state.snapshot();
  ASSERT_FALSE(before->explanation.remedies.empty());
  for (const planner::Remedy& remedy : before->explanation.remedies) {
    state.apply_remedy(remedy);
    ASSERT_TRUE(wait_until_idle(state));
    ASSERT_TRUE(state.errors().empty()) << remedy.what << ": " << to_string(state.errors().front());
    const StepReport& after = state.snapshot()->report;
    EXPECT_EQ(after.memory.peaks.device - before->report.memory.peaks.device, remedy.delta_bytes) << remedy.what;
    EXPECT_NEAR((after.time.step - before->report.time.step).count(), remedy.delta_time.count(), kRanksDiffer)
        << remedy.what;
    EXPECT_EQ(has_room(after), remedy.has_room()) << remedy.what;
    EXPECT_EQ(is_tight(after), remedy.is_tight) << remedy.what;
    state.undo_stack().undo();
    EXPECT_TRUE(state.inputs() == inputs) << "one step of undo";
    ASSERT_TRUE(wait_until_idle(state));
  }
}

TEST(Remedies, ForASearchedPlanKeepTheirPrices) {
  expect_prices_are_kept(test::quick_inputs("qwen3_tts"));
}

TEST(Remedies, ForAPlanThatDoesNotFitKeepTheirPrices) {
  expect_prices_are_kept(test::with(test::quick_inputs("llama3_1_8b"), PlanChoice::Gpus, "2"));
}

Inputs on_two_l4() {
  Inputs inputs = test::with(test::quick_inputs("llama3_1_8b"), PlanChoice::GpuName, "L4");
  return test::with(std::move(inputs), PlanChoice::Gpus, "2");
}

TEST(Remedies, ForANamedCardAreCardsAtTheirOwnSpeed) {
  expect_prices_are_kept(on_two_l4());
  AppState state(test::library());
  state.open(on_two_l4());
  ASSERT_TRUE(wait_until_idle(state));
  const SnapshotPtr before = state.snapshot();
  for (const planner::Remedy& remedy : before->explanation.remedies) {
    if (!remedy.change.gpu_name) continue;
    state.apply_remedy(remedy);
    ASSERT_TRUE(wait_until_idle(state));
    const Gpu& shown = state.snapshot()->cluster.gpu;
    EXPECT_EQ(shown.name, remedy.what);
    EXPECT_NE(shown.memory.provenance, Provenance::Given) << "nobody made it larger";
    return;
  }
  FAIL() << "no card holds it";
}

TEST(Remedies, ForAPlanFileNameTheNumberOfGpus) {
  AppState state(test::library());
  state.open(on_two_l4());
  ASSERT_TRUE(wait_until_idle(state));
  // What opening its file gives: the machines are in the plan and not among the choices.
  Inputs of_file;
  of_file.model = "llama3_1_8b";
  of_file.kept = PlanFile{state.snapshot()->report.plan, state.snapshot()->cluster};
  expect_prices_are_kept(of_file);
}

TEST(Remedies, ForAKeptPlanKeepTheirPricesOnAnyLink) {
  AppState state(test::library());
  Inputs inputs = test::with(test::quick_inputs("llama3_1_8b"), PlanChoice::Gpus, "2");
  inputs = test::with(std::move(inputs), PlanChoice::IntraBandwidth, "8GB/s");
  state.open(inputs);
  ASSERT_TRUE(wait_until_idle(state));
  expect_prices_are_kept(with_kept(inputs, plan_file_of(*state.snapshot())));
}

TEST(Remedies, ForNamedGpusAndASearchedBatchKeepTheirPrices) {
  Inputs inputs = test::quick_inputs("gpt2");
  inputs = test::with(inputs, PlanChoice::GpuName, "A100 40GB PCIe");
  expect_prices_are_kept(test::with(inputs, PlanChoice::GlobalBatch, "64"));
}

// A cluster brings its own number of GPUs, and here it is not the one that was priced.
TEST(Remedies, ForPartOfAClusterKeepTheOtherMachineChoices) {
  Inputs inputs = test::quick_inputs("llama3_1_8b");
  inputs.choices = with_change(only(inputs.choices, planner::is_about_plan),
                               {.gpus = 2,
                                .cluster_file = "AWS g6.12xlarge",
                                .intra_bandwidth = BytesPerSecond(8e9),
                                .checkpoint = planner::CheckpointChoice{CheckpointMode::None, {}}});
  expect_prices_are_kept(inputs);
  AppState state(test::library());
  state.open(inputs);
  ASSERT_TRUE(wait_until_idle(state));
  const std::vector<planner::Remedy> remedies = state.snapshot()->explanation.remedies;
  const auto other = std::find_if(remedies.begin(), remedies.end(),
                                  [](const planner::Remedy& each) { return each.change.cluster_file.has_value(); });
  ASSERT_NE(other, remedies.end());
  ASSERT_EQ(other->change.gpus, 2) << "it says so, because the other cluster has more";
  state.apply_remedy(*other);
  EXPECT_EQ(state.inputs().choices.cluster_file, other->change.cluster_file);
  EXPECT_EQ(state.inputs().choices.gpus, 2);
  EXPECT_EQ(state.inputs().choices.intra_bandwidth, BytesPerSecond(8e9));
}

TEST(Remedies, ClickOnASearchedRemedySearchesAgain) {
  MainWindow window(test::library());
  window.show();
  window.state().open(test::quick_inputs("gpt2"));
  ASSERT_TRUE(wait_until_idle(window.state()));
  ASSERT_TRUE(window.state().snapshot()->explanation.remedies.front().is_searched);
  QTest::mouseClick(window.findChild<QAbstractButton*>("remedy_1"), Qt::LeftButton);
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_FALSE(window.state().inputs().kept.has_value());
}

TEST(Remedies, PricedRemedyKeepsThePlanAndOffersASearch) {
  MainWindow window(test::library());
  window.show();
  const Inputs before = test::quick_inputs("gpt2");
  window.state().open(before);
  ASSERT_TRUE(wait_until_idle(window.state()));
  auto* again = window.findChild<QAbstractButton*>("search_again");
  EXPECT_FALSE(again->isVisible());
  const std::vector<planner::Remedy> remedies = window.state().snapshot()->explanation.remedies;
  const auto priced =
      std::find_if(remedies.begin(), remedies.end(), [](const planner::Remedy& remedy) { return !remedy.is_searched; });
  ASSERT_NE(priced, remedies.end());
  window.state().apply_remedy(*priced);
  ASSERT_TRUE(wait_until_idle(window.state()));
  ASSERT_TRUE(window.state().inputs().kept.has_value());
  EXPECT_TRUE(again->isVisible());
  const planner::PlanChoices choices = window.state().inputs().choices;
  QTest::mouseClick(again, Qt::LeftButton);
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_FALSE(window.state().inputs().kept.has_value());
  EXPECT_EQ(window.state().inputs().choices, choices) << "the search knows what the suggestion changed";
  EXPECT_NE(choices, before.choices);
}

}  // namespace
}  // namespace fsdp::gui
