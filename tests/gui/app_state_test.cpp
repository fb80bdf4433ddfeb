#include "gui/state/app_state.h"

#include <gtest/gtest.h>

#include <QLabel>
#include <functional>
#include <vector>

#include "gui/state/plan_edit.h"
#include "gui/window/main_window.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;
using test::small_inputs;
using test::wait_until_idle;

/// What the worker has looked up; the window's thread would have to, were it missing.
Bytes alive_at_peak(const Snapshot& snapshot) {
  Bytes sum;
  if (snapshot.at_peak == nullptr) return sum;
  for (const simulator::LiveTensorDetail& each : *snapshot.at_peak) sum += each.tensor.bytes;
  return sum;
}

TEST(AppState, AnswersTheOpenedInputs) {
  AppState state(test::library());
  state.open(small_inputs());
  ASSERT_TRUE(wait_until_idle(state));
  ASSERT_NE(state.snapshot(), nullptr);
  EXPECT_EQ(state.snapshot()->stage, Stage::Explained);
  EXPECT_EQ(state.snapshot()->report.gpus_per_node, 4);
  EXPECT_FALSE(state.snapshot()->plans.empty());
  EXPECT_FALSE(state.snapshot()->explanation.binding.empty());
  EXPECT_EQ(state.snapshot()->model->name, state.snapshot()->report.model);
}

// A drag of 60 values: the first is started, perhaps some between, and the last one always.
TEST(AppState, RequestsCoalesceAndTheNewestIsAnswered) {
  AppState state(test::library());
  state.open(test::with(test::quick_inputs("qwen3_tts"), PlanChoice::Checkpoint, "full"));
  ASSERT_TRUE(wait_until_idle(state));
  const std::int64_t before = state.engine().num_started();
  QSignalSpy shown(&state, &AppState::snapshot_changed);
  for (int memory = 17; memory <= 76; ++memory) {
    state.change(test::with(state.inputs(), PlanChoice::Memory, std::to_string(memory) + "G"), "memory", 1);
    QTest::qWait(2);
  }
  ASSERT_TRUE(wait_until_idle(state));
  const std::int64_t started = state.engine().num_started() - before;
  EXPECT_LT(started, 60);
  EXPECT_GE(started, 2);
  EXPECT_GE(shown.count(), started) << "each one that was started was also shown";
  EXPECT_EQ(state.snapshot()->report.memory.budget, Bytes(76LL << 30));
  EXPECT_FALSE(state.is_stale());
}

TEST(AppState, ADragIsOneStepOfUndo) {
  AppState state(test::library());
  const Inputs opened = small_inputs();
  state.open(opened);
  for (const char* gpus : {"5", "6", "7"}) state.change(test::with(state.inputs(), PlanChoice::Gpus, gpus), "GPUs", 7);
  state.change(test::with(state.inputs(), PlanChoice::Batch, "3"), "batch", 8);
  EXPECT_EQ(state.undo_stack().count(), 2);
  state.undo_stack().undo();
  EXPECT_EQ(text_of(state.inputs(), PlanChoice::Batch), std::nullopt);
  EXPECT_EQ(text_of(state.inputs(), PlanChoice::Gpus), "7");
  state.undo_stack().undo();
  EXPECT_EQ(state.inputs(), opened);
  state.undo_stack().redo();
  ASSERT_TRUE(wait_until_idle(state));
  EXPECT_EQ(state.snapshot()->report.gpus_per_node, 7);
}

TEST(AppState, AnErrorKeepsTheLastGoodPicture) {
  AppState state(test::library());
  state.open(small_inputs());
  ASSERT_TRUE(wait_until_idle(state));
  const SnapshotPtr good = state.snapshot();
  state.change(with_typed(with_typed(state.inputs(), PlanChoice::Memory, "16"), PlanChoice::Sequence, "x"), "nonsense");
  ASSERT_TRUE(wait_until_idle(state));
  EXPECT_EQ(state.snapshot(), good);
  EXPECT_TRUE(state.is_stale());
  ASSERT_EQ(state.errors().size(), 2u) << "all that is wrong, in one go";
  EXPECT_EQ(state.errors()[0].where, "--seq");
  EXPECT_EQ(state.errors()[1].where, "--mem");
  state.undo_stack().undo();
  ASSERT_TRUE(wait_until_idle(state));
  EXPECT_TRUE(state.errors().empty());
  EXPECT_FALSE(state.is_stale());
}

TEST(AppState, ALongSearchIsStopped) {
  AppState state(test::library());
  state.open(test::with(small_inputs("qwen3_tts"), PlanChoice::GlobalBatch, "512"));
  QTest::qWait(30);
  state.cancel_search();
  ASSERT_TRUE(wait_until_idle(state));
  if (state.snapshot() == nullptr) {
    ASSERT_EQ(state.errors().size(), 1u);
    EXPECT_EQ(state.errors()[0].what, "The search was stopped.");
  }
}

