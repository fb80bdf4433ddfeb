#pragma once

// A real prediction for tests of what is drawn.

#include <QWidget>

#include "gui/charts/plot_widget.h"
#include "gui/state/snapshot.h"

namespace fsdp::gui {

/// GPT-2 small on four GPUs of 16 GiB, in units of its layers, which may be checkpointed. Predicted once.
SnapshotPtr gpt2_snapshot(bool checkpointed = false);

/// The same with plans of other batches of layers to choose from, some of which do not fit.
SnapshotPtr with_plans(const SnapshotPtr& snapshot);

/// What a widget shows, at a scale.
QImage picture_of(PlotWidget& widget, const QSize& size, qreal scale);
/// Writes a picture for people into the folder of FSDP_CHART_PICTURES, when that is set.
void keep(const QImage& image, const QString& name);

}  // namespace fsdp::gui
