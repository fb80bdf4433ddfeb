#pragma once

// Charts and tables as files.

#include <QAbstractTableModel>
#include <QByteArray>
#include <QSize>
#include <QString>
#include <functional>

#include "core/base/result.h"
#include "gui/charts/plot_widget.h"

namespace fsdp::gui {

/// Draws into a rectangle whose top left corner is the origin.
using DrawChart = std::function<void(QPainter&, const QRectF&)>;

/// Writes a picture: PNG (`scale` pixels for each of `size`), SVG or PDF, by the end of the name. Errors: another
/// ending, or the file cannot be written.
Result<void> save_picture(const QString& path, const QSize& size, qreal scale, const QString& title,
                          const DrawChart& draw);
/// Writes a chart in the same way, at its own size if `size` is empty.
Result<void> save_chart(PlotWidget& chart, const QString& path, const QSize& size = {}, qreal scale = 2);
/// A chart at its own size as the bytes of a PNG.
QByteArray png_of(PlotWidget& chart, qreal scale = 2);

/// A table as text. CSV (RFC 4180) has the exact values, Markdown the displayed texts.
QString to_csv(const QAbstractItemModel& table);
QString to_markdown(const QAbstractItemModel& table);
/// Writes a table as CSV or Markdown by the end of the name, .csv or .md.
Result<void> save_table(const QAbstractItemModel& table, const QString& path);

}  // namespace fsdp::gui
