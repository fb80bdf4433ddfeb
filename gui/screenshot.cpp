#include "gui/screenshot.h"

#include <QCoreApplication>
#include <QElapsedTimer>
#include <QEventLoop>
#include <QPixmap>
#include <QTimer>
#include <cstdio>

#include "gui/main_window.h"

namespace fsdp::gui {

namespace {

constexpr int kLongestWaitMilliseconds = 120'000;

int fail(const QString& text) {
  std::fputs(("fsdp-plan-gui: " + text + "\n").toUtf8().constData(), stderr);
  return 2;
}

/// Lets events be handled until the newest inputs are answered.
bool wait_for_answer(AppState& state) {
  QElapsedTimer timer;
  timer.start();
  QCoreApplication::processEvents();
  while (state.is_busy() && timer.elapsed() < kLongestWaitMilliseconds) {
    QCoreApplication::processEvents(QEventLoop::WaitForMoreEvents, 100);
  }
  return !state.is_busy();
}

void settle() {
  for (int i = 0; i < 5; ++i) QCoreApplication::processEvents();
}

}  // namespace

int take_screenshot(const ScreenshotRequest& request, const std::string& library) {
  MainWindow window(library);
  window.set_theme(request.theme);
  window.resize(request.size);
  window.show();
  if (request.file.startsWith("example:")) {
    window.open_example(request.file.mid(8).toInt());
  } else if (!request.file.isEmpty() && !window.open_file(request.file)) {
    return fail(QString("%1 cannot be opened.").arg(request.file));
  }
  if (!wait_for_answer(window.state())) return fail("The answer took too long.");
  if (!request.view.isEmpty() && !window.show_view(request.view)) {
    return fail(QString("There is no view \"%1\". There are: %2.").arg(request.view, window.views().join(", ")));
  }
  settle();
  if (!window.grab().save(request.output, "PNG")) return fail(QString("%1 cannot be written.").arg(request.output));
  return window.state().errors().empty() ? 0 : 1;
}

}  // namespace fsdp::gui
