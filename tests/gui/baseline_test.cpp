// Two files beside each other.

#include <gtest/gtest.h>

#include <QAction>
#include <QDockWidget>
#include <QLabel>
#include <QTemporaryDir>

#include "gui/state/project_file.h"
#include "gui/window/main_window.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;
using test::small_inputs;
using test::wait_until_idle;

class Baselines : public testing::Test {
 protected:
  QString project(const QString& name, const Inputs& inputs) {
    const QString path = folder_.filePath(name + ".fsdp-project.json");
    EXPECT_TRUE(write_project(path.toStdString(), inputs).has_value());
    return path;
  }
  QTemporaryDir folder_;
};

TEST_F(Baselines, PinnedBaselineStaysWhenAnotherFileOpens) {
  MainWindow window(test::library());
  window.open_file(project("four", small_inputs()));
  ASSERT_TRUE(wait_until_idle(window.state()));
  window.state().pin_baseline();
  const SnapshotPtr pinned = window.state().baseline();
  ASSERT_NE(pinned, nullptr);
  window.open_file(project("two", test::with(small_inputs(), PlanChoice::Gpus, "2")));
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_EQ(window.state().baseline(), pinned);
  EXPECT_EQ(window.state().snapshot()->report.gpus_per_node, 2);
  window.findChild<QAction*>("action_new")->trigger();
  EXPECT_EQ(window.state().baseline(), nullptr) << "the start page begins anew";
}

TEST_F(Baselines, FileCanBeComparedWithoutOpening) {
  MainWindow window(test::library());
  window.open_file(project("four", small_inputs()));
  ASSERT_TRUE(wait_until_idle(window.state()));
  const Inputs before = window.state().inputs();
  window.compare_with(project("two", test::with(small_inputs(), PlanChoice::Gpus, "2")));
  ASSERT_TRUE(QTest::qWaitFor([&] { return window.state().baseline() != nullptr; }, test::kPatience));
  EXPECT_EQ(window.state().baseline()->report.gpus_per_node, 2);
  EXPECT_EQ(window.state().baseline_name(), "two.fsdp-project.json");
  EXPECT_TRUE(window.state().inputs() == before);
  EXPECT_EQ(window.state().snapshot()->report.gpus_per_node, 4);
  auto* differences = window.findChild<QDockWidget*>("dock_differences")->widget();
  QString said;
  for (const QLabel* label : differences->findChildren<QLabel*>()) said += label->text();
  EXPECT_TRUE(said.contains("differences from the baseline two.fsdp-project.json")) << said.toStdString();
}

TEST_F(Baselines, UnreadableFileIsAnErrorAndKeepsTheBaseline) {
  MainWindow window(test::library());
  window.open_file(project("four", small_inputs()));
  ASSERT_TRUE(wait_until_idle(window.state()));
  window.state().pin_baseline();
  window.compare_with(folder_.filePath("missing.json"));
  EXPECT_FALSE(window.state().errors().empty());
  EXPECT_NE(window.state().baseline(), nullptr);
}

TEST_F(Baselines, BaselinesOfAnotherModelAreMarked) {
  MainWindow window(test::library());
  window.open_file(project("mlp", small_inputs()));
  ASSERT_TRUE(wait_until_idle(window.state()));
  window.compare_with(project("gpt2", test::quick_inputs("gpt2")));
  ASSERT_TRUE(QTest::qWaitFor([&] { return window.state().baseline() != nullptr; }, test::kPatience));
  auto* differences = window.findChild<QDockWidget*>("dock_differences")->widget();
  QString said;
  for (const QLabel* label : differences->findChildren<QLabel*>()) said += label->text();
  EXPECT_TRUE(said.contains("of the model ")) << said.toStdString();
  // The charts draw both.
  window.show();
  EXPECT_FALSE(window.grab().isNull());
}

}  // namespace
}  // namespace fsdp::gui