TEST(AppState, KeptPlanCostsWhatTheSearchPrinted) {
  AppState state(test::library());
  state.open(test::quick_inputs("qwen3_tts"));
  ASSERT_TRUE(wait_until_idle(state));
  const StepReport searched = state.snapshot()->report;
  EXPECT_EQ(alive_at_peak(*state.snapshot()), searched.memory.peaks.live);
  state.set_kept(true);
  ASSERT_TRUE(wait_until_idle(state));
  EXPECT_TRUE(state.snapshot()->report == searched);
  EXPECT_EQ(alive_at_peak(*state.snapshot()), searched.memory.peaks.live);
  EXPECT_FALSE(state.snapshot()->explanation.remedies.empty());
  state.set_kept(false);
  ASSERT_TRUE(wait_until_idle(state));
  EXPECT_TRUE(state.snapshot()->report == searched);
}

TEST(AppState, AKeptPlanFollowsTheMachines) {
  AppState state(test::library());
  state.open(test::quick_inputs("qwen3_tts"));
  ASSERT_TRUE(wait_until_idle(state));
  state.set_kept(true);
  state.change(test::with(state.inputs(), PlanChoice::Gpus, "8"), "GPUs");
  ASSERT_TRUE(wait_until_idle(state));
  EXPECT_TRUE(state.errors().empty());
  EXPECT_EQ(state.snapshot()->report.plan.mesh.world_size(), 8);
  EXPECT_EQ(state.snapshot()->report.gpus_per_node, 8);
}

TEST(AppState, UnitCanBeRemovedAndRestored) {
  AppState state(test::library());
  state.open(test::with(test::quick_inputs("qwen3_tts"), PlanChoice::Wrap, "blocks"));
  ASSERT_TRUE(wait_until_idle(state));
  const Plan plan = state.snapshot()->report.plan;
  const std::string block = "talker.model.layers.7";
  const SnapshotPtr shown = state.snapshot();
  const Model& model = *shown->model;
  const Plan without = with_unit(plan, model, block, false);
  EXPECT_EQ(without.units.size(), plan.units.size() - 1);
  state.keep_plan(without, "take out");
  ASSERT_TRUE(wait_until_idle(state));
  EXPECT_TRUE(state.errors().empty());
  EXPECT_TRUE(state.snapshot()->report.plan.units == without.units);
  Plan again = with_unit(without, model, block, true);
  again = with_reshard(again, block, plan.units[unit_of(plan, block)].reshard_after_forward);
  EXPECT_TRUE(again.units == plan.units);
}

/// The stages of all answers until the state is idle, each once.
std::vector<Stage> stages_until_idle(AppState& state, const std::function<void()>& ask) {
  std::vector<Stage> stages;
  const auto connection = QObject::connect(&state, &AppState::snapshot_changed, &state, [&] {
    if (state.snapshot() && (stages.empty() || stages.back() != state.snapshot()->stage)) {
      stages.push_back(state.snapshot()->stage);
    }
  });
  ask();
  EXPECT_TRUE(test::wait_until_idle(state));
  QObject::disconnect(connection);
  return stages;
}

TEST(FirstPicture, ShowsAPlainPlanAndLaterOnesTheShownPlan) {
  AppState state(test::library());
  const Inputs inputs = test::quick_inputs("gpt2");
  using enum Stage;
  EXPECT_EQ(stages_until_idle(state, [&] { state.open(inputs); }), (std::vector{Guess, Answered, Explained}));
  const Plan shown = state.snapshot()->report.plan;
  Plan moved;
  const auto connection = QObject::connect(&state, &AppState::snapshot_changed, &state, [&] {
    if (state.snapshot()->stage == Preview) moved = state.snapshot()->report.plan;
  });
  EXPECT_EQ(
      stages_until_idle(state, [&] { state.change(test::with(inputs, planner::PlanChoice::Memory, "24G"), "memory"); }),
      (std::vector{Preview, Answered, Explained}));
  QObject::disconnect(connection);
  EXPECT_EQ(moved.units, shown.units);
  EXPECT_EQ(moved.checkpointing, shown.checkpointing);
  // A plan of a file is predicted at once.
  EXPECT_EQ(stages_until_idle(state, [&] { state.open(with_kept(inputs, plan_file_of(*state.snapshot()))); }),
            (std::vector{Answered, Explained}));
}

TEST(FirstPicture, PlainPlanHasNoVerdict) {
  MainWindow window(test::library());
  window.show();
  QStringList words;
  QObject::connect(&window.state(), &AppState::snapshot_changed, &window, [&] {
    if (!window.state().snapshot() || window.state().snapshot()->stage != Stage::Guess) return;
    words << window.findChild<QLabel*>("verdict_word")->text();
    EXPECT_TRUE(window.state().is_stale());
    EXPECT_EQ(window.state().snapshot()->plans.size(), 1U);
    EXPECT_FALSE(window.state().snapshot()->curves.empty());
  });
  window.state().open(test::quick_inputs("gpt2"));
  ASSERT_TRUE(test::wait_until_idle(window.state()));
  EXPECT_EQ(words, QStringList{"Looking …"});
  EXPECT_FALSE(window.state().is_stale());
  EXPECT_EQ(window.findChild<QLabel*>("verdict_word")->text(), "✓ FITS");
}

}  // namespace
}  // namespace fsdp::gui
