#pragma once

// A real prediction for tests of what is drawn.

#include <QWidget>

#include "gui/plot_widget.h"
#include "gui/snapshot.h"

namespace fsdp::gui {

/// GPT-2 small on four T4, in units of its layers; `prefetch` in backward, `checkpointed` layers.
SnapshotPtr gpt2_snapshot(bool checkpointed = false);

/// What a widget shows, at a scale.
QImage picture_of(PlotWidget& widget, const QSize& size, qreal scale);
/// Writes a picture for people into the folder of FSDP_CHART_PICTURES, when that is set.
void keep(const QImage& image, const QString& name);

}  // namespace fsdp::gui
