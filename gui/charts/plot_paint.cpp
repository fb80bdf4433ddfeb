#include "gui/charts/plot_paint.h"

#include <QFontMetricsF>
#include <QPaintEngine>
#include <algorithm>
#include <cmath>

#include "core/base/parse_units.h"
#include "gui/charts/chart_text.h"

namespace fsdp::gui {

namespace {

constexpr qreal kSwatch = 11;
constexpr qreal kGap = 6;

void draw_swatch(QPainter& painter, const QRectF& box, const QColor& color, bool is_hatched) {
  painter.fillRect(box, color);
  if (!is_hatched) return;
  QPainterPath path;
  path.addRect(box);
  draw_hatch(painter, path, text_on(color), 4);
}

void draw_mark(QPainter& painter, const QPointF& at, const LegendEntry& entry) {
  const bool is_dot = entry.mark == LegendEntry::Mark::Dot;
  const qreal radius = entry.mark == LegendEntry::Mark::Target ? 5.5 : 4;
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(is_dot ? QPen(Qt::NoPen) : hairline(entry.color, 1.6));
  painter.setBrush(is_dot ? QBrush(entry.color) : QBrush(Qt::NoBrush));
  painter.drawEllipse(at, radius, radius);
  painter.restore();
}

}  // namespace

QString name_of_unit(const std::string& unit) {
  return unit.empty() ? QStringLiteral("root") : QString::fromStdString(unit);
}

QPen hairline(const QColor& color, qreal width, Qt::PenStyle style) {
  QPen pen(color, width, style);
  pen.setCosmetic(true);
  pen.setCapStyle(Qt::FlatCap);
  pen.setJoinStyle(Qt::MiterJoin);
  return pen;
}

QColor with_alpha(QColor color, qreal alpha) {
  color.setAlphaF(static_cast<float>(alpha));
  return color;
}

QColor mixed(const QColor& a, const QColor& b, qreal share_of_b) {
  const auto mix = [&](int x, int y) { return static_cast<int>(std::lround(x + (y - x) * share_of_b)); };
  return {mix(a.red(), b.red()), mix(a.green(), b.green()), mix(a.blue(), b.blue())};
}

QColor text_on(const QColor& ground) {
  const double light = 0.2126 * ground.redF() + 0.7152 * ground.greenF() + 0.0722 * ground.blueF();
  return light > 0.42 ? QColor(0x14, 0x18, 0x1d) : QColor(0xff, 0xff, 0xff);
}

bool draws_pixels(const QPainter& painter) {
  return painter.paintEngine() != nullptr && painter.paintEngine()->type() == QPaintEngine::Raster;
}

void draw_hatch(QPainter& painter, const QPainterPath& shape, const QColor& color, qreal distance) {
  // Only the visible part of a shape that is far larger than the picture.
  const QRectF box = shape.boundingRect() & painter.transform().inverted().mapRect(QRectF(painter.viewport()));
  if (box.isEmpty()) return;
  painter.save();
  painter.setClipPath(shape, Qt::IntersectClip);
  painter.setPen(hairline(with_alpha(color, 0.45)));
  painter.setRenderHint(QPainter::Antialiasing);
  // Anchored at the origin, so that neighboring shapes continue each other's lines.
  const qreal first = std::floor((box.left() + box.top()) / distance) * distance;
  std::vector<QLineF> lines;
  for (qreal sum = first; sum <= box.right() + box.bottom(); sum += distance) {
    lines.emplace_back(sum - box.top(), box.top(), sum - box.bottom(), box.bottom());
  }
  painter.drawLines(lines.data(), static_cast<int>(lines.size()));
  painter.restore();
}

void draw_time_axis(QPainter& painter, const QRectF& plot, const ChartAxis& axis, const std::vector<Tick>& ticks,
                    const Theme& theme, const QString& title) {
  const QFontMetricsF metrics(painter.font());
  const qreal title_width = metrics.horizontalAdvance(title);
  std::vector<WantedLabel> wanted;
  for (const Tick& tick : ticks) {
    const qreal x = axis.to_pixel(tick.value);
    painter.setPen(hairline(theme.grid));
    painter.drawLine(QPointF(x, plot.top()), QPointF(x, plot.bottom() + 4));
    wanted.push_back({x, metrics.horizontalAdvance(QString::fromStdString(tick.label)), 0});
  }
  painter.setPen(theme.text_weak);
  const qreal right = title.isEmpty() ? plot.right() + 12 : plot.right() - title_width - 8;
  for (const PlacedLabel& label : place_labels(wanted, plot.left() - 8, right, 10)) {
    painter.drawText(QPointF(label.left, plot.bottom() + 6 + metrics.ascent()),
                     QString::fromStdString(ticks[label.index].label));
  }
  if (!title.isEmpty()) {
    painter.drawText(QPointF(plot.right() - title_width, plot.bottom() + 6 + metrics.ascent()), title);
  }
}

void draw_value_axis(QPainter& painter, const QRectF& plot, const ChartAxis& axis, const std::vector<Tick>& ticks,
                     const Theme& theme) {
  const QFontMetricsF metrics(painter.font());
  for (const Tick& tick : ticks) {
    const qreal y = axis.to_pixel(tick.value);
    painter.setPen(hairline(theme.grid));
    painter.drawLine(QPointF(plot.left() - 4, y), QPointF(plot.right(), y));
    painter.setPen(theme.text_weak);
    const QString text = QString::fromStdString(tick.label);
    painter.drawText(QPointF(plot.left() - 8 - metrics.horizontalAdvance(text), y + metrics.capHeight() / 2), text);
  }
}

qreal draw_legend(QPainter* painter, const QFont& font, const QRectF& bounds, const std::vector<LegendEntry>& entries,
                  const Theme& theme) {
  const QFontMetricsF metrics(font);
  const qreal row = std::ceil(std::max(metrics.height(), kSwatch) + 5);
  qreal x = bounds.left();
  qreal y = bounds.top();
  for (const LegendEntry& entry : entries) {
    const qreal swatch = entry.color.isValid() ? kSwatch + kGap : 0;
    const qreal width = swatch + metrics.horizontalAdvance(entry.text) + 14;
    if (x > bounds.left() && x + width - 14 > bounds.right()) {
      x = bounds.left();
      y += row;
    }
    if (painter != nullptr) {
      const QRectF box(x, y + (row - kSwatch) / 2, kSwatch, kSwatch);
      if (!entry.color.isValid()) {
        // A heading.
      } else if (entry.is_line) {
        painter->setPen(hairline(entry.color, 2, entry.style));
        painter->drawLine(QPointF(box.left() - 2, box.center().y()), QPointF(box.right() + 2, box.center().y()));
      } else if (entry.mark == LegendEntry::Mark::Square) {
        draw_swatch(*painter, box, entry.color, entry.is_hatched);
      } else {
        draw_mark(*painter, box.center(), entry);
      }
      painter->setPen(entry.color.isValid() ? theme.text : theme.text_weak);
      painter->drawText(QPointF(x + swatch, y + (row + metrics.capHeight()) / 2), entry.text);
    }
    x += width;
  }
  return entries.empty() ? 0 : y + row - bounds.top();
}

void draw_note(QPainter& painter, const QRectF& bounds, const QPointF& at, const std::vector<NoteLine>& lines,
               const Theme& theme, qreal top) {
  if (lines.empty()) return;
  QFont strong = painter.font();
  strong.setBold(true);
  const QFontMetricsF plain_metrics(painter.font());
  const QFontMetricsF strong_metrics(strong);
  const qreal row = std::ceil(plain_metrics.height() + 2);
  qreal texts = 0;
  qreal values = 0;
  bool has_swatch = false;
  for (const NoteLine& line : lines) has_swatch = has_swatch || line.swatch.isValid();
  for (const NoteLine& line : lines) {
    const QFontMetricsF& metrics = line.is_strong ? strong_metrics : plain_metrics;
    // A line without a value may run through both columns.
    const qreal width = metrics.horizontalAdvance(line.text) + (line.swatch.isValid() ? kSwatch + kGap : 0);
    if (!line.value.isEmpty()) texts = std::max(texts, width);
    values = std::max(values, metrics.horizontalAdvance(line.value));
  }
  qreal width = texts + (values > 0 ? values + 16 : 0);
  for (const NoteLine& line : lines) {
    const QFontMetricsF& metrics = line.is_strong ? strong_metrics : plain_metrics;
    if (line.value.isEmpty()) width = std::max(width, metrics.horizontalAdvance(line.text));
  }
  constexpr qreal kPad = 8;
  const QSizeF size(std::ceil(width) + 2 * kPad, row * static_cast<qreal>(lines.size()) + 2 * kPad - 2);
  QPointF corner(at.x() + 14, at.y() + 14);
  if (corner.x() + size.width() > bounds.right()) corner.setX(at.x() - 14 - size.width());
  if (corner.y() + size.height() > bounds.bottom()) corner.setY(at.y() - 14 - size.height());
  corner.setX(std::clamp(corner.x(), bounds.left(), std::max(bounds.left(), bounds.right() - size.width())));
  const qreal lowest = std::max(bounds.top(), bounds.bottom() - size.height());
  corner.setY(std::clamp(corner.y(), std::clamp(top, bounds.top(), lowest), lowest));
  const QRectF box(corner, size);
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(hairline(mixed(theme.grid, theme.text_weak, 0.4)));
  painter.setBrush(theme.panel);
  painter.drawRoundedRect(box, 5, 5);
  const QFont plain = painter.font();
  qreal y = box.top() + kPad;
  for (const NoteLine& line : lines) {
    painter.setFont(line.is_strong ? strong : plain);
    const QFontMetricsF& metrics = line.is_strong ? strong_metrics : plain_metrics;
    qreal x = box.left() + kPad;
    if (line.swatch.isValid()) {
      draw_swatch(painter, QRectF(x, y + (row - kSwatch) / 2, kSwatch, kSwatch), line.swatch, line.is_hatched);
      x += kSwatch + kGap;
    } else if (has_swatch && !line.value.isEmpty() && !line.is_strong) {
      x += kSwatch + kGap;
    }
    painter.setPen(theme.text);
    painter.drawText(QPointF(x, y + metrics.ascent() + 1), line.text);
    if (!line.value.isEmpty()) {
      const qreal right = box.right() - kPad - metrics.horizontalAdvance(line.value);
      painter.drawText(QPointF(right, y + metrics.ascent() + 1), line.value);
    }
    y += row;
  }
  painter.restore();
}

ValueRange with_room_for_note(ValueRange values, double limit, const QRectF& plot, const QFont& font) {
  const double above_begin = limit - values.begin;
  const qreal line = QFontMetricsF(font).height() + 3;
  if (above_begin > 0 && limit < values.end && plot.height() > 4 * line) {
    values.end = std::max(values.end, values.begin + above_begin * plot.height() / (plot.height() - line));
  }
  return values;
}

void draw_note_on_edge(QPainter& painter, const QRectF& zone, const QString& text, const QColor& color,
                       const Theme& theme) {
  const QFontMetricsF metrics(painter.font());
  const qreal width = metrics.horizontalAdvance(text) + 12;
  const QRectF box(zone.right() - width - 4, zone.bottom() - metrics.height() - 2, width, metrics.height());
  painter.setPen(Qt::NoPen);
  painter.setBrush(theme.background);
  painter.drawRoundedRect(box, 3, 3);
  painter.setPen(color);
  painter.drawText(box, Qt::AlignCenter, text);
}

void draw_empty(QPainter& painter, const QRectF& bounds, const QString& text, const Theme& theme) {
  painter.setPen(theme.text_weak);
  painter.drawText(bounds.adjusted(16, 16, -16, -16), Qt::AlignCenter | Qt::TextWordWrap, text);
}

}  // namespace fsdp::gui
