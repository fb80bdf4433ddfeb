#include "gui/window/main_window.h"

#include <gtest/gtest.h>

#include <QAbstractButton>
#include <QAbstractItemModelTester>
#include <QAbstractSlider>
#include <QAbstractSpinBox>
#include <QApplication>
#include <QClipboard>
#include <QComboBox>
#include <QDockWidget>
#include <QDropEvent>
#include <QImage>
#include <QMenu>
#include <QMimeData>
#include <QPlainTextEdit>
#include <QScrollBar>
#include <QTemporaryDir>
#include <fstream>

#include "gui/state/project_file.h"
#include "render/choice_words.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;
using test::small_inputs;
using test::wait_until_idle;

QAction* action_of(MainWindow& window, const QString& name) {
  return window.findChild<QAction*>("action_" + name);
}

TEST(MainWindow, BeginsWithAStartPageAndOpensAnExample) {
  MainWindow window(test::library());
  window.show();
  EXPECT_TRUE(window.findChild<QWidget*>("start_page")->isVisible());
  QTest::mouseClick(window.findChild<QAbstractButton*>("example_5"), Qt::LeftButton);
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_FALSE(window.findChild<QWidget*>("start_page")->isVisible());
  EXPECT_TRUE(window.findChild<QWidget*>("verdict")->isVisible());
  EXPECT_EQ(window.findChild<VerdictBar*>("verdict")->verdict(), "✓ FITS");
}

TEST(MainWindow, CopiesThePlanForOtherPrograms) {
  MainWindow window(test::library());
  window.state().change(small_inputs(), "choose");
  ASSERT_TRUE(wait_until_idle(window.state()));
  const auto copied = [&](const QString& action) {
    QApplication::clipboard()->clear();
    action_of(window, action)->trigger();
    return QApplication::clipboard()->text();
  };
  EXPECT_TRUE(copied("copy_python").contains("def apply_plan(model):")) << copied("copy_python").toStdString();
  window.state().change(with_choices(small_inputs(), {.strategy = "FULL_SHARD"}), "choose");
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_TRUE(copied("copy_accelerate").contains("\nnum_processes: 4 ")) << copied("copy_accelerate").toStdString();
  EXPECT_TRUE(copied("copy_trainer").contains("def training_arguments(")) << copied("copy_trainer").toStdString();
}

TEST(MainWindow, CopiesTheNearestPlanWithANote) {
  MainWindow window(test::library());
  window.state().change(with_choices(small_inputs(), {.strategy = "NO_SHARD"}), "choose");
  ASSERT_TRUE(wait_until_idle(window.state()));
  action_of(window, "copy_accelerate")->trigger();
  EXPECT_TRUE(QApplication::clipboard()->text().contains("/mesh: Nothing is sharded"));
  const auto* messages = window.findChild<QListWidget*>("messages");
  ASSERT_NE(messages, nullptr);
  bool is_said = false;
  for (int row = 0; row < messages->count(); ++row) {
    is_said |= messages->item(row)->text().contains("Copied the closest plan that accelerate 1.15.0 can express");
  }
  EXPECT_TRUE(is_said);
}

TEST(MainWindow, EveryActionHasATextAndAShortcutOrATip) {
  MainWindow window(test::library());
  window.open_example(test::kSmallExample);
  int count = 0;
  for (const QAction* action : window.findChildren<QAction*>()) {
    if (action->isSeparator() || action->menu() != nullptr || action->parent()->inherits("QLineEdit")) continue;
    ++count;
    EXPECT_FALSE(action->text().isEmpty() && action->toolTip().isEmpty()) << action->objectName().toStdString();
    const bool is_told = !action->shortcut().isEmpty() || !action->toolTip().isEmpty();
    EXPECT_TRUE(is_told) << action->text().toStdString();
  }
  EXPECT_GT(count, 30);
}

TEST(MainWindow, NoTwoActionsShareAShortcutThatWorksEverywhere) {
  MainWindow window(test::library());
  std::map<QString, QString> taken;
  for (const QAction* action : window.findChildren<QAction*>()) {
    if (action->shortcutContext() != Qt::WindowShortcut || action->shortcut().isEmpty()) continue;
    const QString key = action->shortcut().toString();
    EXPECT_EQ(taken.count(key), 0u) << key.toStdString() << ": " << taken[key].toStdString() << " and "
                                    << action->text().toStdString();
    taken[key] = action->text();
  }
}

