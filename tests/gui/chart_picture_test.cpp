// What the charts draw, checked on their pixels: in both themes, at both scales, with a pointer, pinned, measured.

#include <gtest/gtest.h>

#include <QApplication>
#include <QImage>
#include <QPainter>
#include <algorithm>

#include "gui/charts/memory_timeline_widget.h"
#include "gui/charts/pareto_widget.h"
#include "gui/charts/stream_timeline_widget.h"
#include "gui/charts/teaching_widget.h"
#include "gui/panels/comparison_panel.h"
#include "gui/panels/peak_panel.h"
#include "tests/gui/chart_fixture.h"

namespace fsdp::gui {
namespace {

int count_of(const QImage& image, const QColor& color, const QRect& part = {}) {
  const QRect box = part.isNull() ? image.rect() : part;
  int count = 0;
  for (int y = box.top(); y <= box.bottom(); ++y) {
    for (int x = box.left(); x <= box.right(); ++x) count += image.pixelColor(x, y) == color ? 1 : 0;
  }
  return count;
}

QColor color_of(const Theme& theme, MemoryCategory category) {
  return theme.category[static_cast<std::size_t>(category)];
}

class ChartPictures : public testing::TestWithParam<std::tuple<bool, int>> {
 protected:
  Theme theme() const { return std::get<0>(GetParam()) ? dark_theme() : light_theme(); }
  int scale() const { return std::get<1>(GetParam()); }
  QString suffix() const { return QString("_%1_%2x").arg(theme().is_dark ? "dark" : "light").arg(scale()); }

