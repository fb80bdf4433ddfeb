#pragma once

// Common drawing of the charts: axes, grid, hatching, legends, and labels with their own background.

#include <QPainter>
#include <QPainterPath>
#include <QString>
#include <vector>

#include "gui/charts/chart_axis.h"
#include "gui/theme/figure_text.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

QString name_of_unit(const std::string& unit);  ///< "root" for "".

/// A pen whose width is the same at every scale.
QPen hairline(const QColor& color, qreal width = 1, Qt::PenStyle style = Qt::SolidLine);
QColor with_alpha(QColor color, qreal alpha);
QColor mixed(const QColor& a, const QColor& b, qreal share_of_b);
/// Black or white, whichever reads better on a color.
QColor text_on(const QColor& ground);

/// Whether the target is made of pixels; false for SVG and PDF, which are made of shapes.
bool draws_pixels(const QPainter& painter);

/// Lines from bottom left to top right inside a shape. They are drawn as lines, not as a pattern, so that they stay
/// lines in SVG and PDF.
void draw_hatch(QPainter& painter, const QPainterPath& shape, const QColor& color, qreal distance = 6);

/// Labels below the plot and grid lines through it.
void draw_time_axis(QPainter& painter, const QRectF& plot, const ChartAxis& axis, const std::vector<Tick>& ticks,
                    const Theme& theme, const QString& title);
/// Labels at the left of the plot and grid lines through it.
void draw_value_axis(QPainter& painter, const QRectF& plot, const ChartAxis& axis, const std::vector<Tick>& ticks,
                     const Theme& theme);

struct LegendEntry {
  QString text;
  QColor color;  ///< Invalid for a heading, which has no swatch.
  bool is_hatched = false;
  bool is_line = false;
  Qt::PenStyle style = Qt::SolidLine;
  enum class Mark { Square, Dot, Ring, Target } mark = Mark::Square;  ///< The swatch of an entry that is not a line.
};
/// Draws rows from the top left and returns their height. If `painter` is null it only measures.
qreal draw_legend(QPainter* painter, const QFont& font, const QRectF& bounds, const std::vector<LegendEntry>& entries,
                  const Theme& theme);

/// A text with its own background, inside `bounds`, with its nearest corner next to `at`. It stays below `top` if there
/// is room.
struct NoteLine {
  QString text;
  QString value;
  QColor swatch;  ///< Invalid if there is none.
  bool is_strong = false;
  bool is_hatched = false;
};
void draw_note(QPainter& painter, const QRectF& bounds, const QPointF& at, const std::vector<NoteLine>& lines,
               const Theme& theme, qreal top = 0);

/// The values of an axis with room for such a note above `limit`, if `limit` lies among them and the plot is high
/// enough.
ValueRange with_room_for_note(ValueRange values, double limit, const QRectF& plot, const QFont& font);

/// Labels the lower edge of a zone, just above it at the right.
void draw_note_on_edge(QPainter& painter, const QRectF& zone, const QString& text, const QColor& color,
                       const Theme& theme);

/// One sentence in the middle, for a chart without data.
void draw_empty(QPainter& painter, const QRectF& bounds, const QString& text, const Theme& theme);

}  // namespace fsdp::gui
