// Drawing of the memory chart. Everything below the capacity adds up to the device's memory: first the memory outside
// of PyTorch's allocator, then the live tensors by category, then, up to the line of reserved memory, the allocator's
// overhead. The legend lists the bytes of each term at the peak, and they add up to the device.
//
// If the memory outside would fill most of the chart, as for a tiny model, the axis is cut: it begins shortly below the
// first curve, at the same scale; a torn edge runs through the whole width and the band names the cut. The ticks still
// count from 0.

#include <algorithm>
#include <cmath>

#include "gui/charts/chart_text.h"
#include "gui/charts/memory_timeline_widget.h"
#include "gui/charts/plot_paint.h"

namespace fsdp::gui {

namespace {

constexpr qreal kLeft = 108;
constexpr qreal kRight = 14;
constexpr qreal kMinimap = 20;
constexpr qreal kLeastPlot = 64;
// Below this height the overview, and somewhat lower the legend, would take room that the curves need.
constexpr qreal kGoodPlot = 104;
// A category that never reaches one pixel would only lengthen the legend; the note at the pointer lists it.
constexpr double kLeastShown = 1.0 / 400;
// A floor that takes more of the axis than this is cut.
constexpr double kMostFloor = 0.5;
// Height of the remainder, in lines of text.
constexpr qreal kCutLines = 2.2;
// If the device is filled to less than this share, its capacity is not drawn; a note gives it.
constexpr double kLeastFilled = 0.3;

QColor floor_color(const Theme& theme) {
  return mixed(theme.background, theme.text_weak, 0.35);
}

/// Memory that the allocator holds and no tensor uses, drawn above the tensors.
QColor overhead_color(const Theme& theme) {
  return mixed(theme.background, theme.text_weak, 0.16);
}

QPolygonF steps_of(const std::vector<StackColumn>& columns, const ChartAxis& axis,
                   const std::vector<std::int64_t>& values, std::int64_t floor) {
  QPolygonF line;
  line.reserve(static_cast<int>(2 * columns.size()));
  for (const StackColumn& column : columns) {
    const qreal y = axis.to_pixel(static_cast<double>(floor + values[column.moment]));
    line << QPointF(column.begin, y) << QPointF(column.end, y);
  }
  return line;
}

}  // namespace

// A low window gives the room to the curves: first the overview goes, then the legend.
MemoryTimelineWidget::Parts MemoryTimelineWidget::parts_of(const QRectF& bounds) const {
  const qreal line = QFontMetricsF(font()).height();
  Parts parts;
  parts.above = 8 + line + 6;
  parts.below = line + 12;
  if (!has_curve()) return parts;
  const qreal legend_height = draw_legend(nullptr, font(), bounds.adjusted(12, 4, -kRight, 0), legend(), theme());
  const auto remains = [&](qreal more) { return bounds.height() - parts.above - parts.below - more; };
  parts.has_legend = remains(legend_height) >= kGoodPlot - kMinimap;
  if (parts.has_legend) parts.above += legend_height;
  parts.has_minimap = remains(kMinimap + 8) >= kGoodPlot;
  if (parts.has_minimap) parts.below += kMinimap + 8;
  return parts;
}

QRectF MemoryTimelineWidget::minimap_of(const QRectF& bounds) const {
  if (!parts_of(bounds).has_minimap) return {};
  return {bounds.left() + kLeft, bounds.bottom() - kMinimap - 6, bounds.width() - kLeft - kRight, kMinimap};
}

std::vector<LegendEntry> MemoryTimelineWidget::legend() const {
  std::vector<LegendEntry> entries = {{tr("at the peak:"), {}}};
  for (auto category = kStackOrder.rbegin(); category != kStackOrder.rend(); ++category) {
    const auto c = static_cast<std::size_t>(*category);
    if (static_cast<double>(most_live_[c]) < kLeastShown * shown_bytes().width()) continue;
    const QString name = QString::fromStdString(std::string(name_of(*category)));
    const Bytes bytes(curve().live[c][peak_]);
    entries.push_back(
        {bytes == Bytes(0) ? name : name + " " + text_of(bytes), theme().category[c], theme().is_hatched[c]});
  }
  entries.push_back({tr("outside PyTorch %1").arg(text_of(snapshot()->curves.context)), floor_color(theme())});
  const Bytes overhead(curve().reserved[peak_] - curve().total[peak_]);
  entries.push_back({tr("allocator overhead %1").arg(text_of(overhead)), overhead_color(theme())});
  entries.push_back(
      {tr("reserved, at most %1").arg(text_of(Bytes(most_reserved_))), theme().text, false, true, Qt::DotLine});
  if (const Bytes margin = snapshot()->report.memory.margin; margin > Bytes(0)) {
    entries.push_back({tr("safety margin %1").arg(text_of(margin)), theme().bad, false, true, Qt::DashLine});
  }
  if (ghost_.size() > 0) entries.push_back({tr("baseline"), theme().baseline, false, true, Qt::DashLine});
  if (measured_.size() > 0) {
    const QString lasts = overlay_->stretch == 1 ? QString() : tr(", a step of %1").arg(text_of(overlay_->step));
    const QString where = was_on_cpu(*overlay_) ? tr("measured on CPU") : tr("measured");
    entries.push_back({where + lasts, theme().measured, false, true, Qt::SolidLine});
  }
  return entries;
}

QRectF MemoryTimelineWidget::plot_area(const QRectF& bounds) const {
  const Parts parts = parts_of(bounds);
  return bounds.adjusted(kLeft, parts.above, -kRight, -parts.below);
}

std::int64_t MemoryTimelineWidget::floor() const {
  const Bytes own = snapshot()->curves.context;
  return ghost_.size() == 0 ? own.count() : std::min(own, baseline()->curves.context).count();
}

bool MemoryTimelineWidget::is_cut() const {
  return static_cast<double>(floor()) > kMostFloor * static_cast<double>(highest());
}

ValueRange MemoryTimelineWidget::shown_bytes() const {
  const double low = is_cut() ? static_cast<double>(floor()) : 0;
  const auto high = static_cast<double>(highest());
  return {low, std::max(low + 1, high + (high - low) / (is_cut() ? 6 : 12))};
}

std::int64_t MemoryTimelineWidget::highest() const {
  const MemoryReport& memory = snapshot()->report.memory;
  std::int64_t highest = std::max(memory.peaks.device.count(), snapshot()->curves.context.count() + most_reserved_);
  if (ghost_.size() > 0) highest = std::max(highest, baseline()->report.memory.peaks.device.count());
  if (measured_.size() > 0) {
    const std::int64_t context = snapshot()->curves.context.count();
    highest = std::max(highest, context + overlay_->allocated[measured_.highest(0, measured_.size())]);
  }
  const std::int64_t budget = memory.budget.count();
  if (static_cast<double>(highest) > kLeastFilled * static_cast<double>(budget)) highest = std::max(highest, budget);
  return highest;
}

ChartAxis MemoryTimelineWidget::value_axis(const QRectF& plot) const {
  const auto capacity = static_cast<double>(snapshot()->report.memory.budget.count());
  ValueRange range = shown_bytes();
  if (is_cut()) {
    const qreal band = std::min(plot.height() / 4, kCutLines * QFontMetricsF(font()).height());
    range.begin = std::max(0.0, range.begin - range.width() * band / (plot.height() - band));
  }
  return {with_room_for_note(range, capacity, plot, font()), plot.bottom(), -plot.height()};
}

void MemoryTimelineWidget::draw_ticks(QPainter& painter, const QRectF& plot) {
  const ChartAxis values = value_axis(plot);
  const int most = std::max(2, static_cast<int>(plot.height() / 30));
  if (!is_cut()) return draw_value_axis(painter, plot, values, byte_ticks(values.values, most), theme());
  const qreal line = QFontMetricsF(font()).height();
  std::vector<Tick> ticks = byte_ticks({static_cast<double>(floor()), values.values.end}, most);
  std::erase_if(ticks, [&](const Tick& tick) { return values.to_pixel(tick.value) > plot.bottom() - line; });
  ticks.push_back({values.values.begin, "0"});
  draw_value_axis(painter, plot, values, ticks, theme());
}

// A strip of paper torn out between 0 and the first curve.
void MemoryTimelineWidget::draw_cut(QPainter& painter, const QRectF& plot) {
  if (!is_cut()) return;
  constexpr qreal kTooth = 5;
  constexpr qreal kGap = 4;
  const QFontMetricsF metrics(font());
  const qreal middle = plot.bottom() - 9;
  QPolygonF upper;
  for (qreal x = plot.left(); x <= plot.right() + kTooth; x += kTooth) {
    upper << QPointF(x, middle - kGap / 2 + (upper.size() % 2 == 0 ? kTooth / 2 : -kTooth / 2));
  }
  const QPolygonF lower = upper.translated(0, kGap);
  QPolygonF strip = upper;
  for (auto i = lower.size(); i-- > 0;) strip << lower[i];
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(Qt::NoPen);
  painter.setBrush(theme().background);
  painter.drawPolygon(strip);
  painter.setPen(hairline(theme().text_weak));
  painter.setBrush(Qt::NoBrush);
  painter.drawPolyline(upper);
  painter.drawPolyline(lower);
  painter.restore();
  const qreal top = value_axis(plot).to_pixel(static_cast<double>(floor()));
  const qreal below = middle - kTooth - kGap / 2;
  if (below - top < metrics.capHeight() + 4) return;
  const QString all = text_of(Bytes(floor()));
  painter.setPen(text_on(floor_color(theme())));
  painter.drawText(QPointF(plot.left() + 8, (top + below + metrics.capHeight()) / 2),
                   metrics.elidedText(tr("outside PyTorch %1: the axis is cut, the bands above are to scale").arg(all),
                                      Qt::ElideRight, plot.width() - 16));
}

void MemoryTimelineWidget::draw_chart(QPainter& painter, const QRectF& bounds, const QRectF& plot) {
  if (!has_curve()) {
    return draw_empty(painter, bounds, empty_text(tr("Choose a model to see its memory over one step.")), theme());
  }
  if (plot.width() < 20 || plot.height() < 20) return;
  const bool has_clock = &range() != &events_;
  const ChartAxis axis = time_axis(plot);
  const QFontMetricsF metrics(font());
  const Parts parts = parts_of(bounds);
  if (parts.has_legend) draw_legend(&painter, font(), bounds.adjusted(12, 4, -kRight, 0), legend(), theme());
  draw_ticks(painter, plot);
  const int most = std::max(2, static_cast<int>(plot.width() / 90));
  draw_time_axis(painter, plot, axis, has_clock ? time_ticks(axis.values, most) : count_ticks(axis.values, most),
                 theme(), has_clock ? QString() : tr("allocations and frees"));
  painter.save();
  painter.setClipRect(plot.adjusted(0, 0, 1, 1));
  const std::vector<StackColumn> columns =
      decimate(pyramid_, positions_, axis, std::max(1, static_cast<int>(plot.width())));
  draw_stack(painter, plot, columns);
  draw_cut(painter, plot);
  draw_lines(painter, plot, columns);
  draw_ghosts(painter, plot);
  painter.restore();
  if (has_clock) draw_phases(painter, plot);
  draw_limits(painter, plot);
  draw_peak(painter, plot);
  if (parts.has_minimap) draw_minimap(painter, minimap_of(bounds));
}

void MemoryTimelineWidget::draw_stack(QPainter& painter, const QRectF& plot, const std::vector<StackColumn>& columns) {
  const ChartAxis values = value_axis(plot);
  const std::int64_t floor = snapshot()->curves.context.count();
  painter.setPen(Qt::NoPen);
  painter.fillRect(QRectF(QPointF(plot.left(), values.to_pixel(static_cast<double>(floor))), plot.bottomRight()),
                   floor_color(theme()));
  std::vector<std::int64_t> sums(columns.size(), floor);
  std::vector<qreal> below(columns.size(), values.to_pixel(static_cast<double>(floor)));
  for (const MemoryCategory category : kStackOrder) {
    const auto c = static_cast<std::size_t>(category);
    const std::vector<std::int64_t>& live = curve().live[c];
    std::vector<qreal> above(columns.size());
    for (std::size_t i = 0; i < columns.size(); ++i) {
      sums[i] += live[columns[i].moment];
      above[i] = values.to_pixel(static_cast<double>(sums[i]));
    }
    if (above == below) continue;
    if (draws_pixels(painter))
      draw_bars(painter, columns, above, below, c);
    else
      draw_shape(painter, columns, above, below, c);
    below = std::move(above);
  }
  draw_overhead(painter, values, columns, below);
}

void MemoryTimelineWidget::draw_overhead(QPainter& painter, const ChartAxis& values,
                                         const std::vector<StackColumn>& columns, const std::vector<qreal>& below) {
  const std::int64_t floor = snapshot()->curves.context.count();
  QVector<QRectF> bars;
  bars.reserve(static_cast<int>(columns.size()));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const qreal above = values.to_pixel(static_cast<double>(floor + curve().reserved[columns[i].moment]));
    if (below[i] > above)
      bars.append(QRectF(columns[i].begin, above, columns[i].end - columns[i].begin, below[i] - above));
  }
  painter.setPen(Qt::NoPen);
  painter.setBrush(overhead_color(theme()));
  painter.drawRects(bars);
}

