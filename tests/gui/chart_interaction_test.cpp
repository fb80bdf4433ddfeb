// The charts under mouse and keys, and their tables.

#include <gtest/gtest.h>

#include <QAbstractItemModelTester>
#include <QAction>
#include <QApplication>
#include <QSignalSpy>
#include <QTest>
#include <QWheelEvent>

#include "gui/charts/memory_timeline_widget.h"
#include "gui/charts/pareto_widget.h"
#include "gui/charts/stream_timeline_widget.h"
#include "gui/charts/teaching_widget.h"
#include "gui/panels/comparison_panel.h"
#include "gui/panels/peak_panel.h"
#include "tests/gui/chart_fixture.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

void turn_wheel(QWidget& widget, const QPointF& at, int eighths) {
  QWheelEvent event(at, widget.mapToGlobal(at), {}, {0, eighths}, Qt::NoButton, Qt::NoModifier, Qt::NoScrollPhase,
                    false);
  QApplication::sendEvent(&widget, &event);
}

/// Keys go to the window in front: shortcuts of others must not run.
void press(QWidget& widget, Qt::Key key) {
  widget.show();
  widget.activateWindow();
  EXPECT_TRUE(QTest::qWaitForWindowActive(&widget));
  widget.setFocus();
  QTest::keyClick(&widget, key);
}

class Charts : public testing::Test {
 protected:
  Charts() : memory_(&range_), streams_(&range_) {
    for (PlotWidget* chart : std::initializer_list<PlotWidget*>{&memory_, &streams_, &pareto_}) {
      chart->resize(1000, 400);
      chart->set_snapshot(with_plans(gpt2_snapshot()));
      chart->show();
    }
  }

  TimeRange range_;
  MemoryTimelineWidget memory_;
  StreamTimelineWidget streams_;
  ParetoWidget pareto_;
};

TEST_F(Charts, ZoomTogetherAtThePointer) {
  const ValueRange before = range_.visible();
  turn_wheel(memory_, {500, 200}, 240);
  const ValueRange after = range_.visible();
  EXPECT_LT(after.width(), 0.8 * before.width());
  // The value under the pointer stays under it: the plot goes from 108 to 986.
  const double share = (500.0 - 108) / (986 - 108);
  EXPECT_NEAR(after.begin + share * after.width(), before.begin + share * before.width(), 1e-3 * before.width());
  turn_wheel(streams_, {500, 200}, -2400);
  EXPECT_EQ(range_.visible(), range_.full()) << "the other chart moves the same range";
}

TEST_F(Charts, MoveZoomFitAndUndoByKeys) {
  press(memory_, Qt::Key_W);
  const ValueRange closer = range_.visible();
  EXPECT_LT(closer.width(), range_.full().width());
  press(memory_, Qt::Key_D);
  EXPECT_GT(range_.visible().begin, closer.begin);
  press(memory_, Qt::Key_A);
  press(memory_, Qt::Key_0);
  EXPECT_TRUE(range_.is_whole());
  press(memory_, Qt::Key_Backspace);
  EXPECT_TRUE(range_.can_undo() || range_.is_whole());
}

TEST_F(Charts, MeasureAndZoomIntoADraggedRange) {
  QTest::mousePress(&memory_, Qt::LeftButton, {}, {300, 200});
  QTest::mouseMove(&memory_, {350, 200});
  QTest::mouseMove(&memory_, {500, 200});
  QTest::mouseRelease(&memory_, Qt::LeftButton, {}, {500, 200});
  ASSERT_TRUE(range_.selection().has_value());
  EXPECT_NEAR(range_.selection()->width() / range_.full().width(), 200.0 / (986 - 108), 0.005);
  const ValueRange selected = *range_.selection();
  press(memory_, Qt::Key_Z);
  EXPECT_EQ(range_.visible(), selected);
  press(memory_, Qt::Key_Backspace);
  EXPECT_TRUE(range_.is_whole());
  press(memory_, Qt::Key_Escape);
  EXPECT_FALSE(range_.selection().has_value());
}

TEST_F(Charts, GoToThePeakAndDescribeIt) {
  QSignalSpy chosen(&memory_, &MemoryTimelineWidget::moment_chosen);
  QSignalSpy status(&memory_, &PlotWidget::status_changed);
  press(memory_, Qt::Key_P);
  ASSERT_EQ(chosen.size(), 1);
  const auto& curves = gpt2_snapshot()->curves;
  EXPECT_EQ(chosen[0][0].toInt(), static_cast<int>(curves.peak_phase()));
  EXPECT_EQ(chosen[0][1].toInt(), static_cast<int>(curves.phases[curves.peak_phase()].peak()));
  press(memory_, Qt::Key_Right);
  ASSERT_FALSE(status.isEmpty());
  EXPECT_TRUE(status.last()[0].toString().contains("live")) << status.last()[0].toString().toStdString();
}

