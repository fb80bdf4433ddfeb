// What the charts draw, checked on their pixels.

#include <gtest/gtest.h>

#include "gui/memory_timeline_widget.h"
#include "gui/pareto_widget.h"
#include "gui/stream_timeline_widget.h"
#include "tests/gui/chart_fixture.h"

namespace fsdp::gui {
namespace {

TEST(ChartPictures, AreDrawnInBothThemesAtBothScales) {
  TimeRange range;
  MemoryTimelineWidget memory(&range);
  StreamTimelineWidget streams(&range);
  ParetoWidget pareto;
  const SnapshotPtr snapshot = gpt2_snapshot();
  for (PlotWidget* chart : std::initializer_list<PlotWidget*>{&memory, &streams, &pareto})
    chart->set_snapshot(snapshot);
  for (const bool is_dark : {false, true}) {
    for (const int scale : {1, 2}) {
      int number = 0;
      for (PlotWidget* chart : std::initializer_list<PlotWidget*>{&memory, &streams, &pareto}) {
        chart->set_theme(is_dark ? dark_theme() : light_theme());
        const QImage image = picture_of(*chart, {1100, number == 1 ? 260 : 420}, scale);
        keep(image, QString("chart%1_%2_%3x").arg(number++).arg(is_dark ? "dark" : "light").arg(scale));
        EXPECT_EQ(image.pixelColor(1, image.height() / 2), chart->theme().background);
      }
    }
  }
}

}  // namespace
}  // namespace fsdp::gui
