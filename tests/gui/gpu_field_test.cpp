// What is typed into the field of a GPU is what `--gpu` takes.

#include <gtest/gtest.h>

#include <QComboBox>
#include <QLineEdit>

#include "core/cluster/cluster_library.h"
#include "gui/panels/control_panel.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;

void type_into(Control& control, const QString& text) {
  auto* line = control.findChild<QLineEdit*>();
  line->setFocus();
  line->selectAll();
  QTest::keyClicks(line, text);
  QTest::keyClick(line, Qt::Key_Return);
}

TEST(GpuField, AcceptsEveryNameAndAliasOfTheCommand) {
  const auto library = read_cluster_library(test::library() + "/clusters");
  ASSERT_TRUE(library.has_value());
  AppState state(test::library());
  ControlPanel panel(state);
  panel.show();
  int count = 0;
  for (const Gpu& gpu : library->gpus) {
    std::vector<std::string> names = gpu.aliases;
    names.push_back(gpu.name);
    for (const std::string& name : names) {
      const std::string taken = find_gpu(name, library->gpus, "")->name;
      type_into(*panel.control(PlanChoice::GpuName), QString::fromStdString(name));
      EXPECT_EQ(text_of(state.inputs(), PlanChoice::GpuName), taken) << name;
      ++count;
    }
  }
  EXPECT_GT(count, 40);
}

TEST(GpuField, H100MeansSxmAndAnUnknownNameIsAnError) {
  AppState state(test::library());
  ControlPanel panel(state);
  panel.show();
  type_into(*panel.control(PlanChoice::GpuName), "h100");
  EXPECT_EQ(text_of(state.inputs(), PlanChoice::GpuName), "H100 SXM");
  EXPECT_EQ(panel.control(PlanChoice::GpuName)->findChild<QLineEdit*>()->text(), "H100 SXM");
  state.open(test::small_inputs());
  ASSERT_TRUE(test::wait_until_idle(state));
  type_into(*panel.control(PlanChoice::GpuName), "H20");
  EXPECT_EQ(text_of(state.inputs(), PlanChoice::GpuName), "H20") << "not the H200, which only begins so";
  ASSERT_TRUE(test::wait_until_idle(state));
  ASSERT_FALSE(state.errors().empty());
  EXPECT_EQ(state.errors().front().what, "H20 is not in the library.");
}

TEST(GpuField, EveryAliasOfAClusterIsItsCluster) {
  const auto library = read_cluster_library(test::library() + "/clusters");
  ASSERT_TRUE(library.has_value());
  AppState state(test::library());
  ControlPanel panel(state);
  panel.show();
  for (const Cluster& cluster : library->clusters) {
    for (const std::string& alias : cluster.aliases) {
      type_into(*panel.control(PlanChoice::ClusterFile), QString::fromStdString(alias));
      EXPECT_EQ(text_of(state.inputs(), PlanChoice::ClusterFile), cluster.name) << alias;
    }
  }
}

}  // namespace
}  // namespace fsdp::gui