TEST_F(Charts, ClickNearAShortPeakChoosesThePeak) {
  const auto& curves = gpt2_snapshot()->curves;
  const simulator::MemoryCurve& steady = *curves.find(RunPhase::SteadyStep);
  const double share = steady.time[steady.peak()].count() / curves.step.count();
  QSignalSpy chosen(&memory_, &MemoryTimelineWidget::moment_chosen);
  QTest::mouseClick(&memory_, Qt::LeftButton, {}, {static_cast<int>(108 + share * (986 - 108)), 200});
  ASSERT_EQ(chosen.size(), 1);
  EXPECT_EQ(chosen[0][1].toInt(), static_cast<int>(steady.peak()));
}

TEST_F(Charts, ShowInitializationByItsEvents) {
  press(memory_, Qt::Key_1);
  EXPECT_EQ(memory_.phase(), RunPhase::Initialization);
  EXPECT_EQ(memory_.twin_model()->rowCount(), static_cast<int>(gpt2_snapshot()->curves.phases[0].size()));
  press(memory_, Qt::Key_3);
  press(memory_, Qt::Key_T);
  EXPECT_EQ(memory_.axis(), MemoryTimelineWidget::Axis::Events);
  turn_wheel(memory_, {500, 200}, 240);
  EXPECT_TRUE(range_.is_whole()) << "events are another axis than the time of the streams";
}

TEST_F(Charts, SelectAnEventByKeysAndNameItsUnit) {
  QSignalSpy unit(&streams_, &StreamTimelineWidget::unit_chosen);
  press(streams_, Qt::Key_Down);
  range_.point(0.0);
  press(streams_, Qt::Key_Right);
  press(streams_, Qt::Key_Return);
  ASSERT_EQ(unit.size(), 1);
  ASSERT_GE(streams_.selected_event(), 0);
  const StreamEvent& event = gpt2_snapshot()->curves.events[streams_.selected_event()];
  EXPECT_EQ(event.stream, Stream::AllGather);
  EXPECT_EQ(unit[0][0].toString().toStdString(), event.unit);
}

TEST_F(Charts, ChooseAPlanByArrowKeysAndEnter) {
  std::optional<Plan> chosen;
  QObject::connect(&pareto_, &ParetoWidget::plan_chosen, [&](const Plan& plan) { chosen = plan; });
  const int current = pareto_.selected_plan();
  ASSERT_GE(current, 0) << "the current plan is selected";
  press(pareto_, Qt::Key_Right);
  EXPECT_NE(pareto_.selected_plan(), current);
  press(pareto_, Qt::Key_Return);
  ASSERT_TRUE(chosen.has_value());
  EXPECT_NE(*chosen, gpt2_snapshot()->report.plan);
}

TEST_F(Charts, HaveNamesAndDescribedActions) {
  TeachingWidget lesson;
  for (QWidget* widget : std::initializer_list<QWidget*>{&memory_, &streams_, &pareto_, &lesson}) {
    EXPECT_FALSE(widget->accessibleName().isEmpty());
    for (const QAction* action : widget->actions()) {
      EXPECT_FALSE(action->text().isEmpty());
      EXPECT_FALSE(action->shortcuts().isEmpty()) << action->text().toStdString();
      EXPECT_FALSE(action->toolTip().isEmpty()) << action->text().toStdString();
    }
  }
}

TEST_F(Charts, UseTableModelsThatQtAccepts) {
  PeakPanel peak;
  ComparisonPanel comparison;
  peak.set_snapshot(gpt2_snapshot());
  comparison.set_snapshot(gpt2_snapshot());
  for (QAbstractTableModel* table : {memory_.twin_model(), streams_.twin_model(), pareto_.twin_model(),
                                     peak.twin_model(), comparison.twin_model()}) {
    QAbstractItemModelTester tester(table, QAbstractItemModelTester::FailureReportingMode::Fatal);
    memory_.set_snapshot(gpt2_snapshot(true));
    streams_.set_snapshot(gpt2_snapshot(true));
    peak.set_snapshot(gpt2_snapshot(true));
    comparison.set_baseline(gpt2_snapshot(true));
    EXPECT_EQ(table->data(table->index(table->rowCount(), 0)), QVariant());
  }
}

TEST_F(Charts, AcceptMissingAndEmptySnapshots) {
  for (PlotWidget* chart : std::initializer_list<PlotWidget*>{&memory_, &streams_, &pareto_}) {
    chart->set_snapshot(nullptr);
    EXPECT_FALSE(picture_of(*chart, {300, 200}, 1).isNull());
    EXPECT_FALSE(picture_of(*chart, {20, 10}, 1).isNull());
    press(*chart, Qt::Key_Right);
    press(*chart, Qt::Key_F);
    press(*chart, Qt::Key_Return);
    chart->set_snapshot(std::make_shared<Snapshot>());
    EXPECT_FALSE(picture_of(*chart, {300, 200}, 1).isNull());
  }
}

