// What somebody meets first: the machine of the start page, its keys, and options on the command line.

#include <gtest/gtest.h>

#include <QComboBox>
#include <QLabel>
#include <QLineEdit>
#include <QMenuBar>
#include <QPushButton>
#include <QSettings>
#include <QSpinBox>

#include "gui/panels/example_card.h"
#include "gui/state/machine.h"
#include "gui/state/settings.h"
#include "gui/window/main_window.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;
using test::wait_until_idle;

/// No machine was used before.
void forget_machine() {
  Settings().set_machine({});
}

TEST(StartPageKeys, ReturnOpensTheExampleThatHasTheFocus) {
  MainWindow window(test::library());
  window.show();
  auto* card = window.findChild<ExampleCard*>(QString("example_%1").arg(test::kSmallExample));
  card->setFocus();
  QTest::keyClick(card, Qt::Key_Return);
  EXPECT_EQ(window.state().inputs().model, "mlp");
  ASSERT_TRUE(wait_until_idle(window.state()));
}

TEST(StartPageKeys, EveryFocusedElementIsHighlighted) {
  MainWindow window(test::library());
  window.resize(1100, 900);
  window.show();
  ASSERT_TRUE(QTest::qWaitForWindowActive(&window));
  auto* page = window.findChild<QWidget*>("start_page");
  const auto looks = [&](QWidget* stop) {
    QTest::qWait(1);
    return page->grab(QRect(stop->mapTo(page, QPoint(-4, -4)), stop->size() + QSize(8, 8))).toImage();
  };
  int stops = 0;
  for (QWidget* stop = page->nextInFocusChain(); stop != page && stops < 100; stop = stop->nextInFocusChain()) {
    const bool is_stop = page->isAncestorOf(stop) && (stop->focusPolicy() & Qt::TabFocus) != 0 && stop->isVisible() &&
                         stop->isEnabled() && stop->focusProxy() == nullptr;
    if (!is_stop) continue;
    ++stops;
    page->setFocus();
    window.menuBar()->setFocus();
    const QImage before = looks(stop);
    stop->setFocus(Qt::TabFocusReason);
    EXPECT_NE(looks(stop), before) << stop->objectName().toStdString() << " " << stop->metaObject()->className();
  }
  EXPECT_GE(stops, 10) << "three fields of the machine, two ways to open, six examples";
}

TEST(StartPageMachine, AppliesToModelsThatNameNone) {
  forget_machine();
  MainWindow window(test::library());
  window.show();
  auto* gpu = window.findChild<QComboBox*>("start_gpu");
  EXPECT_EQ(gpu->currentText(), "H100 SXM");
  gpu->lineEdit()->selectAll();
  QTest::keyClicks(gpu->lineEdit(), "16G");
  QTest::keyClick(gpu->lineEdit(), Qt::Key_Return);
  window.findChild<QSpinBox*>("start_gpus")->setValue(2);
  window.open_model("mlp");
  EXPECT_EQ(window.state().inputs().choices.memory, test::gib(16));
  EXPECT_EQ(window.state().inputs().choices.gpus, 2);
  EXPECT_FALSE(window.state().inputs().choices.gpu_name.has_value());
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_TRUE(window.state().errors().empty()) << to_string(window.state().errors().front());
}

TEST(StartPageMachine, IsTheLastOneUsed) {
  forget_machine();
  {
    MainWindow window(test::library());
    window.state().open(test::with(test::small_inputs(), PlanChoice::Gpus, "3"));
    ASSERT_TRUE(wait_until_idle(window.state()));
  }
  MainWindow window(test::library());
  window.open_model("mlp");
  EXPECT_EQ(window.state().inputs().choices.gpus, 3);
  EXPECT_EQ(window.state().inputs().choices.memory, test::gib(16));
  ASSERT_TRUE(wait_until_idle(window.state()));
}

TEST(StartPageMachine, ExampleIsNotRemembered) {
  forget_machine();
  MainWindow window(test::library());
  window.open_example(test::kSmallExample);
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_TRUE(Settings().machine().isEmpty());
}

TEST(CommandLine, OptionsOverrideTheMachineOfTheStartPage) {
  MainWindow window(test::library());
  GivenOptions options;
  options.texts = {{PlanChoice::Gpus, {"4"}}, {PlanChoice::Memory, {"16G"}}};
  options.objective = planner::SearchObjective::Memory;
  window.open_at_start("mlp", options);
  Inputs wanted = test::small_inputs();
  wanted.objective = planner::SearchObjective::Memory;
  EXPECT_TRUE(window.state().inputs() == wanted);
  ASSERT_TRUE(wait_until_idle(window.state()));
}

TEST(CommandLine, OptionsWithoutEffectAreRefused) {
  const auto unread = with_options({}, {.texts = {{PlanChoice::Memory, {"plenty"}}}, .objective = {}});
  ASSERT_FALSE(unread);
  EXPECT_EQ(unread.error().front().where, "--mem");
  Inputs kept;
  kept.kept = PlanFile{};
  const auto ignored = with_options(kept, {.texts = {{PlanChoice::Wrap, {"root"}}}, .objective = {}});
  ASSERT_FALSE(ignored);
  EXPECT_EQ(to_string(ignored.error().front()),
            "--wrap: A plan file sets that by itself. Leave it out, or open the model.");
  EXPECT_TRUE(with_options(kept, {.texts = {{PlanChoice::Gpus, {"8"}}}, .objective = {}}));
}

}  // namespace
}  // namespace fsdp::gui
