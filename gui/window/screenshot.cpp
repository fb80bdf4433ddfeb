#include "gui/window/screenshot.h"

#include <QApplication>
#include <QElapsedTimer>
#include <QEventLoop>
#include <QFileInfo>
#include <QFontDatabase>
#include <QImage>
#include <QPixmap>
#include <QTimer>
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <vector>

#include "gui/window/main_window.h"

namespace fsdp::gui {

namespace {

constexpr int kLongestWaitMilliseconds = 120'000;

int fail(const QString& text) {
  std::fputs(("fsdp-plan-gui: " + text + "\n").toUtf8().constData(), stderr);
  return 2;
}

/// Lets events be handled until a condition holds. False if it took too long.
template <class Condition>
bool wait_until(const Condition& condition) {
  QElapsedTimer timer;
  timer.start();
  QCoreApplication::processEvents();
  while (!condition() && timer.elapsed() < kLongestWaitMilliseconds) {
    QCoreApplication::processEvents(QEventLoop::WaitForMoreEvents, 100);
  }
  return condition();
}

void settle() {
  for (int i = 0; i < 5; ++i) QCoreApplication::processEvents();
}

bool open(MainWindow& window, const QString& file, const GivenOptions& options = {}) {
  if (!file.startsWith("example:")) return window.open_file(file, options);
  window.open_example(file.mid(8).toInt());
  return true;
}

/// Brings the window into the state of the picture. Returns the error. Empty if there is none.
QString arrange(MainWindow& window, const ScreenshotRequest& request) {
  AppState& state = window.state();
  const auto is_answered = [&] { return !state.is_busy(); };
  const QString took_too_long = QStringLiteral("The answer took too long.");
  if (!request.baseline.isEmpty()) {
    if (!open(window, request.baseline)) return QString("%1 cannot be opened.").arg(request.baseline);
    if (!wait_until(is_answered)) return took_too_long;
  }
  const SnapshotPtr baseline = request.baseline.isEmpty() ? nullptr : state.snapshot();
  const bool is_open = request.file.isEmpty() || open(window, request.file, request.options);
  if (!is_open) return QString("%1 cannot be opened.").arg(request.file);
  const bool is_there =
      request.is_searching ? wait_until([&] { return state.snapshot() || is_answered(); }) : wait_until(is_answered);
  if (!is_there || !wait_until([&] { return !window.is_loading(); })) return took_too_long;
  const bool is_file = !request.baseline.startsWith("example:");
  if (baseline) state.set_baseline(baseline, is_file ? QFileInfo(request.baseline).fileName() : QString());
  if (!request.measured.isEmpty()) {
    window.load_measured(request.measured);
    if (!wait_until([&] { return !window.is_loading(); })) return took_too_long;
  }
  const QString view = request.view.section(':', 0, 0);
  if (!view.isEmpty() && !window.show_view(view)) {
    return QString("There is no view \"%1\". There are: %2.").arg(view, window.views().join(", "));
  }
  if (request.view.contains(':'))
    window.findChild<TeachingWidget*>("teaching")->set_frame(request.view.section(':', 1).toInt());
  return {};
}

}  // namespace

QImage with_palette(const QImage& picture, std::size_t most_colors) {
  struct Bucket {
    std::int64_t count = 0;
    std::array<std::int64_t, 3> sum{};
  };
  std::map<int, Bucket> buckets;
  for (int y = 0; y < picture.height(); ++y) {
    for (int x = 0; x < picture.width(); ++x) {
      const QRgb color = picture.pixel(x, y);
      Bucket& bucket = buckets[(qRed(color) >> 3 << 10) | (qGreen(color) >> 3 << 5) | (qBlue(color) >> 3)];
      ++bucket.count;
      bucket.sum[0] += qRed(color);
      bucket.sum[1] += qGreen(color);
      bucket.sum[2] += qBlue(color);
    }
  }
  std::vector<Bucket> used;
  for (const auto& [key, bucket] : buckets) used.push_back(bucket);
  std::stable_sort(used.begin(), used.end(), [](const Bucket& a, const Bucket& b) { return a.count > b.count; });
  QList<QRgb> colors;
  for (std::size_t i = 0; i < std::min(most_colors, used.size()); ++i) {
    const auto mean = [&](std::size_t channel) { return static_cast<int>(used[i].sum[channel] / used[i].count); };
    colors.append(qRgb(mean(0), mean(1), mean(2)));
  }
  return picture.convertToFormat(QImage::Format_Indexed8, colors, Qt::ThresholdDither | Qt::AvoidDither);
}

int take_screenshot(const ScreenshotRequest& request, const std::string& library) {
  // The same on every machine that has this font.
  if (QFontDatabase::families().contains("DejaVu Sans")) QApplication::setFont(QFont("DejaVu Sans", 9));
  MainWindow window(library);
  window.set_theme(request.theme);
  window.resize(request.size);
  window.show();
  const QString wrong = arrange(window, request);
  settle();
  // A picture of an error is a picture too.
  constexpr int kSmallestFile = 0;
  const QImage picture = window.grab().toImage().convertToFormat(QImage::Format_RGB32);
  const bool is_written =
      (request.has_palette ? with_palette(picture) : picture).save(request.output, "PNG", kSmallestFile);
  if (!wrong.isEmpty()) return fail(wrong);
  if (!is_written) return fail(QString("%1 cannot be written.").arg(request.output));
  return window.state().errors().empty() ? 0 : 1;
}

}  // namespace fsdp::gui