  /// Drawn twice: the same pixels, or a chart depends on what was before.
  QImage picture(PlotWidget& chart, const QSize& size, const QString& name) const {
    chart.set_theme(theme());
    const QImage image = picture_of(chart, size, scale());
    EXPECT_EQ(image, picture_of(chart, size, scale())) << name.toStdString();
    keep(image, name + suffix());
    return image;
  }
};

TEST_P(ChartPictures, StackEveryCategoryBelowTheCapacity) {
  TimeRange range;
  MemoryTimelineWidget chart(&range);
  chart.set_snapshot(gpt2_snapshot());
  const QImage image = picture(chart, {1100, 420}, "memory");
  for (const MemoryCategory category :
       {MemoryCategory::ShardedParam, MemoryCategory::OptState, MemoryCategory::Activation}) {
    // More than a swatch of the legend.
    EXPECT_GT(count_of(image, color_of(theme(), category)), 500 * scale() * scale()) << name_of(category);
  }
  EXPECT_GT(count_of(image, theme().bad), 900 * scale()) << "the line of the capacity";
  // Activations are highest at the end of the forward and gone at the begin.
  const QRect begin(80 * scale(), 60 * scale(), 20 * scale(), 300 * scale());
  const QRect middle(420 * scale(), 60 * scale(), 20 * scale(), 300 * scale());
  EXPECT_GT(count_of(image, color_of(theme(), MemoryCategory::Activation), middle),
            5 * count_of(image, color_of(theme(), MemoryCategory::Activation), begin));
}

TEST_P(ChartPictures, ShowTheBaselineAndMeasurementsAsLines) {
  TimeRange range;
  MemoryTimelineWidget chart(&range);
  chart.set_snapshot(gpt2_snapshot(true));
  const QImage before = picture(chart, {1100, 420}, "alone");
  chart.set_baseline(gpt2_snapshot(false));
  auto overlay = std::make_shared<Overlay>();
  const SnapshotPtr snapshot = gpt2_snapshot(true);
  const simulator::MemoryCurve& curve = *snapshot->curves.find(RunPhase::SteadyStep);
  for (std::size_t i = 0; i < curve.size(); i += 3) {
    overlay->time.push_back(curve.time[i].count());
    overlay->allocated.push_back(curve.allocated[i] + (curve.allocated[i] >> 4));
  }
  overlay->step = snapshot->curves.step;
  chart.set_overlay(overlay);
  const QImage image = picture(chart, {1100, 420}, "compared");
  EXPECT_EQ(count_of(before, theme().baseline), 0);
  EXPECT_GT(count_of(image, theme().baseline), 300 * scale());
  EXPECT_GT(count_of(image, theme().measured), count_of(before, theme().measured) + 300 * scale());
}

TEST_P(ChartPictures, ZoomInOnWhatIsVisible) {
  TimeRange range;
  MemoryTimelineWidget chart(&range);
  StreamTimelineWidget streams(&range);
  chart.set_snapshot(gpt2_snapshot());
  streams.set_snapshot(gpt2_snapshot());
  const double step = range.full().end;
  range.show({0.55 * step, 0.70 * step});
  picture(chart, {1100, 420}, "memory_zoomed");
  const QImage image = picture(streams, {1100, 260}, "streams_zoomed");
  EXPECT_GT(count_of(image, theme().lane[static_cast<std::size_t>(Lane::ReduceScatter)]), 200 * scale());
}

TEST_P(ChartPictures, DrawLanesAndHatchExposedCommunication) {
  TimeRange range;
  StreamTimelineWidget chart(&range);
  chart.set_snapshot(gpt2_snapshot());
  const QImage image = picture(chart, {1100, 260}, "streams");
  EXPECT_GT(count_of(image, theme().lane[static_cast<std::size_t>(Lane::Compute)]), 5000 * scale());
  EXPECT_GT(count_of(image, theme().bad), 10 * scale()) << "the first all-gather is exposed";
}

TEST_P(ChartPictures, DrawPlansThatFitFilledAndOthersHollow) {
  ParetoWidget chart;
  chart.set_snapshot(with_plans(gpt2_snapshot()));
  const QImage image = picture(chart, {900, 420}, "pareto");
  EXPECT_GT(count_of(image, theme().bad), 900 * scale()) << "the line of the capacity";
}

TEST_P(ChartPictures, DrawFourGpusWithAQuarterEach) {
  TeachingWidget lesson;
  lesson.set_snapshot(gpt2_snapshot());
  lesson.set_theme(theme());
  for (const int frame : {0, 40, 60}) {
    lesson.set_frame(frame);
    QImage image((QSizeF(1000, 460) * scale()).toSize(), QImage::Format_ARGB32_Premultiplied);
    image.setDevicePixelRatio(scale());
    QPainter painter(&image);
    painter.setFont(lesson.font());
    lesson.draw(painter, QRectF(0, 0, 1000, 460));
    painter.end();
    keep(image, QString("lesson%1").arg(frame) + suffix());
    if (frame == 0) {
      const QRect gpus(0, 0, image.width(), 400 * scale());
      EXPECT_EQ(count_of(image, color_of(theme(), MemoryCategory::UnshardedParam), gpus), 0) << "nothing is whole yet";
      EXPECT_GT(count_of(image, color_of(theme(), MemoryCategory::ShardedParam)), 2000 * scale());
    }
  }
}

TEST_P(ChartPictures, ShowPanelsInTheirTheme) {
  const QPalette before = QApplication::palette();
  QApplication::setPalette(palette_of(theme()));
  PeakPanel peak;
  peak.set_theme(theme());
  peak.set_snapshot(gpt2_snapshot());
  peak.resize(900, 420);
  ComparisonPanel comparison;
  comparison.set_theme(theme());
  comparison.set_snapshot(gpt2_snapshot(true));
  comparison.set_baseline(gpt2_snapshot(false));
  comparison.resize(900, 420);
  keep(peak.grab().toImage(), "peak" + suffix());
  keep(comparison.grab().toImage(), "comparison" + suffix());
  EXPECT_GT(peak.twin_model()->rowCount(), 20);
  EXPECT_GT(comparison.twin_model()->rowCount(), 30);
  QApplication::setPalette(before);
}

INSTANTIATE_TEST_SUITE_P(Themes, ChartPictures, testing::Combine(testing::Bool(), testing::Values(1, 2)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "dark" : "light") +
                                  std::to_string(std::get<1>(info.param)) + "x";
                         });

}  // namespace
}  // namespace fsdp::gui
