// What the figures rest on stands on the window's face.

#include <gtest/gtest.h>

#include <QFile>
#include <QLabel>
#include <QLineEdit>
#include <QTemporaryDir>
#include <QTextBrowser>
#include <QToolButton>
#include <set>

#include "gui/window/main_window.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;
using test::wait_until_idle;

QLabel* label_named(MainWindow& window, const QString& name) {
  for (QLabel* label : window.findChild<QWidget*>("verdict")->findChildren<QLabel*>()) {
    if (label->accessibleName() == name) return label;
  }
  return nullptr;
}

TEST(VerdictFace, TheStepTimeHasItsBand) {
  MainWindow window(test::library());
  window.state().open(test::quick_inputs("gpt2"));
  ASSERT_TRUE(wait_until_idle(window.state()));
  const TimeReport& time = window.state().snapshot()->report.time;
  const QString text = label_named(window, "Step time")->text();
  EXPECT_TRUE(text.startsWith(text_of(time.step) + " (")) << text.toStdString();
  EXPECT_TRUE(text.endsWith(text_of(time.high) + ")")) << text.toStdString();
  EXPECT_TRUE(text.contains(text_of(time.low).section(' ', 0, 0) + QChar(0x2013))) << text.toStdString();
}

TEST(VerdictFace, TheAssumptionsAreAButtonThatOpensTheList) {
  MainWindow window(test::library());
  window.show();
  window.state().open(test::quick_inputs("gpt2"));
  ASSERT_TRUE(wait_until_idle(window.state()));
  auto* assumes = window.findChild<QToolButton*>("assumptions");
  ASSERT_TRUE(assumes->isVisible());
  const Snapshot& shown = *window.state().snapshot();
  EXPECT_TRUE(assumes->text().contains(QString::fromStdString(shown.cluster.gpu.name)))
      << assumes->text().toStdString();
  QTest::mouseClick(assumes, Qt::LeftButton);
  auto* answer = window.findChild<QTextBrowser*>("answer");
  EXPECT_TRUE(answer->isVisible());
  // Lines are wrapped where they are shown.
  const QString said = answer->toPlainText().simplified();
  for (const std::string& each : shown.report.assumptions) {
    EXPECT_TRUE(said.contains(QString::fromStdString(each).simplified())) << each;
  }
}

TEST(VerdictFace, ProofAndTrafficCanBeRead) {
  MainWindow window(test::library());
  window.show();
  window.state().open(test::quick_inputs("gpt2"));
  ASSERT_TRUE(wait_until_idle(window.state()));
  window.show_view("answer");
  const QString said = window.findChild<QTextBrowser*>("answer")->toPlainText();
  EXPECT_TRUE(said.contains("proof"));
  EXPECT_TRUE(said.contains("traffic"));
  EXPECT_TRUE(said.contains("all_gather")) << said.toStdString();
}

// Laying it out takes longer than the answer itself, and nobody looks at it unless its tab is in front.
TEST(VerdictFace, AnswerTabRendersLazilyAndStaysCurrent) {
  MainWindow window(test::library());
  window.show();
  const Inputs inputs = test::quick_inputs("gpt2");
  window.state().open(inputs);
  ASSERT_TRUE(wait_until_idle(window.state()));
  const auto* answer = window.findChild<QTextBrowser*>("answer");
  EXPECT_FALSE(answer->toPlainText().contains("proof")) << "its tab is behind another";
  window.show_view("answer");
  EXPECT_TRUE(answer->toPlainText().contains("proof"));
  EXPECT_FALSE(answer->toPlainText().contains("15.0 GiB"));
  window.state().change(test::with(inputs, PlanChoice::Memory, "15G"), "memory");
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_TRUE(answer->toPlainText().contains("15.0 GiB")) << answer->toPlainText().toStdString();
  window.show_view("peak");
  window.state().change(inputs, "back");
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_TRUE(answer->toPlainText().contains("15.0 GiB"));
  window.show_view("answer");
  EXPECT_FALSE(answer->toPlainText().contains("15.0 GiB"));
}

