#pragma once

// The contents of the window as one page for a browser, to send to somebody who has no window.

#include <QString>
#include <span>

#include "gui/charts/plot_widget.h"
#include "gui/state/inputs.h"
#include "gui/state/snapshot.h"

namespace fsdp::gui {

/// An HTML page that needs no other file: the verdict, the command with the same answer, the charts as they are on the
/// screen, and the whole answer in words.
QString page_to_share(const Inputs& inputs, const Snapshot& shown, std::span<PlotWidget* const> charts);

}  // namespace fsdp::gui
