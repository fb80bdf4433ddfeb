// From an input to the picture that answers it, at a hundred thousand moments: one picture an input, and in a picture
// no more than a screen can show. How long that took is printed; a busy machine is no defect of ours.

#include <gtest/gtest.h>

#include <QApplication>
#include <QElapsedTimer>
#include <QPicture>
#include <QTest>
#include <QWheelEvent>
#include <algorithm>
#include <ctime>
#include <functional>
#include <iostream>
#include <memory>
#include <utility>

#include "gui/charts/memory_timeline_widget.h"
#include "gui/charts/stream_timeline_widget.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

constexpr std::size_t kMoments = 100'000;
constexpr std::size_t kFewMoments = 5'000;  // Already several a pixel.
constexpr int kInputs = 120;

SnapshotPtr with_moments(std::size_t count) {
  auto snapshot = std::make_shared<Snapshot>();
  simulator::MemoryCurve curve;
  curve.phase = RunPhase::SteadyStep;
  for (std::size_t i = 0; i < count; ++i) {
    const auto height = static_cast<std::int64_t>((i * 7919) % 10007) << 16;
    for (auto& live : curve.live) live.push_back(height);
    curve.total.push_back(height * kNumMemoryCategories);
    curve.allocated.push_back(curve.total.back());
    curve.reserved.push_back(curve.total.back());
    curve.time.emplace_back(1e-6 * static_cast<double>(i));
    curve.instruction.push_back(0);
    curve.tensor.push_back(-1);
    curve.change.push_back(1);
    StreamEvent event{.stream = static_cast<Stream>(i % 5), .name = "layers"};
    event.start = Seconds(1e-6 * static_cast<double>(i));
    event.end = event.start + Seconds(3e-6);
    snapshot->curves.events.push_back(std::move(event));
  }
  snapshot->curves.step = Seconds(1e-6 * static_cast<double>(count));
  snapshot->curves.instructions.push_back({.name = "Forward layers.0", .end = snapshot->curves.step});
  snapshot->report.memory.budget = Bytes(std::int64_t{16} << 30);
  snapshot->curves.phases.push_back(std::move(curve));
  return snapshot;
}

/// Counts what is painted.
class PaintCounter : public QObject {
 public:
  int count = 0;
  bool eventFilter(QObject* /*watched*/, QEvent* event) override {
    count += event->type() == QEvent::Paint ? 1 : 0;
    return false;
  }
};

struct Latency {
  double work = 0;
  double wall = 0;
};

Latency until_painted(QWidget& widget, PaintCounter& paints, const std::function<void()>& input) {
  QCoreApplication::processEvents();
  const int before = paints.count;
  QElapsedTimer timer;
  timer.start();
  const std::clock_t begin = std::clock();
  input();
  EXPECT_TRUE(QTest::qWaitFor([&] { return paints.count > before; }, test::kPatience))
      << widget.accessibleName().toStdString() << " was not painted";
  return {1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC,
          static_cast<double>(timer.nsecsElapsed()) / 1e6};
}

double at_share(std::vector<double> times, double share) {
  std::sort(times.begin(), times.end());
  return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
}

/// Bytes of what a widget tells a painter, pixmaps included.
qsizetype told_to_painter(QWidget& widget) {
  QPicture picture;
  widget.render(&picture, {}, {}, QWidget::DrawChildren);
  return static_cast<qsizetype>(picture.size());
}

TEST(ChartLatency, PictureSizeDoesNotGrowWithTheMoments) {
  for (const bool is_memory : {true, false}) {
    std::vector<qsizetype> sizes;
    for (const std::size_t count : {kFewMoments, kMoments}) {
      TimeRange range;
      const std::unique_ptr<PlotWidget> chart = is_memory
                                                    ? std::unique_ptr<PlotWidget>(new MemoryTimelineWidget(&range))
                                                    : std::make_unique<StreamTimelineWidget>(&range);
      chart->resize(1200, 500);
      chart->set_snapshot(with_moments(count));
      chart->show();
      ASSERT_TRUE(QTest::qWaitForWindowExposed(chart.get()));
      sizes.push_back(told_to_painter(*chart));
    }
    std::cout << sizes[0] << " bytes of a picture of " << kFewMoments << " moments, " << sizes[1] << " of " << kMoments
              << "\n";
    EXPECT_GT(sizes[0], 1000);
    EXPECT_LT(sizes[1], 2 * sizes[0]);
  }
}

TEST(ChartLatency, IsShortForPointerAndWheel) {
  const SnapshotPtr snapshot = with_moments(kMoments);
  TimeRange range;
  MemoryTimelineWidget memory(&range);
  StreamTimelineWidget streams(&range);
  for (PlotWidget* chart : std::initializer_list<PlotWidget*>{&memory, &streams}) {
    chart->resize(1200, 500);
    chart->set_snapshot(snapshot);
    chart->show();
    ASSERT_TRUE(QTest::qWaitForWindowExposed(chart));
    PaintCounter paints;
    chart->installEventFilter(&paints);
    std::vector<double> work;
    std::vector<double> wall;
    for (int i = 0; i < kInputs; ++i) {
      const QPointF at(100 + 8 * i, 200);
      const Latency latency = until_painted(*chart, paints, [&] {
        if (i % 3 != 0) return QTest::mouseMove(chart, at.toPoint());
        QWheelEvent wheel(at, chart->mapToGlobal(at), {}, {0, i % 2 == 0 ? 120 : -60}, Qt::NoButton, Qt::NoModifier,
                          Qt::NoScrollPhase, false);
        QApplication::sendEvent(chart, &wheel);
      });
      work.push_back(latency.work);
      wall.push_back(latency.wall);
    }
    for (const auto& [name, times] : {std::pair("work", &work), std::pair("wall", &wall)}) {
      std::cout << chart->title().toStdString() << ", input to paint, " << name << ": p50 " << at_share(*times, 0.5)
                << " ms, p95 " << at_share(*times, 0.95) << " ms, longest " << at_share(*times, 1) << " ms\n";
    }
    EXPECT_LE(paints.count, 2 * kInputs) << "pictures that nobody asked for";
    chart->removeEventFilter(&paints);
  }
}

}  // namespace
}  // namespace fsdp::gui
