// The window from the smallest to the largest screen: what is there has room, and nothing lies on anything else.

#include <gtest/gtest.h>

#include <QComboBox>
#include <QDockWidget>
#include <QLabel>
#include <QLineEdit>
#include <QSettings>
#include <QSplitter>
#include <QToolButton>
#include <memory>
#include <set>

#include "core/cluster/cluster_library.h"
#include "gui/charts/memory_timeline_widget.h"
#include "gui/charts/pareto_widget.h"
#include "gui/charts/stream_timeline_widget.h"
#include "gui/panels/verdict_bar.h"
#include "gui/window/main_window.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;
using test::wait_until_idle;

class WindowSizes : public testing::Test {
 protected:
  void SetUp() override { QSettings().clear(); }
  void TearDown() override { QSettings().clear(); }
};

std::unique_ptr<MainWindow> opened(const QSize& size, const Inputs& inputs = test::quick_inputs("gpt2")) {
  auto window = std::make_unique<MainWindow>(test::library());
  window->resize(size);
  window->show();
  window->state().open(inputs);
  EXPECT_TRUE(wait_until_idle(window->state()));
  QTest::qWait(30);
  return window;
}

QRect on_window(const MainWindow& window, const QWidget& widget) {
  return {widget.mapTo(&window, QPoint(0, 0)), widget.size()};
}

QDockWidget& dock(const MainWindow& window, const char* name) {
  return *window.findChild<QDockWidget*>(QString("dock_") + name);
}

TEST_F(WindowSizes, WidgetsDoNotOverlap) {
  const Inputs does_not_fit = test::with(test::quick_inputs("gpt2"), PlanChoice::Memory, "1G");
  for (const QSize& size : {QSize(672, 460), QSize(800, 500), QSize(1024, 700), QSize(1360, 860), QSize(3840, 2160)}) {
    const auto window = opened(size, size.width() == 672 ? does_not_fit : test::quick_inputs("gpt2"));
    EXPECT_EQ(window->size(), size);
    const QRect center = on_window(*window, *window->centralWidget());
    const QRect controls = on_window(*window, dock(*window, "controls"));
    const QRect views = on_window(*window, dock(*window, "pareto"));
    const std::string at = std::to_string(size.width());
    EXPECT_FALSE(center.intersects(controls)) << at;
    EXPECT_FALSE(center.intersects(views)) << at;
    EXPECT_FALSE(controls.intersects(views)) << at;
    for (const QRect& part : {center, controls, views}) EXPECT_TRUE(window->rect().contains(part)) << at;
    // Each control, whose panel scrolls up and down only.
    for (const QComboBox* list : window->controls().findChildren<QComboBox*>()) {
      if (!list->isVisible()) continue;
      const QRect field = on_window(*window, *list);
      EXPECT_GE(field.left(), controls.left()) << at;
      EXPECT_LE(field.right(), controls.right()) << at << list->accessibleName().toStdString();
    }
  }
}

TEST_F(WindowSizes, TheVerdictIsNeverCut) {
  for (const char* memory : {"1G", "24G"}) {
    const Inputs inputs = test::with(test::quick_inputs("gpt2"), PlanChoice::Memory, memory);
    for (const QSize& size : {QSize(672, 460), QSize(800, 500), QSize(1024, 700), QSize(1200, 800), QSize(1360, 860)}) {
      const auto window = opened(size, inputs);
      const auto* bar = window->findChild<VerdictBar*>("verdict");
      ASSERT_NE(bar, nullptr);
      for (const QLabel* label : bar->findChildren<QLabel*>()) {
        if (!label->isVisible() || label->text().isEmpty()) continue;
        // A group of suggestions that has no room is not there at all.
        if (label->objectName() == "remedy_group" && label->width() == 0) continue;
        EXPECT_GE(label->width(), label->sizeHint().width())
            << label->text().toStdString() << " at " << size.width() << " with " << memory;
      }
    }
  }
}

TEST_F(WindowSizes, TheChartsShowSomethingInASmallWindow) {
  for (const QSize& size : {QSize(672, 460), QSize(1024, 700)}) {
    const auto window = opened(size);
    for (const char* name : {"memory", "streams", "pareto"}) {
      auto* chart = window->findChild<PlotWidget*>(name);
      ASSERT_TRUE(chart->isVisible()) << name;
      // The frame and the ground are a few colors; curves, lanes and plans are more.
      const QImage image = chart->grab().toImage();
      std::set<QRgb> colors;
      for (int y = 0; y < image.height(); ++y) {
        for (int x = 0; x < image.width(); ++x) colors.insert(image.pixel(x, y));
      }
      EXPECT_GT(colors.size(), 24U) << name << " at " << size.width();
    }
    auto* all = window->findChild<QToolButton*>("all_remedies");
    ASSERT_NE(all, nullptr);
    EXPECT_TRUE(window->rect().contains(on_window(*window, *all)));
    EXPECT_EQ(test::num_entries(*all->menu()), window->state().snapshot()->explanation.remedies.size());
  }
}

TEST_F(WindowSizes, MemoryChartIsTheLargestView) {
  for (const QSize& size : {QSize(1024, 700), QSize(1360, 860), QSize(1920, 1080)}) {
    const auto window = opened(size);
    const int memory = window->findChild<QWidget*>("memory")->height();
    EXPECT_GE(memory, window->findChild<QWidget*>("streams")->height()) << size.width();
    EXPECT_GE(memory, window->findChild<QWidget*>("pareto")->height()) << size.width();
  }
}