// On the screen, one bar for each column is faster than one shape for all.
void MemoryTimelineWidget::draw_bars(QPainter& painter, const std::vector<StackColumn>& columns,
                                     const std::vector<qreal>& above, const std::vector<qreal>& below,
                                     std::size_t category) const {
  QVector<QRectF> bars;
  bars.reserve(static_cast<int>(columns.size()));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (below[i] <= above[i]) continue;
    bars.append(QRectF(columns[i].begin, above[i], columns[i].end - columns[i].begin, below[i] - above[i]));
  }
  const QColor& color = theme().category[category];
  painter.setBrush(color);
  painter.drawRects(bars);
  if (!theme().is_hatched[category]) return;
  painter.setBrush(QBrush(with_alpha(text_on(color), 0.45), Qt::BDiagPattern));
  painter.drawRects(bars);
}

void MemoryTimelineWidget::draw_shape(QPainter& painter, const std::vector<StackColumn>& columns,
                                      const std::vector<qreal>& above, const std::vector<qreal>& below,
                                      std::size_t category) const {
  QPolygonF shape;
  shape.reserve(static_cast<int>(4 * columns.size()));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    shape << QPointF(columns[i].begin, above[i]) << QPointF(columns[i].end, above[i]);
  }
  for (std::size_t i = columns.size(); i-- > 0;) {
    shape << QPointF(columns[i].end, below[i]) << QPointF(columns[i].begin, below[i]);
  }
  painter.setBrush(theme().category[category]);
  painter.drawPolygon(shape);
  if (!theme().is_hatched[category]) return;
  QPainterPath path;
  path.addPolygon(shape);
  draw_hatch(painter, path, text_on(theme().category[category]));
}