TEST(VerdictFace, PlanWithoutItsMarginRunsWithAWarning) {
  MainWindow window(test::library());
  Inputs inputs = test::quick_inputs("gpt2");
  window.state().open(inputs);
  ASSERT_TRUE(wait_until_idle(window.state()));
  window.state().set_kept(true);
  ASSERT_TRUE(wait_until_idle(window.state()));
  // A little more than the peak, and less than the peak with its margin.
  const std::int64_t mib = (window.state().snapshot()->report.memory.peaks.device.count() >> 20) + 20;
  window.state().change(test::with(window.state().inputs(), PlanChoice::Memory, std::to_string(mib) + "MiB"), "memory");
  ASSERT_TRUE(wait_until_idle(window.state()));
  const MemoryReport& memory = window.state().snapshot()->report.memory;
  ASSERT_LE(memory.peaks.device, memory.budget);
  ASSERT_GT(memory.peaks.device + memory.margin, memory.budget);
  const QString said = window.findChild<QWidget*>("binding_moment")->accessibleName();
  EXPECT_TRUE(
      said.startsWith("Runs without room to spare: 20.0 MiB left of a " + text_of(memory.margin) + " safety margin."))
      << said.toStdString();
}

TEST(VerdictFace, EverySuggestionIsReachable) {
  MainWindow window(test::library());
  window.resize(800, 500);
  window.show();
  window.state().open(test::with(test::quick_inputs("llama3_1_8b"), PlanChoice::Gpus, "2"));
  ASSERT_TRUE(wait_until_idle(window.state()));
  const std::size_t count = window.state().snapshot()->explanation.remedies.size();
  auto* all = window.findChild<QToolButton*>("all_remedies");
  ASSERT_TRUE(all->isVisible());
  EXPECT_EQ(test::num_entries(*all->menu()), count);
  EXPECT_TRUE(window.rect().contains(QRect(all->mapTo(&window, QPoint(0, 0)), all->size())));
}

TEST(VerdictFace, ShowsTheHostMemoryOfOffload) {
  MainWindow window(test::library());
  window.resize(1360, 860);
  window.show();
  Inputs inputs = test::with(test::quick_inputs("gpt2"), PlanChoice::Offload, "yes");
  window.state().open(inputs);
  ASSERT_TRUE(wait_until_idle(window.state()));
  const std::optional<HostMemory> host = window.state().snapshot()->report.memory.host;
  ASSERT_TRUE(host.has_value());
  const QLabel* shown = label_named(window, "Host RAM per node");
  EXPECT_TRUE(shown->isVisible());
  EXPECT_EQ(shown->text(), "needs " + text_of(host->needed));
  window.state().change(test::with(inputs, PlanChoice::HostMemory, "512G"), "host memory");
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_EQ(shown->text(), text_of(host->needed) + " of 512 GiB");
  window.state().change(test::quick_inputs("gpt2"), "no offload");
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_FALSE(shown->isVisible());
}

TEST(Plans, ListIsNeverEmpty) {
  MainWindow window(test::library());
  window.state().open(test::quick_inputs("gpt2"));
  ASSERT_TRUE(wait_until_idle(window.state()));
  const Inputs kept = with_kept(window.state().inputs(), plan_file_of(*window.state().snapshot()));
  MainWindow other(test::library());
  QSignalSpy answers(&other.state(), &AppState::snapshot_changed);
  other.state().open(kept);
  ASSERT_TRUE(wait_until_idle(other.state()));
  const Snapshot& shown = *other.state().snapshot();
  ASSERT_EQ(shown.plans.size(), 1u) << "a plan of a file, before any search";
  EXPECT_TRUE(shown.plans.front().plan == shown.report.plan);
  EXPECT_EQ(shown.plans.front().device_peak, shown.report.memory.peaks.device);
}

