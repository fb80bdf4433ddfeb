#pragma once

// A picture of the window without anybody looking: for the documents, and for tests.

#include <QImage>
#include <QSize>
#include <QString>

#include "gui/state/inputs.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

struct ScreenshotRequest {
  QString output;             ///< PNG.
  QString file;               ///< The file to open: a plan, a project, a model, or "example:N".
  GivenOptions options;       ///< Over what `file` says.
  QString baseline;           ///< As `file`: its answer is pinned; empty: none.
  QString measured;           ///< The measurement to lay over the prediction: a report, a trace, a snapshot; empty:
                              ///< nothing.
  bool is_searching = false;  ///< Takes the picture once there is a first answer, while the search goes on.
  QString view;               ///< One of MainWindow::views(); "step-by-step:40": at that instruction; empty: as it
                              ///< opens.
  QSize size{1360, 860};
  bool has_palette = false;  ///< At most 256 colors: a third of the bytes.
  ThemeChoice theme = ThemeChoice::Light;
};

/// With the colors that are used most, where colors that the eye hardly tells apart count as one.
QImage with_palette(const QImage& picture, std::size_t most_colors = 256);

/// Opens, waits for the whole answer, and writes the picture. Returns the exit code; what is wrong is said on stderr.
int take_screenshot(const ScreenshotRequest& request, const std::string& library);

}  // namespace fsdp::gui
