// Cost of drawing the explorer's charts, at sizes far above those of a usual step: a stack of ten categories
// over 100,000 moments, 100,000 events on five lanes, 10,000 plans; each at 1200 x 500 pixels, drawn whole.
//
// Bars: 8 ms for the stack, 3 ms for the lanes, 4 ms for the plans: sixty frames a second with time to spare.

#include <benchmark/benchmark.h>

#include <QApplication>
#include <QImage>
#include <QPainter>

#include "gui/charts/memory_timeline_widget.h"
#include "gui/charts/pareto_widget.h"
#include "gui/charts/stream_timeline_widget.h"

namespace {

using namespace fsdp;
using namespace fsdp::gui;

constexpr std::size_t kMoments = 100'000;
constexpr std::size_t kPlans = 10'000;
constexpr std::int64_t kMiB = 1 << 20;
const QSize kSize(1200, 500);

/// Numbers that look irregular and are the same in every run.
class Numbers {
 public:
  std::int64_t below(std::int64_t limit) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::int64_t>(state_ >> 33U) % limit;
  }

 private:
  std::uint64_t state_ = 1;
};

std::shared_ptr<Snapshot> large_snapshot() {
  auto snapshot = std::make_shared<Snapshot>();
  Numbers numbers;
  simulator::MemoryCurve curve;
  curve.phase = RunPhase::SteadyStep;
  std::array<std::int64_t, kNumMemoryCategories> live{};
  for (std::size_t i = 0; i < kMoments; ++i) {
    const auto category = static_cast<std::size_t>(numbers.below(kNumMemoryCategories - 1));
    live[category] = std::max<std::int64_t>(0, live[category] + (numbers.below(41) - 20) * kMiB);
    std::int64_t total = 0;
    for (std::size_t c = 0; c < live.size(); ++c) {
      curve.live[c].push_back(live[c]);
      total += live[c];
    }
    curve.time.emplace_back(1e-6 * static_cast<double>(i));
    curve.total.push_back(total);
    curve.allocated.push_back(total);
    // Keeps the reserved bytes.
    const std::int64_t before = curve.reserved.empty() ? 0 : curve.reserved.back();
    curve.reserved.push_back(std::max(before, total + 512 * kMiB));
    curve.instruction.push_back(0);
    curve.tensor.push_back(-1);
    curve.change.push_back(1);
  }
  snapshot->curves.step = Seconds(1e-6 * static_cast<double>(kMoments));
  snapshot->curves.instructions.push_back(
      {.name = "Forward layers.0", .unit = "layers.0", .end = snapshot->curves.step});
  snapshot->report.memory.budget = Bytes(curve.total[curve.peak()] + 2048 * kMiB);
  snapshot->report.memory.peaks.device = snapshot->report.memory.budget - Bytes(1024 * kMiB);
  snapshot->curves.phases.push_back(std::move(curve));
  for (std::size_t i = 0; i < kMoments; ++i) {
    StreamEvent event;
    event.stream = static_cast<Stream>(i % 5);
    event.name = "layers." + std::to_string(i % 80);
    event.start = Seconds(1e-6 * static_cast<double>(i));
    event.end = event.start + Seconds(1e-6 * static_cast<double>(1 + numbers.below(4)));
    snapshot->curves.events.push_back(std::move(event));
  }
  for (std::size_t i = 0; i < kPlans; ++i) {
    planner::Candidate plan;
    plan.plan.backward_prefetch = static_cast<std::int64_t>(i) + 2;
    plan.step = Seconds(1 + 0.001 * static_cast<double>(numbers.below(1000)));
    plan.device_peak = Bytes((4096 + numbers.below(60'000)) * kMiB);
    plan.missing = std::max(Bytes(0), plan.device_peak - Bytes(48'000 * kMiB));
    snapshot->plans.push_back(std::move(plan));
  }
  return snapshot;
}

const SnapshotPtr& snapshot() {
  static const SnapshotPtr made = large_snapshot();
  return made;
}

template <class Chart>
void draw(benchmark::State& state, Chart& chart) {
  chart.set_snapshot(snapshot());
  QImage image(kSize, QImage::Format_ARGB32_Premultiplied);
  for (auto _ : state) {
    QPainter painter(&image);
    chart.draw(painter, QRectF(QPointF(0, 0), QSizeF(kSize)));
  }
}

void BM_Stack(benchmark::State& state) {
  TimeRange range;
  MemoryTimelineWidget chart(&range);
  draw(state, chart);
}
BENCHMARK(BM_Stack)->Unit(benchmark::kMillisecond);

void BM_Lanes(benchmark::State& state) {
  TimeRange range;
  StreamTimelineWidget chart(&range);
  draw(state, chart);
}
BENCHMARK(BM_Lanes)->Unit(benchmark::kMillisecond);

void BM_Scatter(benchmark::State& state) {
  ParetoWidget chart;
  draw(state, chart);
}
BENCHMARK(BM_Scatter)->Unit(benchmark::kMillisecond);

/// New data, as while a slider moves.
void BM_TakeSnapshot(benchmark::State& state) {
  TimeRange range;
  MemoryTimelineWidget memory(&range);
  for (auto _ : state) memory.set_snapshot(snapshot());
}
BENCHMARK(BM_TakeSnapshot)->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  if (qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
  QApplication application(argc, argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