TEST(MainWindow, EveryInputHasAnAccessibleName) {
  MainWindow window(test::library());
  window.open_example(0);
  ASSERT_TRUE(wait_until_idle(window.state()));
  int count = 0;
  for (const QWidget* widget : window.findChildren<QWidget*>()) {
    const bool is_input = qobject_cast<const QAbstractSpinBox*>(widget) != nullptr ||
                          qobject_cast<const QComboBox*>(widget) != nullptr ||
                          qobject_cast<const QLineEdit*>(widget) != nullptr ||
                          (qobject_cast<const QAbstractSlider*>(widget) != nullptr &&
                           qobject_cast<const QScrollBar*>(widget) == nullptr) ||
                          qobject_cast<const QPlainTextEdit*>(widget) != nullptr ||
                          qobject_cast<const QAbstractItemView*>(widget) != nullptr;
    const QWidget* parent = widget->parentWidget();
    const bool is_part = qobject_cast<const QAbstractSpinBox*>(parent) != nullptr ||
                         qobject_cast<const QComboBox*>(parent) != nullptr || widget->inherits("QComboBoxListView") ||
                         widget->inherits("QHeaderView");
    if (!is_input || is_part) continue;
    ++count;
    EXPECT_FALSE(widget->accessibleName().isEmpty())
        << widget->metaObject()->className() << " " << widget->objectName().toStdString() << " in "
        << parent->objectName().toStdString();
  }
  EXPECT_GT(count, 40);
  for (const QAbstractButton* button : window.findChildren<QAbstractButton*>()) {
    // From Qt's own docks and fields.
    if (button->objectName().startsWith("qt_") || button->parentWidget()->inherits("QLineEdit") ||
        button->parentWidget()->inherits("QTableView")) {
      continue;
    }
    EXPECT_FALSE(button->text().isEmpty() && button->accessibleName().isEmpty() && button->toolTip().isEmpty())
        << button->metaObject()->className() << " " << button->objectName().toStdString() << " in "
        << button->parentWidget()->metaObject()->className();
  }
}

TEST(MainWindow, TheTreeOfModulesIsAProperModel) {
  AppState state(test::library());
  ModuleTree tree(state);
  const QAbstractItemModelTester plain(&tree.model(), QAbstractItemModelTester::FailureReportingMode::Fatal);
  const QAbstractItemModelTester filtered(tree.view().model(), QAbstractItemModelTester::FailureReportingMode::Fatal);
  state.open(test::quick_inputs("gpt2"));
  ASSERT_TRUE(wait_until_idle(state));
  tree.search().setText("nowhere");
  EXPECT_EQ(tree.view().model()->rowCount(), 0);
  tree.search().setText("mlp");
  EXPECT_GT(tree.view().model()->rowCount(), 0);
  tree.search().clear();
  state.change(test::with(state.inputs(), PlanChoice::Checkpoint, "full"), "checkpoint");
  ASSERT_TRUE(wait_until_idle(state));
  tree.show_module("transformer.h.3");
  const QModelIndex index = tree.view().currentIndex();
  ASSERT_EQ(index.data(ModuleTreeModel::kModuleNameRole).toString(), "transformer.h.3");
  EXPECT_EQ(index.siblingAtColumn(ModuleTreeModel::kCheckpoint).data().toString(), "full");
}

TEST(MainWindow, ACheckboxInTheTreeMakesAUnit) {
  MainWindow window(test::library());
  window.open_example(test::kSmallExample);
  ASSERT_TRUE(wait_until_idle(window.state()));
  auto* tree = window.findChild<QTreeView*>("module_tree");
  const std::size_t before = window.state().snapshot()->report.plan.units.size();
  QModelIndex unit;
  QModelIndex row = tree->model()->index(0, 0);
  while (row.isValid() && !unit.isValid()) {
    const QModelIndex box = row.siblingAtColumn(ModuleTreeModel::kUnit);
    if (box.data(Qt::CheckStateRole).isValid() && box.data(Qt::CheckStateRole).toInt() == Qt::Unchecked) unit = box;
    row = tree->indexBelow(row);
  }
  ASSERT_TRUE(unit.isValid()) << "a module that is no unit";
  ASSERT_TRUE(tree->model()->setData(unit, Qt::Checked, Qt::CheckStateRole));
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_TRUE(window.state().inputs().kept.has_value());
  EXPECT_EQ(window.state().snapshot()->report.plan.units.size(), before + 1);
}