void MemoryTimelineWidget::draw_lines(QPainter& painter, const QRectF& plot, const std::vector<StackColumn>& columns) {
  const ChartAxis values = value_axis(plot);
  const std::int64_t floor = snapshot()->curves.context.count();
  painter.setBrush(Qt::NoBrush);
  // Tops only: the sides of a peak that is one pixel wide would hide its colors.
  painter.setPen(hairline(with_alpha(theme().text, 0.6)));
  const QPolygonF tops = steps_of(columns, values, curve().total, floor);
  painter.drawLines(tops.constData(), static_cast<int>(tops.size() / 2));
  painter.setPen(hairline(theme().text, 1.5, Qt::DotLine));
  painter.drawPolyline(steps_of(columns, values, curve().reserved, floor));
}

void MemoryTimelineWidget::draw_ghosts(QPainter& painter, const QRectF& plot) {
  const ChartAxis values = value_axis(plot);
  const ChartAxis axis = time_axis(plot);
  const int pixels = std::max(1, static_cast<int>(plot.width()));
  painter.setBrush(Qt::NoBrush);
  if (ghost_.size() > 0) {
    const simulator::MemoryCurve& other = baseline()->curves.phases[phase_];
    painter.setPen(hairline(theme().baseline, 1.8, Qt::DashLine));
    painter.drawPolyline(steps_of(decimate(ghost_, ghost_positions_, axis, pixels), values, other.total,
                                  baseline()->curves.context.count()));
  }
  if (measured_.size() > 0 && &range() != &events_) {
    painter.setPen(hairline(theme().background, 4));
    const QPolygonF line = steps_of(decimate(measured_, overlay_->time, axis, pixels), values, overlay_->allocated,
                                    snapshot()->curves.context.count());
    painter.drawPolyline(line);
    painter.setPen(hairline(theme().measured, 2));
    painter.drawPolyline(line);
  }
}

