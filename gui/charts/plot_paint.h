#pragma once

// Common drawing of the charts: axes, grid, hatching, legends, labels on a ground of their own.

#include <QPainter>
#include <QPainterPath>
#include <QString>
#include <vector>

#include "gui/charts/chart_axis.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

QString text_of(Bytes bytes);                   ///< "11.8 GiB", as the command line says it.
QString text_of(Seconds time);                  ///< "12.5 ms".
QString name_of_unit(const std::string& unit);  ///< "root" for "".

/// A pen whose width is the same at every scale.
QPen hairline(const QColor& color, qreal width = 1, Qt::PenStyle style = Qt::SolidLine);
QColor with_alpha(QColor color, qreal alpha);
QColor mixed(const QColor& a, const QColor& b, qreal share_of_b);
/// Black or white, whichever reads better on a color.
QColor text_on(const QColor& ground);

/// Whether pixels are drawn; else shapes, for SVG and PDF.
bool draws_pixels(const QPainter& painter);

/// Lines from bottom left to top right inside of a shape: lines, not a pattern, so that they stay lines in SVG and PDF.
void draw_hatch(QPainter& painter, const QPainterPath& shape, const QColor& color, qreal distance = 6);

/// Labels below the plot and lines through it.
void draw_time_axis(QPainter& painter, const QRectF& plot, const ChartAxis& axis, const std::vector<Tick>& ticks,
                    const Theme& theme, const QString& title);
/// Labels at its left and lines through it.
void draw_value_axis(QPainter& painter, const QRectF& plot, const ChartAxis& axis, const std::vector<Tick>& ticks,
                     const Theme& theme);

struct LegendEntry {
  QString text;
  QColor color;  ///< Invalid: a heading, without a swatch.
  bool is_hatched = false;
  bool is_line = false;
  Qt::PenStyle style = Qt::SolidLine;
  enum class Mark { Square, Dot, Ring, Target } mark = Mark::Square;  ///< For what is no line.
};
/// In rows from the top left; returns their height. With `painter` null it only measures.
qreal draw_legend(QPainter* painter, const QFont& font, const QRectF& bounds, const std::vector<LegendEntry>& entries,
                  const Theme& theme);

/// A text on a ground of its own, inside of `bounds`, with its nearest corner beside `at`. It stays below `top` where
/// it has the room.
struct NoteLine {
  QString text;
  QString value;
  QColor swatch;  ///< Invalid: none.
  bool is_strong = false;
  bool is_hatched = false;
};
void draw_note(QPainter& painter, const QRectF& bounds, const QPointF& at, const std::vector<NoteLine>& lines,
               const Theme& theme, qreal top = 0);

/// The values of an axis with room for such a note above `limit`, where it lies among them and the plot is high enough.
ValueRange with_room_for_note(ValueRange values, double limit, const QRectF& plot, const QFont& font);

/// Labels the lower edge of a zone, just above it at the right.
void draw_note_on_edge(QPainter& painter, const QRectF& zone, const QString& text, const QColor& color,
                       const Theme& theme);

/// One sentence in the middle: what to do when there is nothing to draw.
void draw_empty(QPainter& painter, const QRectF& bounds, const QString& text, const Theme& theme);

}  // namespace fsdp::gui
