// What a suggestion promises is what its click gives.

#include <gtest/gtest.h>

#include <QAbstractButton>
#include <cmath>

#include "gui/state/remedy.h"
#include "gui/window/main_window.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::Option;
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
    EXPECT_EQ(after.verdict, remedy.verdict) << remedy.what;
    state.undo_stack().undo();
    EXPECT_TRUE(state.inputs() == inputs) << "one step of undo";
    ASSERT_TRUE(wait_until_idle(state));
  }
}

TEST(Remedies, OfAPlanThatWasSearchedGiveWhatTheyPromise) {
  expect_prices_are_kept(test::quick_inputs("qwen3_tts"));
}

TEST(Remedies, OfAPlanThatDoesNotFitGiveWhatTheyPromise) {
  expect_prices_are_kept(with_option(test::quick_inputs("llama3_1_8b"), Option::Gpus, "2"));
}

Inputs on_two_l4() {
  Inputs inputs = with_option(test::quick_inputs("llama3_1_8b"), Option::GpuName, "L4");
  return with_option(std::move(inputs), Option::Gpus, "2");
}

TEST(Remedies, OfANamedCardAreOtherCardsAtTheirOwnSpeed) {
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

TEST(Remedies, OfAPlanFileNameTheNumberOfGpus) {
  AppState state(test::library());
  state.open(on_two_l4());
  ASSERT_TRUE(wait_until_idle(state));
  // What opening its file gives: the machines are in the plan and not among the options.
  Inputs of_file;
  of_file.model = "llama3_1_8b";
  of_file.kept = PlanFile{state.snapshot()->report.plan, state.snapshot()->cluster};
  expect_prices_are_kept(of_file);
}

TEST(Remedies, OfAKeptPlanGiveWhatTheyPromiseWhateverTheLinkWas) {
  AppState state(test::library());
  Inputs inputs = with_option(test::quick_inputs("llama3_1_8b"), Option::Gpus, "2");
  inputs = with_option(std::move(inputs), Option::IntraBandwidth, "8GB/s");
  state.open(inputs);
  ASSERT_TRUE(wait_until_idle(state));
  expect_prices_are_kept(with_kept(inputs, plan_file_of(*state.snapshot())));
}

TEST(Remedies, OfNamedGpusAndASearchedBatchGiveWhatTheyPromise) {
  Inputs inputs = test::quick_inputs("gpt2");
  inputs = with_option(inputs, Option::GpuName, "A100 40GB PCIe");
  expect_prices_are_kept(with_option(inputs, Option::GlobalBatch, "64"));
}

TEST(Remedies, AClickKeepsThePlanAndSearchingAgainIsAButtonOfItsOwn) {
  MainWindow window(test::library());
  window.show();
  const Inputs before = test::quick_inputs("gpt2");
  window.state().open(before);
  ASSERT_TRUE(wait_until_idle(window.state()));
  auto* again = window.findChild<QAbstractButton*>("search_again");
  EXPECT_FALSE(again->isVisible());
  QTest::mouseClick(window.findChild<QAbstractButton*>("remedy_1"), Qt::LeftButton);
  ASSERT_TRUE(wait_until_idle(window.state()));
  ASSERT_TRUE(window.state().inputs().kept.has_value());
  EXPECT_TRUE(again->isVisible());
  const auto options = window.state().inputs().options;
  QTest::mouseClick(again, Qt::LeftButton);
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_FALSE(window.state().inputs().kept.has_value());
  EXPECT_EQ(window.state().inputs().options, options) << "the search knows what the suggestion changed";
  EXPECT_NE(options, before.options);
}

}  // namespace
}  // namespace fsdp::gui