void MemoryTimelineWidget::draw_limits(QPainter& painter, const QRectF& plot) {
  const MemoryReport& memory = snapshot()->report.memory;
  const ChartAxis values = value_axis(plot);
  const QFontMetricsF metrics(font());
  const qreal capacity = values.to_pixel(static_cast<double>(memory.budget.count()));
  if (capacity < plot.top()) {
    if (plot.height() < 2 * kLeastPlot) return;
    const QRectF top(plot.topLeft(), QPointF(plot.right(), plot.top() + metrics.height() + 4));
    draw_note_on_edge(painter, top, tr("capacity %1 lies above").arg(text_of(memory.budget)), theme().text_weak,
                      theme());
    return;
  }
  const QRectF zone(QPointF(plot.left(), plot.top()), QPointF(plot.right(), capacity));
  painter.fillRect(zone, with_alpha(theme().bad, 0.16));
  QPainterPath path;
  path.addRect(zone);
  draw_hatch(painter, path, theme().bad, 9);
  // The text has its own background, because it may cross any category.
  painter.setPen(hairline(theme().background, 4));
  painter.drawLine(zone.bottomLeft(), zone.bottomRight());
  painter.setPen(hairline(theme().bad, 2));
  painter.drawLine(zone.bottomLeft(), zone.bottomRight());
  if (plot.height() > kGoodPlot - kMinimap) {
    const Bytes whole = snapshot()->cluster.gpu.memory.value;
    const QString text = whole > memory.budget ? tr("usable %1 of %2").arg(text_of(memory.budget), text_of(whole))
                                               : tr("capacity %1").arg(text_of(memory.budget));
    draw_note_on_edge(painter, zone, text, theme().bad, theme());
  }
  const qreal margin = values.to_pixel(static_cast<double>((memory.budget - memory.margin).count()));
  if (memory.margin <= Bytes(0) || margin - capacity < 3) return;
  painter.setPen(hairline(theme().bad, 1, Qt::DashLine));
  painter.drawLine(QPointF(plot.left(), margin), QPointF(plot.right(), margin));
}