TEST(Lesson, FollowsTheScheduleAndEndsAsItBegan) {
  TeachingWidget lesson;
  lesson.set_snapshot(gpt2_snapshot());
  const Lesson told = make_lesson(gpt2_snapshot()->curves, gpt2_snapshot()->report.plan);
  ASSERT_EQ(told.frames.size(), gpt2_snapshot()->curves.instructions.size() + 1);
  EXPECT_EQ(lesson.num_frames(), static_cast<int>(told.frames.size()));
  EXPECT_EQ(told.units.size(), 13u);
  bool is_ever_whole = false;
  for (const TeachingFrame& frame : told.frames) {
    int whole = 0;
    for (const UnitFrame& unit : frame.units) whole += unit.parameters == HeldParameters::Unsharded ? 1 : 0;
    EXPECT_LE(whole, 3) << "the root, a layer, and the next: that is what sharding saves";
    is_ever_whole = is_ever_whole || whole > 0;
  }
  EXPECT_TRUE(is_ever_whole);
  for (const UnitFrame& unit : told.frames.back().units) {
    EXPECT_EQ(unit.parameters, HeldParameters::Sharded);
    EXPECT_EQ(unit.gradients, HeldGradients::None);
    EXPECT_FALSE(unit.has_activations);
  }
  press(lesson, Qt::Key_Right);
  EXPECT_EQ(lesson.frame(), 1);
  EXPECT_TRUE(lesson.accessibleDescription().contains("GPU"));
  press(lesson, Qt::Key_End);
  EXPECT_EQ(lesson.frame(), lesson.num_frames() - 1);
}

TEST(Lesson, HasButtonsAndShowsTheMomentOfItsInstruction) {
  TeachingWidget lesson;
  lesson.resize(760, 420);
  lesson.set_snapshot(gpt2_snapshot());
  const Lesson told = make_lesson(gpt2_snapshot()->curves, gpt2_snapshot()->report.plan);
  ASSERT_EQ(told.instructions.size(), told.frames.size());
  QSignalSpy moments(&lesson, &TeachingWidget::moment_changed);
  auto* next = lesson.findChild<QToolButton*>("lesson_next");
  auto* back = lesson.findChild<QToolButton*>("lesson_back");
  auto* play = lesson.findChild<QToolButton*>("lesson_play");
  auto* speed = lesson.findChild<QToolButton*>("lesson_speed");
  EXPECT_FALSE(back->isEnabled()) << "at the beginning";
  next->click();
  next->click();
  EXPECT_EQ(lesson.frame(), 2);
  const auto& steps = gpt2_snapshot()->curves.instructions;
  EXPECT_EQ(moments.back()[0].toDouble(), steps[static_cast<std::size_t>(told.instructions[2])].begin.count());
  back->click();
  EXPECT_EQ(lesson.frame(), 1);
  press(lesson, Qt::Key_PageDown);
  EXPECT_EQ(lesson.frame(), 11);
  play->click();
  EXPECT_TRUE(lesson.is_playing());
  next->click();
  EXPECT_FALSE(lesson.is_playing()) << "who steps looks";
  const QString slow = speed->text();
  speed->click();
  EXPECT_NE(speed->text(), slow);
}

TEST(Lesson, NamesTheNumberOfGpusInGroups) {
  AppState state(test::library());
  Inputs inputs = test::quick_inputs("gpt2");
  inputs = without(std::move(inputs), planner::PlanChoice::Strategy);
  state.open(test::with(inputs, planner::PlanChoice::Shard, "2"));
  ASSERT_TRUE(test::wait_until_idle(state));
  ASSERT_TRUE(state.errors().empty()) << to_string(state.errors().front());
  const Lesson told = make_lesson(state.snapshot()->curves, state.snapshot()->report.plan);
  EXPECT_EQ(told.sentences.front(),
            "The 4 GPUs are 2 groups of 2. Each keeps 1/2 of every parameter, of its gradient and of its optimizer "
            "states, and each group holds all of them. No GPU could run a layer now: it has only a part of it.");
  EXPECT_TRUE(told.has_optimizer_states);
}

TEST(Lesson, ReplicasUnderSimpleFsdpHaveNoBuckets) {
  AppState state(test::library());
  Inputs inputs = test::small_inputs("gpt2");
  inputs = test::with(inputs, planner::PlanChoice::Runtime, "simple_fsdp");
  inputs = test::with(inputs, planner::PlanChoice::Accumulate, "1");
  state.open(test::with(inputs, planner::PlanChoice::Shard, "1"));
  ASSERT_TRUE(test::wait_until_idle(state));
  ASSERT_TRUE(state.errors().empty()) << to_string(state.errors().front());
  const Snapshot& shown = *state.snapshot();
  const Lesson told = make_lesson(shown.curves, shown.report.plan);
  const auto says = [&](const std::string& heading) {
    return std::count(told.headings.begin(), told.headings.end(), heading);
  };
  EXPECT_EQ(says("All-reduce of a bucket"), 0);
  EXPECT_EQ(says("All reductions are done"), 0);
  // One for each read of a parameter that is trained.
  const std::int64_t sums = shown.report.traffic.totals[static_cast<int>(CollectiveKind::AllReduce)].count;
  EXPECT_GT(sums, 0);
  EXPECT_EQ(says("All-reduce of a gradient"), sums);
}

}  // namespace
}  // namespace fsdp::gui