TEST_F(WindowSizes, TheViewsGrowWithTheWindowUntilTheUserSizesThem) {
  const auto window = opened({1360, 860});
  const int before = dock(*window, "pareto").height();
  window->resize(2560, 1440);
  QTest::qWait(30);
  const int large = dock(*window, "pareto").height();
  EXPECT_GT(large, before + 100);
  EXPECT_NEAR(large, 1440 * 27 / 100, 30);
  // The edge between charts and views, as a mouse finds it.
  const QRect views = on_window(*window, dock(*window, "pareto"));
  const QPoint edge(views.center().x(), on_window(*window, *window->centralWidget()).bottom() + 2);
  QTest::mouseMove(window.get(), edge);
  QTest::mousePress(window.get(), Qt::LeftButton, {}, edge);
  QTest::mouseMove(window.get(), edge - QPoint(0, 120));
  QTest::qWait(30);
  QTest::mouseRelease(window.get(), Qt::LeftButton, {}, edge - QPoint(0, 120));
  QTest::qWait(30);
  const int own = dock(*window, "pareto").height();
  ASSERT_GT(own, large + 60) << "the edge was dragged";
  window->resize(2560, 1600);
  QTest::qWait(30);
  EXPECT_NEAR(dock(*window, "pareto").height(), own, 2);
}

TEST_F(WindowSizes, LanesFillALargeScreen) {
  const auto window = opened({3840, 2160});
  auto* streams = window->findChild<StreamTimelineWidget*>("streams");
  ASSERT_GT(streams->height(), 300);
  // Rows of pixels with a kernel of the compute lane.
  const QImage image = streams->grab().toImage();
  const QColor compute = streams->theme().lane[static_cast<std::size_t>(Lane::Compute)];
  int rows = 0;
  for (int y = 0; y < image.height(); ++y) {
    int hits = 0;
    for (int x = 0; x < image.width(); x += 3) hits += image.pixelColor(x, y) == compute ? 1 : 0;
    rows += hits > 20 ? 1 : 0;
  }
  EXPECT_GE(rows, 30);
}

TEST_F(WindowSizes, NoFieldCutsItsText) {
  std::vector<Inputs> all;
  const auto on = [](std::initializer_list<std::pair<PlanChoice, const char*>> choices) {
    Inputs inputs = test::quick_inputs("gpt2");
    for (const auto& [choice, text] : choices) inputs = test::with(std::move(inputs), choice, text);
    return inputs;
  };
  all.push_back(on({{PlanChoice::Memory, "80G"}}));
  all.push_back(on({{PlanChoice::GpuName, "H100 SXM"}, {PlanChoice::Gpus, "8"}, {PlanChoice::Nodes, "2"}}));
  all.push_back(
      on({{PlanChoice::GpuName, "A100 40GB PCIe"}, {PlanChoice::Nodes, "2"}, {PlanChoice::Strategy, "HYBRID_SHARD"}}));
  // The longest name that is shipped.
  std::string longest;
  const auto library = read_cluster_library(test::library() + "/clusters");
  for (const Cluster& cluster : library->clusters) {
    if (cluster.name.size() > longest.size()) longest = cluster.name;
  }
  all.push_back(on({{PlanChoice::ClusterFile, longest.c_str()}}));
  for (const Inputs& inputs : all) {
    const auto window = opened({1360, 860}, inputs);
    ASSERT_TRUE(window->state().errors().empty()) << to_string(window->state().errors().front());
    for (const PlanChoice choice :
         {PlanChoice::ClusterFile, PlanChoice::GpuName, PlanChoice::Strategy, PlanChoice::Checkpoint, PlanChoice::Wrap,
          PlanChoice::Precision, PlanChoice::Reshard, PlanChoice::ReduceDtype}) {
      const Control* control = window->controls().control(choice);
      const auto* list = control->findChild<QComboBox*>();
      const QString shown = list->isEditable()         ? list->currentText()
                            : list->currentIndex() < 0 ? list->placeholderText()
                                                       : list->currentText();
      EXPECT_LE(list->fontMetrics().horizontalAdvance(shown), control->room())
          << shown.toStdString() << " of " << control->value().toStdString();
      const bool has_room = control->value().size() < 24;
      if (!has_room || control->value().isEmpty()) continue;
      EXPECT_EQ(shown.toStdString(), control->value().toStdString());
    }
  }
}

TEST_F(WindowSizes, EditingALongNameShowsAllOfIt) {
  const auto window = opened({1360, 860});
  Control* cluster = window->controls().control(PlanChoice::ClusterFile);
  auto* line = cluster->findChild<QLineEdit*>();
  const QString name = "4 nodes of 8x RTX 4090, 25 Gb/s Ethernet";
  cluster->show_value(name, true);
  EXPECT_TRUE(line->text().endsWith(QChar(0x2026))) << line->text().toStdString();
  window->activateWindow();
  line->setFocus();
  QTest::qWait(10);
  ASSERT_TRUE(line->hasFocus());
  EXPECT_EQ(line->text(), name);
  window->setFocus();
  QTest::qWait(10);
  EXPECT_TRUE(line->text().endsWith(QChar(0x2026))) << line->text().toStdString();
  EXPECT_EQ(window->state().inputs(), test::quick_inputs("gpt2")) << "looking at it changes nothing";
}

TEST_F(WindowSizes, ShortenedTextsEndWithAnEllipsis) {
  const auto window = opened({1360, 860});
  Control* strategy = window->controls().control(PlanChoice::Strategy);
  const QString name = "(mixed a strategy whose name is far too long for any field)";
  strategy->show_value(name, false);
  const auto* list = strategy->findChild<QComboBox*>();
  const QString shown = list->isEditable() ? list->currentText() : list->placeholderText();
  EXPECT_TRUE(shown.endsWith(QChar(0x2026))) << shown.toStdString();
  EXPECT_TRUE(list->toolTip().startsWith(name));
}

}  // namespace
}  // namespace fsdp::gui