void MemoryTimelineWidget::draw_phases(QPainter& painter, const QRectF& plot) {
  const ChartAxis axis = time_axis(plot);
  const QFontMetricsF metrics(font());
  const auto& steps = snapshot()->curves.instructions_of(phase_);
  struct Stretch {
    QString name;
    double begin = 0;
    double end = 0;
  };
  std::vector<Stretch> stretches;
  for (const simulator::CurveInstruction& step : steps) {
    const QString name = QString::fromStdString(std::string(name_of(step.phase)));
    if (stretches.empty() || stretches.back().name != name) stretches.push_back({name, step.begin.count(), 0});
    stretches.back().end = step.end.count();
  }
  std::vector<WantedLabel> wanted;
  for (const Stretch& stretch : stretches) {
    const double from = std::max(plot.left(), axis.to_pixel(stretch.begin));
    const double to = std::min(plot.right(), axis.to_pixel(stretch.end));
    if (to <= plot.left() || from >= plot.right()) {
      wanted.push_back({-1e6, 1e9});
      continue;
    }
    const double width = metrics.horizontalAdvance(stretch.name);
    wanted.push_back({(from + to) / 2, width, static_cast<int>(to - from)});
    painter.setPen(hairline(mixed(theme().grid, theme().text_weak, 0.5), 1, Qt::DashLine));
    if (from > plot.left())
      painter.drawLine(QPointF(from, plot.top() - metrics.height()), QPointF(from, plot.bottom()));
  }
  painter.setPen(theme().text_weak);
  for (const PlacedLabel& label : place_labels(wanted, plot.left(), plot.right() + 8, 8)) {
    painter.drawText(QPointF(label.left, plot.top() - metrics.descent() - 3), stretches[label.index].name);
  }
}

void MemoryTimelineWidget::draw_peak(QPainter& painter, const QRectF& plot) {
  const std::size_t peak = peak_;
  const ChartAxis axis = time_axis(plot);
  const qreal x = axis.to_pixel(positions_[peak]);
  if (x < plot.left() || x > plot.right()) return;
  const std::int64_t held = snapshot()->curves.context.count() + curve().total[peak];
  const qreal y = value_axis(plot).to_pixel(static_cast<double>(held));
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(hairline(theme().background, 1.5));
  painter.setBrush(theme().text);
  painter.drawPolygon(QPolygonF({QPointF(x, y - 1), QPointF(x - 5.5, y - 10), QPointF(x + 5.5, y - 10)}));
  QFont strong = font();
  strong.setBold(true);
  painter.setFont(strong);
  const QFontMetricsF metrics(strong);
  const PeakMoment place = snapshot()->curves.moment_at(phase_, peak);
  QString text = tr("peak %1 live").arg(text_of(Bytes(curve().total[peak])));
  if (!place.instruction.empty()) text += " · " + QString::fromStdString(shortened_name(place.instruction, 34));
  if (plot.height() < kLeastPlot / 2) return painter.restore();
  text = metrics.elidedText(text, Qt::ElideRight, plot.width() * 0.6);
  const qreal width = metrics.horizontalAdvance(text) + 10;
  qreal left = x + 9;
  if (left + width > plot.right()) left = x - 9 - width;
  const qreal above = std::max(plot.top() + 2, y - 8 - metrics.height());
  const QRectF box(std::max(plot.left() + 2, left), above, width, metrics.height() + 4);
  painter.setPen(Qt::NoPen);
  painter.setBrush(with_alpha(theme().background, 0.94));
  painter.drawRoundedRect(box, 3, 3);
  painter.setPen(theme().text);
  painter.drawText(box, Qt::AlignCenter, text);
  painter.restore();
}