TEST(MainWindow, ASuggestionIsAppliedByAClick) {
  MainWindow window(test::library());
  window.show();
  window.state().open(test::with(test::quick_inputs("qwen3_tts"), PlanChoice::Checkpoint, "none"));
  ASSERT_TRUE(wait_until_idle(window.state()));
  window.state().set_kept(true);
  ASSERT_TRUE(wait_until_idle(window.state()));
  const SnapshotPtr before = window.state().snapshot();
  ASSERT_FALSE(before->explanation.remedies.empty());
  const planner::Remedy remedy = before->explanation.remedies.front();
  auto* chip = window.findChild<QAbstractButton*>("remedy_1");
  ASSERT_NE(chip, nullptr);
  EXPECT_TRUE(chip->toolTip().contains(QString::fromStdString(render::flags_of(remedy.change))));
  QTest::mouseClick(chip, Qt::LeftButton);
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_TRUE(window.state().errors().empty());
  const StepReport& after = window.state().snapshot()->report;
  EXPECT_EQ(after.memory.peaks.device - before->report.memory.peaks.device, remedy.delta_bytes) << remedy.what;
  EXPECT_EQ(after.verdict, remedy.verdict);
}

TEST(MainWindow, ObjectiveIsChosenInAList) {
  MainWindow window(test::library());
  window.show();
  window.state().open(test::small_inputs());
  ASSERT_TRUE(wait_until_idle(window.state()));
  const Bytes before = window.state().snapshot()->report.memory.peaks.device;
  auto* list = window.controls().objective().findChild<QComboBox*>();
  ASSERT_EQ(list->currentText(), "time");
  list->setFocus();
  QTest::keyClick(list, Qt::Key_Down);
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_EQ(window.state().inputs().objective, planner::SearchObjective::Memory);
  EXPECT_LT(window.state().snapshot()->report.memory.peaks.device, before);
  window.state().set_kept(true);
  EXPECT_FALSE(list->isEnabled());
  window.state().set_kept(false);
  window.controls().objective().findChild<QToolButton*>()->click();
  EXPECT_EQ(window.state().inputs().objective, planner::SearchObjective::Time);
}

// Open an example, change the GPUs, see another verdict: without a mouse.
TEST(MainWindow, EveryStepWorksByKeyboardAlone) {
  MainWindow window(test::library());
  window.show();
  window.findChild<QWidget*>("example_5")->setFocus();
  QTest::keyClick(window.findChild<QWidget*>("example_5"), Qt::Key_Space);
  ASSERT_TRUE(wait_until_idle(window.state()));
  auto* verdict = window.findChild<VerdictBar*>("verdict");
  ASSERT_EQ(verdict->verdict(), "✓ FITS");
  auto* memory = window.controls().control(PlanChoice::Memory)->findChild<QLineEdit*>();
  memory->setFocus();
  memory->selectAll();
  QTest::keyClicks(memory, "451MiB");
  QTest::keyClick(memory, Qt::Key_Return);
  ASSERT_TRUE(wait_until_idle(window.state()));
  ASSERT_EQ(verdict->verdict(), "! FITS, TIGHT");
  Control* gpus = window.controls().control(PlanChoice::Gpus);
  auto* box = gpus->findChild<QSpinBox*>();
  box->setFocus();
  box->selectAll();
  QTest::keyClicks(box, "8");
  QTest::keyClick(box, Qt::Key_Return);
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_EQ(window.state().snapshot()->report.gpus_per_node, 8);
  EXPECT_EQ(verdict->verdict(), "✓ FITS");
  QTest::keyClick(&window, Qt::Key_Z, Qt::ControlModifier);
  EXPECT_EQ(text_of(window.state().inputs(), PlanChoice::Gpus), "4");
  QTemporaryDir folder;
  const QString before = QDir::currentPath();
  QDir::setCurrent(folder.path());
  test::name_next_file("picture.png");
  QTest::keyClick(&window, Qt::Key_E, Qt::ControlModifier);
  QDir::setCurrent(before);
  const QString path = folder.filePath("picture.png");
  EXPECT_GT(QImage(path).width(), 500) << path.toStdString();
}

