#include "gui/charts/recorded_chart.h"

#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <algorithm>
#include <utility>

#include "gui/charts/plot_paint.h"

namespace fsdp::gui {

namespace {

constexpr qreal kLeft = 76;
constexpr qreal kRight = 14;
constexpr qreal kAbove = 30;
constexpr qreal kBelow = 40;

/// The highest value of each pixel column, so that no spike disappears.
template <class Value>
QPolygonF highest_line(std::size_t count, const QRectF& plot, const ChartAxis& values, const Value& value) {
  QPolygonF line;
  const int columns = std::max(1, static_cast<int>(plot.width()));
  for (int column = 0; column < columns; ++column) {
    const auto begin = count * static_cast<std::size_t>(column) / static_cast<std::size_t>(columns);
    const auto end =
        std::max(begin + 1, count * static_cast<std::size_t>(column + 1) / static_cast<std::size_t>(columns));
    std::int64_t most = 0;
    for (std::size_t i = begin; i < std::min(end, count); ++i) most = std::max(most, value(i));
    const qreal y = values.to_pixel(static_cast<double>(most));
    line << QPointF(plot.left() + column, y) << QPointF(plot.left() + column + 1, y);
  }
  return line;
}

}  // namespace

RecordedChart::RecordedChart(QWidget* parent) : QWidget(parent) {
  setObjectName("recorded_chart");
  setFocusPolicy(Qt::StrongFocus);
  setAccessibleName(tr("Recorded memory"));
  setAccessibleDescription(
      tr("Live and reserved memory, over allocations and frees. The arrow keys choose another moment, P the peak."));
}

void RecordedChart::show_memory(std::shared_ptr<const RecordedMemory> memory) {
  memory_ = std::move(memory);
  replayed_.clear();
  moment_ = memory_ ? memory_->peak : 0;
  update();
}

void RecordedChart::show_replayed(std::vector<Bytes> reserved) {
  replayed_ = std::move(reserved);
  update();
}

void RecordedChart::set_theme(const Theme& theme) {
  theme_ = theme;
  update();
}

void RecordedChart::set_moment(std::size_t step) {
  if (!memory_) return;
  moment_ = std::min(step, memory_->live.size() - 1);
  update();
  emit moment_chosen(moment_);
}

QRectF RecordedChart::plot() const {
  return QRectF(rect()).adjusted(kLeft, kAbove, -kRight, -kBelow);
}

std::int64_t RecordedChart::top() const {
  std::int64_t highest = std::max(memory_->live[memory_->peak], memory_->recorded.reserved_peak.count());
  for (const Bytes each : replayed_) highest = std::max(highest, each.count());
  if (const auto device = memory_->device()) highest = std::max(highest, device->count());
  return highest + highest / 12 + 1;
}

void RecordedChart::draw_curves(QPainter& painter, const QRectF& plot, const ChartAxis& values) const {
  const QPolygonF live =
      highest_line(memory_->live.size(), plot, values, [&](std::size_t i) { return memory_->live[i]; });
  QPolygonF area = live;
  area << plot.bottomRight() << plot.bottomLeft();
  painter.setPen(Qt::NoPen);
  painter.setBrush(with_alpha(theme_.accent, 0.45));
  painter.drawPolygon(area);
  painter.setBrush(Qt::NoBrush);
  const auto draw_reserved = [&](const std::vector<Bytes>& reserved, const QPen& pen) {
    if (reserved.empty()) return;
    painter.setPen(pen);
    painter.drawPolyline(
        highest_line(reserved.size(), plot, values, [&](std::size_t i) { return reserved[i].count(); }));
  };
  draw_reserved(memory_->recorded.reserved, hairline(theme_.text, 1.5, Qt::DotLine));
  draw_reserved(replayed_, hairline(theme_.measured, 2));
  if (const auto device = memory_->device()) {
    const qreal y = values.to_pixel(static_cast<double>(device->count()));
    painter.setPen(hairline(theme_.bad, 2));
    painter.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y));
  }
}

void RecordedChart::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(this);
  painter.setRenderHint(QPainter::Antialiasing);
  painter.fillRect(rect(), theme_.background);
  if (!memory_) return draw_empty(painter, rect(), tr("No recording is open."), theme_);
  const QRectF plot = this->plot();
  const ChartAxis values{{0, static_cast<double>(top())}, plot.bottom(), -plot.height()};
  const ChartAxis steps{{0, static_cast<double>(memory_->live.size())}, plot.left(), plot.width()};
  std::vector<LegendEntry> legend = {{tr("alive, as requested"), with_alpha(theme_.accent, 0.45)},
                                     {tr("reserved"), theme_.text, false, true, Qt::DotLine}};
  if (!replayed_.empty()) {
    legend.push_back({tr("reserved under the other settings"), theme_.measured, false, true, Qt::SolidLine});
  }
  if (const auto device = memory_->device()) {
    legend.push_back({tr("capacity %1").arg(text_of(*device)), theme_.bad, false, true, Qt::SolidLine});
  }
  draw_legend(&painter, font(), QRectF(rect()).adjusted(12, 4, -kRight, 0), legend, theme_);
  draw_value_axis(painter, plot, values, byte_ticks(values.values, std::max(2, static_cast<int>(plot.height() / 30))),
                  theme_);
  draw_time_axis(painter, plot, steps, count_ticks(steps.values, std::max(2, static_cast<int>(plot.width() / 90))),
                 theme_, tr("allocations and frees"));
  draw_curves(painter, plot, values);
  const QPointF at(steps.to_pixel(static_cast<double>(moment_) + 0.5),
                   values.to_pixel(static_cast<double>(memory_->live[moment_])));
  painter.setPen(hairline(theme_.text, 1, Qt::DashLine));
  painter.drawLine(QPointF(at.x(), plot.top()), QPointF(at.x(), plot.bottom()));
  const QString what = moment_ == memory_->peak ? tr("peak") : tr("moment %1").arg(moment_ + 1);
  draw_note(painter, plot, at, {{what, text_of(Bytes(memory_->live[moment_])), {}, true}}, theme_);
}

void RecordedChart::mousePressEvent(QMouseEvent* event) {
  if (!memory_ || event->button() != Qt::LeftButton) return;
  const QRectF plot = this->plot();
  const double share = std::clamp((event->position().x() - plot.left()) / std::max(1.0, plot.width()), 0.0, 1.0);
  set_moment(static_cast<std::size_t>(share * static_cast<double>(memory_->live.size())));
}

void RecordedChart::keyPressEvent(QKeyEvent* event) {
  if (!memory_) return QWidget::keyPressEvent(event);
  const std::size_t stride = event->modifiers().testFlag(Qt::ShiftModifier) ? 100 : 1;
  if (event->key() == Qt::Key_Left) return set_moment(moment_ - std::min(stride, moment_));
  if (event->key() == Qt::Key_Right) return set_moment(moment_ + stride);
  if (event->key() == Qt::Key_P) return set_moment(memory_->peak);
  QWidget::keyPressEvent(event);
}

}  // namespace fsdp::gui