void MemoryTimelineWidget::draw_minimap(QPainter& painter, const QRectF& box) {
  const ChartAxis axis{range().full(), box.left(), box.width()};
  const std::int64_t peak = snapshot()->curves.context.count() + curve().total[peak_];
  const double low = is_cut() ? static_cast<double>(floor()) : 0;
  const double above = static_cast<double>(peak) - low;
  const ChartAxis values{{is_cut() ? low - 0.2 * above : 0, low + 1.08 * above}, box.bottom(), -box.height()};
  painter.fillRect(box, theme().panel);
  const std::vector<StackColumn> columns =
      decimate(pyramid_, positions_, axis, std::max(1, static_cast<int>(box.width())));
  QPolygonF shape = steps_of(columns, values, curve().total, snapshot()->curves.context.count());
  shape << box.bottomRight() << box.bottomLeft();
  painter.setPen(Qt::NoPen);
  painter.setBrush(mixed(theme().panel, theme().text_weak, 0.55));
  painter.drawPolygon(shape);
  const qreal left = axis.to_pixel(range().visible().begin);
  const qreal right = axis.to_pixel(range().visible().end);
  painter.fillRect(QRectF(box.left(), box.top(), left - box.left(), box.height()), with_alpha(theme().panel, 0.65));
  painter.fillRect(QRectF(right, box.top(), box.right() - right, box.height()), with_alpha(theme().panel, 0.65));
  painter.setBrush(Qt::NoBrush);
  painter.setPen(hairline(theme().accent, range().is_whole() ? 1 : 1.5));
  painter.drawRect(QRectF(left, box.top(), right - left, box.height()));
}

void MemoryTimelineWidget::draw_pointer(QPainter& painter, const QRectF& bounds, const QRectF& plot, double value) {
  if (!has_curve() || positions_.empty()) return;
  const ChartAxis axis = time_axis(plot);
  const qreal x = axis.to_pixel(value);
  painter.setPen(hairline(theme().text));
  painter.drawLine(QPointF(x, plot.top()), QPointF(x, plot.bottom()));
  if (!points_here()) return;
  const ChartAxis pixel{{value, axis.to_value(x + 1)}, 0, 1};
  const std::vector<StackColumn> columns = decimate(pyramid_, positions_, pixel, 1);
  const std::size_t moment = columns.empty() ? moment_at(positions_, value) : columns.front().moment;
  const PeakMoment place = snapshot()->curves.moment_at(phase_, moment);
  std::vector<NoteLine> lines;
  lines.push_back({QString::fromStdString(name_of(place)), text_of(curve().time[moment]), {}, true});
  if (!place.op.empty()) lines.push_back({QString::fromStdString(place.op), {}, {}});
  for (auto category = kStackOrder.rbegin(); category != kStackOrder.rend(); ++category) {
    const auto c = static_cast<std::size_t>(*category);
    const std::int64_t bytes = curve().live[c][moment];
    if (bytes == 0) continue;
    lines.push_back({QString::fromStdString(std::string(name_of(*category))), text_of(Bytes(bytes)),
                     theme().category[c], false, theme().is_hatched[c]});
  }
  lines.push_back({tr("live"), text_of(Bytes(curve().total[moment])), {}, true});
  lines.push_back({tr("reserved"), text_of(Bytes(curve().reserved[moment])), {}});
  lines.push_back({tr("on the device"), text_of(Bytes(curve().reserved[moment]) + snapshot()->curves.context), {}});
  const std::int64_t held = snapshot()->curves.context.count() + curve().total[moment];
  const qreal y = value_axis(plot).to_pixel(static_cast<double>(held));
  draw_note(painter, bounds.adjusted(4, 4, -4, -4), QPointF(x, std::max(plot.top(), y)), lines, theme(), plot.top());
}

}  // namespace fsdp::gui