TEST(MainWindow, BrokenFilesAreExplainedAndNothingIsLost) {
  QTemporaryDir folder;
  const auto write = [&](const QString& name, const std::string& text) {
    std::ofstream(folder.filePath(name).toStdString()) << text;
    return folder.filePath(name);
  };
  MainWindow window(test::library());
  window.open_example(test::kSmallExample);
  ASSERT_TRUE(wait_until_idle(window.state()));
  const Inputs before = window.state().inputs();
  const SnapshotPtr shown = window.state().snapshot();
  for (const QString& path :
       {write("empty.json", ""), write("half.json", "{\"mesh\": {"), write("other.json", "{\"name\": 3}"),
        write("project.fsdp-project.json", "{\"kind\": \"fsdp-plan-project\", \"format_version\": \"9.0\"}"),
        write("binary.json", std::string("\x01\x02\x00\xff", 4)), folder.filePath("missing.json")}) {
    EXPECT_FALSE(window.open_file(path)) << path.toStdString();
    EXPECT_FALSE(window.state().errors().empty()) << path.toStdString();
    EXPECT_TRUE(window.state().inputs() == before);
    EXPECT_EQ(window.state().snapshot(), shown);
  }
  // A pickle is opened as a recording, and read by a worker.
  window.state().report_errors({});
  ASSERT_TRUE(window.open_file(write("cut.pickle", std::string("\x80\x02\x00\xff", 4))));
  ASSERT_TRUE(QTest::qWaitFor([&] { return !window.state().errors().empty(); }, test::kPatience));
  EXPECT_TRUE(window.state().inputs() == before);
  EXPECT_EQ(window.state().snapshot(), shown);
}

TEST(MainWindow, AFileIsOpenedByDroppingIt) {
  QTemporaryDir folder;
  const QString path = folder.filePath("work.fsdp-project.json");
  ASSERT_TRUE(write_project(path.toStdString(), small_inputs()));
  MainWindow window(test::library());
  window.show();
  QMimeData data;
  data.setUrls({QUrl::fromLocalFile(path)});
  QDragEnterEvent enter({50, 50}, Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
  QApplication::sendEvent(&window, &enter);
  EXPECT_TRUE(enter.isAccepted());
  QDropEvent drop({50, 50}, Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
  QApplication::sendEvent(&window, &drop);
  EXPECT_TRUE(window.state().inputs() == small_inputs());
}

TEST(MainWindow, ASmallWindowShowsTheVerdictAndTheControls) {
  MainWindow window(test::library());
  window.resize(800, 500);
  window.show();
  window.open_example(3);
  ASSERT_TRUE(wait_until_idle(window.state()));
  QTest::qWait(20);
  EXPECT_EQ(window.size(), QSize(800, 500));
  auto* word = window.findChild<QLabel*>("verdict_word");
  EXPECT_TRUE(word->isVisible());
  EXPECT_GE(word->width(), word->sizeHint().width());
  EXPECT_TRUE(window.controls().control(PlanChoice::Gpus)->isVisible());
  for (const QWidget* widget : {static_cast<QWidget*>(word), window.findChild<QWidget*>("binding_moment")}) {
    const QRect inside(widget->mapTo(&window, QPoint(0, 0)), widget->size());
    EXPECT_TRUE(window.rect().contains(inside)) << widget->objectName().toStdString();
  }
}

TEST(MainWindow, DocksReturnToTheirPlaces) {
  MainWindow window(test::library());
  window.show();
  window.open_example(test::kSmallExample);
  ASSERT_TRUE(wait_until_idle(window.state()));
  for (QDockWidget* dock : window.findChildren<QDockWidget*>()) {
    EXPECT_FALSE(dock->objectName().isEmpty());
    dock->close();
  }
  action_of(window, "restore_layout")->trigger();
  for (QDockWidget* dock : window.findChildren<QDockWidget*>()) EXPECT_FALSE(dock->isHidden());
}

TEST(MainWindow, RunWithoutTheCommandReportsThatItIsMissing) {
  const QByteArray before = qgetenv("FSDP_PLAN_BINARY");
  qputenv("FSDP_PLAN_BINARY", "/nowhere/fsdp-plan");
  MainWindow window(test::library());
  window.open_example(test::kSmallExample);
  ASSERT_TRUE(wait_until_idle(window.state()));
  action_of(window, "execute")->trigger();
  EXPECT_TRUE(window.runs().log().contains("The command fsdp-plan was not found")) << window.runs().log().toStdString();
  EXPECT_FALSE(window.runs().is_running());
  qputenv("FSDP_PLAN_BINARY", before);
}

}  // namespace
}  // namespace fsdp::gui