TEST(Plans, SinglePlanOffersASearch) {
  MainWindow window(test::library());
  window.show();
  window.state().open(test::small_inputs("gpt2"));
  ASSERT_TRUE(wait_until_idle(window.state()));
  auto* search = window.findChild<QAbstractButton*>("search_plans");
  EXPECT_FALSE(search->isVisible());
  const Inputs kept = with_kept(window.state().inputs(), plan_file_of(*window.state().snapshot()));
  MainWindow other(test::library());
  other.show();
  other.state().open(kept);
  ASSERT_TRUE(wait_until_idle(other.state()));
  other.show_view("plans");
  search = other.findChild<QAbstractButton*>("search_plans");
  ASSERT_TRUE(search->isVisible());
  QTest::mouseClick(search, Qt::LeftButton);
  ASSERT_TRUE(wait_until_idle(other.state()));
  EXPECT_GT(other.state().snapshot()->plans.size(), 1U);
  EXPECT_FALSE(search->isVisible());
  other.state().undo_stack().undo();
  EXPECT_TRUE(other.state().inputs() == kept);
}

TEST(Plans, HaveTheAnswerBeforeTheSearchHasEnded) {
  AppState state(test::library());
  std::size_t least = 1000;
  QObject::connect(&state, &AppState::snapshot_changed, &state, [&] {
    if (state.snapshot()) least = std::min(least, state.snapshot()->plans.size());
  });
  state.open(test::small_inputs("gpt2"));
  ASSERT_TRUE(wait_until_idle(state));
  EXPECT_GE(least, 1u);
  EXPECT_LT(least, 1000u);
}

TEST(Plans, PlansWithinTheBandAreMarkedAsUncertain) {
  MainWindow window(test::library());
  window.state().open(test::small_inputs("gpt2"));
  ASSERT_TRUE(wait_until_idle(window.state()));
  const Snapshot& shown = *window.state().snapshot();
  const QAbstractTableModel* table = window.findChild<ParetoWidget*>("pareto")->twin_model();
  const int order = table->columnCount() - 1;
  ASSERT_EQ(table->headerData(order, Qt::Horizontal).toString(), "order");
  int uncertain = 0;
  for (int row = 0; row < table->rowCount(); ++row) {
    const planner::Candidate& plan = shown.plans[row];
    const bool is_within = plan.step >= shown.report.time.low && plan.step <= shown.report.time.high;
    const QString said = table->index(row, order).data().toString();
    if (plan.plan == shown.report.plan) {
      EXPECT_EQ(said, "current plan");
    } else {
      EXPECT_EQ(said, is_within ? "within the band" : "certain");
      uncertain += is_within ? 1 : 0;
    }
  }
  EXPECT_GT(uncertain, 0);
}

TEST(Controls, NamesAreUniqueAndImageModelsHaveNoSequence) {
  MainWindow window(test::library());
  window.show();
  window.state().open(test::small_inputs("mlp"));
  ASSERT_TRUE(wait_until_idle(window.state()));
  std::set<std::string> names;
  for (const ControlInfo& info : control_infos()) {
    EXPECT_TRUE(names.insert(std::string(info.label)).second) << info.label;
  }
  EXPECT_TRUE(window.controls().control(PlanChoice::Sequence)->isHidden());
  window.state().open(test::quick_inputs("gpt2"));
  EXPECT_FALSE(window.controls().control(PlanChoice::Sequence)->isHidden());
}

TEST(Controls, ABareNumberOfMemoryIsInGibibytes) {
  AppState state(test::library());
  ControlPanel panel(state);
  panel.show();
  auto* line = panel.control(PlanChoice::Memory)->findChild<QLineEdit*>();
  line->setFocus();
  line->selectAll();
  QTest::keyClicks(line, "12");
  QTest::keyClick(line, Qt::Key_Return);
  EXPECT_EQ(state.inputs().choices.memory, test::gib(12));
}

TEST(MainWindowTitle, NamesThePlanFile) {
  QTemporaryDir folder;
  MainWindow window(test::library());
  window.state().open(test::small_inputs());
  ASSERT_TRUE(wait_until_idle(window.state()));
  const QString path = folder.filePath("four.fsdp-plan.json");
  QFile file(path);
  ASSERT_TRUE(file.open(QFile::WriteOnly));
  file.write(QByteArray::fromStdString(to_text(plan_file_of(*window.state().snapshot()))));
  file.close();
  ASSERT_TRUE(window.open_file(path));
  EXPECT_TRUE(window.windowTitle().startsWith("four.fsdp-plan.json (mlp)")) << window.windowTitle().toStdString();
}

}  // namespace
}  // namespace fsdp::gui
