#pragma once

// A picture of the window without a display, for documents and tests.

#include <QImage>
#include <QSize>
#include <QString>

#include "gui/state/inputs.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

struct ScreenshotRequest {
  QString output;             ///< PNG.
  QString file;               ///< The file to open: a plan, a project, a model, or "example:N".
  GivenOptions options;       ///< Applied over the contents of `file`.
  QString baseline;           ///< A file like `file`: its answer is pinned. Empty for none.
  QString measured;           ///< The measurement to lay over the prediction: a report, a trace, a snapshot. Empty for
                              ///< none.
  bool is_searching = false;  ///< Takes the picture once there is a first answer, while the search goes on.
  QString view;               ///< One of MainWindow::views(); "step-by-step:40": at that instruction. Empty for the
                              ///< initial view.
  QSize size{1360, 860};
  bool has_palette = false;  ///< At most 256 colors: a third of the bytes.
  ThemeChoice theme = ThemeChoice::Light;
};

/// The picture in its most used colors; colors that the eye can hardly tell apart count as one.
QImage with_palette(const QImage& picture, std::size_t most_colors = 256);

/// Opens the file, waits for the whole answer, and writes the picture. Prints errors on stderr. Returns the exit code.
int take_screenshot(const ScreenshotRequest& request, const std::string& library);

}  // namespace fsdp::gui
