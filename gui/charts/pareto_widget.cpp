#include "gui/charts/pareto_widget.h"

#include <QImage>
#include <QKeyEvent>
#include <QPainter>
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "gui/charts/plot_paint.h"

namespace fsdp::gui {

namespace {

constexpr qreal kLeastPlot = 70;
constexpr double kReach = 14;  // Pixels around the pointer in which a plan is found.

bool is_same_plan(const Plan& a, const Plan& b) {
  return a == b;
}

}  // namespace

ParetoWidget::ParetoWidget(QWidget* parent) : PlotWidget(nullptr, parent) {
  watch(&steps_);
  setAccessibleName(tr("Plans by memory and time"));
  setAccessibleDescription(
      tr("Each point is a plan: farther right is slower, higher needs more memory. The arrow keys go from plan to "
         "plan, Enter takes "
         "one; the table of this chart has the same figures."));
  search_ = new QPushButton(tr("Search for other plans"), this);
  search_->setObjectName("search_plans");
  search_->setToolTip(tr("Look for the best plan with these settings; Undo brings this one back"));
  search_->hide();
  connect(search_, &QPushButton::clicked, this, &ParetoWidget::search_wanted);
}

void ParetoWidget::set_snapshot(SnapshotPtr snapshot) {
  PlotWidget::set_snapshot(std::move(snapshot));
  take_plans();
}

void ParetoWidget::set_baseline(SnapshotPtr baseline) {
  PlotWidget::set_baseline(std::move(baseline));
  take_plans();
}

void ParetoWidget::take_plans() {
  points_.clear();
  front_.clear();
  selected_ = pointed_ = -1;
  search_->hide();
  if (snapshot() == nullptr) return;
  ValueRange times{1e300, 0};
  std::vector<ScatterPoint> fitting;
  std::vector<std::int32_t> number;
  for (const planner::Candidate& plan : snapshot()->plans) {
    const bool fits = plan.missing <= Bytes(0);
    const bool is_current = is_same_plan(plan.plan, snapshot()->report.plan);
    const TimeReport& time = snapshot()->report.time;
    const bool is_uncertain = has_band() && plan.step >= time.low && plan.step <= time.high && !is_current;
    points_.push_back(
        {plan.step.count(), static_cast<double>(plan.device_peak.count()), fits, is_current, is_uncertain});
    if (is_current) selected_ = static_cast<int>(points_.size()) - 1;
    if (fits) {
      fitting.push_back({points_.back().time, points_.back().bytes});
      number.push_back(static_cast<std::int32_t>(points_.size()) - 1);
    }
    times.begin = std::min(times.begin, points_.back().time);
    times.end = std::max(times.end, points_.back().time);
  }
  for (const std::int32_t i : pareto_front(fitting)) front_.push_back(number[i]);
  if (!points_.empty()) {
    const double margin = std::max(0.06 * (times.end - times.begin), 0.01 * times.end);
    steps_.set_full({std::max(0.0, times.begin - margin), times.end + margin});
  }
  fill_table();
  place_search();
  refresh();
}

// A plan that was opened from a file.
void ParetoWidget::place_search() {
  const bool is_alone = points_.size() == 1 && !snapshot()->proof && snapshot()->stage == Stage::Explained;
  search_->setVisible(is_alone);
  if (!is_alone) return;
  constexpr int kMargin = 8;
  search_->adjustSize();
  const QRect plot = current_plot().toRect();
  search_->move(plot.right() - search_->width() - kMargin, plot.bottom() - search_->height() - kMargin);
}

void ParetoWidget::resizeEvent(QResizeEvent* event) {
  PlotWidget::resizeEvent(event);
  if (snapshot() != nullptr) place_search();
}

// The steps of two plans share part of their uncertainty: inside the band their order is a guess.
bool ParetoWidget::has_band() const {
  const TimeReport& time = snapshot()->report.time;
  return time.low > Seconds(0) && time.high > time.low;
}

void ParetoWidget::draw_band(QPainter& painter, const QRectF& plot) const {
  if (!has_band()) return;
  const TimeReport& time = snapshot()->report.time;
  const ChartAxis axis = time_axis(plot);
  const qreal left = std::clamp(axis.to_pixel(time.low.count()), plot.left(), plot.right());
  const qreal right = std::clamp(axis.to_pixel(time.high.count()), plot.left(), plot.right());
  painter.fillRect(QRectF(QPointF(left, plot.top()), QPointF(right, plot.bottom())), with_alpha(theme().warn, 0.10));
  painter.setPen(hairline(theme().warn, 1, Qt::DashLine));
  for (const qreal x : {left, right}) {
    if (x > plot.left() && x < plot.right()) painter.drawLine(QPointF(x, plot.top()), QPointF(x, plot.bottom()));
  }
}

void ParetoWidget::fill_table() {
  const SnapshotPtr shown = snapshot();
  const std::vector<PlanPoint> points = points_;
  std::vector<bool> is_front(points_.size(), false);
  for (const std::int32_t i : front_) is_front[i] = true;
  table_.set({{tr("plan"), "plan"},
              {tr("step"), "step_seconds", true},
              {tr("device peak"), "device_peak_bytes", true},
              {tr("lacks"), "missing_bytes", true},
              {tr("fits"), "fits"},
              {tr("on the front"), "front"},
              {tr("order"), "order"}},
             static_cast<int>(points_.size()), [shown, is_front, points](int row, int column) -> TableCell {
               const planner::Candidate& plan = shown->plans[row];
               switch (column) {
                 case 0:
                   return cell_of(plan.label);
                 case 1:
                   return cell_of(plan.step);
                 case 2:
                   return cell_of(plan.device_peak);
                 case 3:
                   return cell_of(plan.missing);
                 case 4:
                   return cell_of(plan.missing <= Bytes(0) ? tr("yes") : tr("no"));
                 case 5:
                   return cell_of(is_front[row] ? tr("yes") : tr("no"));
                 default: {
                   const PlanPoint& point = points[row];
                   return cell_of(point.is_current     ? tr("current plan")
                                  : point.is_uncertain ? tr("within the band")
                                                       : tr("certain"));
                 }
               }
             });
}

std::vector<LegendEntry> ParetoWidget::legend() const {
  std::vector<LegendEntry> entries = {
      {tr("device peak by step time:"), {}},
      {tr("fits"), theme().accent, false, false, Qt::SolidLine, LegendEntry::Mark::Dot},
      {tr("does not fit"), theme().bad, false, false, Qt::SolidLine, LegendEntry::Mark::Ring},
      {tr("current plan"), theme().text, false, false, Qt::SolidLine, LegendEntry::Mark::Target},
      {tr("front: nothing is both smaller and faster"), theme().text, false, true}};
  if (snapshot() != nullptr && has_band()) {
    const TimeReport& time = snapshot()->report.time;
    entries.push_back(
        {tr("band of the current plan, %1 to %2: order uncertain").arg(text_of(time.low), text_of(time.high)),
         with_alpha(theme().warn, 0.5)});
  }
  return entries;
}

QRectF ParetoWidget::plot_area(const QRectF& bounds) const {
  const QFontMetricsF metrics(font());
  const qreal below = metrics.height() + 14;
  const qreal above = has_legend(bounds) ? legend_height(bounds) : 0;
  return bounds.adjusted(72, above + 10, -14, -below);
}

qreal ParetoWidget::legend_height(const QRectF& bounds) const {
  return draw_legend(nullptr, font(), bounds.adjusted(12, 4, -14, 0), legend(), theme());
}

// A low dock shows the plans and drops their legend.
bool ParetoWidget::has_legend(const QRectF& bounds) const {
  return bounds.height() - legend_height(bounds) - QFontMetricsF(font()).height() - 24 >= kLeastPlot;
}

ValueRange ParetoWidget::bytes_range() const {
  double least = 1e300;
  double most = 0;
  for (const PlanPoint& point : points_) {
    least = std::min(least, point.bytes);
    most = std::max(most, point.bytes);
  }
  // The limit belongs to the picture unless all plans are far from it.
  const double limit = static_cast<double>((snapshot()->report.memory.budget).count());
  if (limit < 3 * most) most = std::max(most, limit);
  if (6 * limit > most) least = std::min(least, limit);
  const double margin = 0.08 * std::max(most - least, 0.02 * most);
  return {std::max(0.0, least - margin), most + margin};
}

ChartAxis ParetoWidget::value_axis(const QRectF& plot) const {
  const auto capacity = static_cast<double>(snapshot()->report.memory.budget.count());
  return {with_room_for_note(bytes_range(), capacity, plot, font()), plot.bottom(), -plot.height()};
}

std::vector<ScatterPoint> ParetoWidget::pixels_of(const QRectF& plot) const {
  const ChartAxis axis = time_axis(plot);
  const ChartAxis values = value_axis(plot);
  std::vector<ScatterPoint> pixels;
  pixels.reserve(points_.size());
  for (const PlanPoint& point : points_) pixels.push_back({axis.to_pixel(point.time), values.to_pixel(point.bytes)});
  return pixels;
}

int ParetoWidget::nearest(const QPointF& at) const {
  if (points_.empty()) return -1;
  return ScatterGrid(pixels_of(current_plot()), kReach).nearest(at.x(), at.y(), kReach);
}

QString ParetoWidget::label_of(std::size_t index) const {
  return QString::fromStdString(snapshot()->plans[index].label);
}

void ParetoWidget::draw_chart(QPainter& painter, const QRectF& bounds, const QRectF& plot) {
  if (points_.empty()) {
    const bool has_model = snapshot() != nullptr;
    return draw_empty(painter, bounds,
                      has_model ? tr("A search shows here what other plans need and how fast they are.")
                                : empty_text(tr("Choose a model to compare its plans.")),
                      theme());
  }
  if (plot.width() < 20 || plot.height() < 20) return;
  const ChartAxis axis = time_axis(plot);
  const ChartAxis values = value_axis(plot);
  if (has_legend(bounds)) draw_legend(&painter, font(), bounds.adjusted(12, 4, -14, 0), legend(), theme());
  draw_value_axis(painter, plot, values, byte_ticks(values.values, std::max(2, static_cast<int>(plot.height() / 30))),
                  theme());
  draw_time_axis(painter, plot, axis, time_ticks(axis.values, std::max(2, static_cast<int>(plot.width() / 90))),
                 theme(), tr("step time"));
  const std::vector<ScatterPoint> pixels = pixels_of(plot);
  painter.save();
  painter.setClipRect(plot.adjusted(-7, -7, 7, 7));
  draw_band(painter, plot);
  draw_limit(painter, plot);
  painter.setRenderHint(QPainter::Antialiasing);
  draw_front(painter, plot, pixels);
  draw_points(painter, pixels);
  if (points_.size() == 1) {
    // The text must avoid the point, which may lie anywhere.
    const bool is_in_middle = std::abs(pixels.front().y - plot.center().y()) < plot.height() / 4;
    painter.setPen(theme().text_weak);
    painter.drawText(plot.adjusted(8, 8, -8, -8),
                     Qt::AlignHCenter | (is_in_middle ? Qt::AlignBottom : Qt::AlignVCenter) | Qt::TextWordWrap,
                     lone_text());
  }
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const QPointF at(pixels[i].x, pixels[i].y);
    if (!points_[i].is_current) continue;
    painter.setPen(hairline(theme().text, 2));
    painter.setBrush(Qt::NoBrush);
    painter.drawEllipse(at, 8.5, 8.5);
  }
  painter.restore();
}

void ParetoWidget::draw_point(QPainter& painter, const QPointF& at, bool fits) const {
  painter.setPen(fits ? hairline(theme().background) : hairline(theme().bad, 1.5));
  painter.setBrush(fits ? QBrush(with_alpha(theme().accent, 0.8)) : QBrush(Qt::NoBrush));
  painter.drawEllipse(at, 4, 4);
}

QString ParetoWidget::lone_text() const {
  return snapshot()->stage == Stage::Explained ? tr("No other plan was looked at.")
                                               : tr("Other plans come when the search ends.");
}

// On the screen every point of a kind is the same small picture, drawn once.
void ParetoWidget::draw_points(QPainter& painter, const std::vector<ScatterPoint>& pixels) const {
  if (!draws_pixels(painter)) {
    for (std::size_t i = 0; i < points_.size(); ++i) {
      draw_point(painter, {pixels[i].x, pixels[i].y}, points_[i].fits);
    }
    return;
  }
  constexpr qreal kHalf = 6;
  const qreal scale = painter.device()->devicePixelRatioF();
  std::array<QImage, 2> pictures;
  for (const bool fits : {false, true}) {
    QImage& picture = pictures[fits ? 1 : 0];
    picture = QImage((QSizeF(2 * kHalf, 2 * kHalf) * scale).toSize(), QImage::Format_ARGB32_Premultiplied);
    picture.setDevicePixelRatio(scale);
    picture.fill(Qt::transparent);
    QPainter pen(&picture);
    pen.setRenderHint(QPainter::Antialiasing);
    draw_point(pen, {kHalf, kHalf}, fits);
  }
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const QPointF corner(std::round((pixels[i].x - kHalf) * scale) / scale,
                         std::round((pixels[i].y - kHalf) * scale) / scale);
    painter.drawImage(corner, pictures[points_[i].fits ? 1 : 0]);
  }
}

void ParetoWidget::draw_limit(QPainter& painter, const QRectF& plot) const {
  const MemoryReport& memory = snapshot()->report.memory;
  const qreal y = value_axis(plot).to_pixel(static_cast<double>(memory.budget.count()));
  if (y < plot.top()) return;
  const QRectF zone(plot.topLeft(), QPointF(plot.right(), y));
  painter.fillRect(zone, with_alpha(theme().bad, 0.12));
  painter.setPen(hairline(theme().bad, 2));
  painter.drawLine(zone.bottomLeft(), zone.bottomRight());
  if (plot.height() < kLeastPlot) return;
  const QString text = tr("capacity %1").arg(text_of(memory.budget));
  draw_note_on_edge(painter, zone, text, theme().bad, theme());
}

void ParetoWidget::draw_front(QPainter& painter, const QRectF& plot, const std::vector<ScatterPoint>& pixels) const {
  QPolygonF line;
  for (const std::int32_t i : front_) {
    const ScatterPoint& point = pixels[i];
    // Until the next point, more time gives no smaller memory.
    if (!line.isEmpty()) line << QPointF(point.x, line.last().y());
    line << QPointF(point.x, point.y);
  }
  if (line.isEmpty()) return;
  line << QPointF(plot.right(), line.last().y());
  painter.setBrush(Qt::NoBrush);
  painter.setPen(hairline(with_alpha(theme().text, 0.7), 1.5));
  painter.drawPolyline(line);
}

void ParetoWidget::draw_pointer(QPainter& painter, const QRectF& bounds, const QRectF& plot, double /*value*/) {
  const int number = pointed_ >= 0 ? pointed_ : (hasFocus() ? selected_ : -1);
  if (number < 0 || static_cast<std::size_t>(number) >= points_.size()) return;
  const planner::Candidate& plan = snapshot()->plans[number];
  const QPointF at(time_axis(plot).to_pixel(points_[number].time), value_axis(plot).to_pixel(points_[number].bytes));
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(hairline(theme().accent, 2));
  painter.setBrush(Qt::NoBrush);
  painter.drawEllipse(at, 6.5, 6.5);
  const StepReport& now = snapshot()->report;
  std::vector<NoteLine> lines;
  lines.push_back({label_of(static_cast<std::size_t>(number)), {}, {}, true});
  const auto change = [](const QString& difference, bool is_less) {
    return QString(" (%1%2)").arg(is_less ? "" : "+", difference);
  };
  const Seconds slower = plan.step - now.time.step;
  const Bytes more = plan.device_peak - now.memory.peaks.device;
  const bool is_current = points_[number].is_current;
  lines.push_back(
      {tr("step"), text_of(plan.step) + (is_current ? QString() : change(text_of(slower), slower.count() < 0)), {}});
  lines.push_back({tr("device peak"),
                   text_of(plan.device_peak) + (is_current ? QString() : change(text_of(more), more < Bytes(0))),
                   {}});
  if (plan.missing > Bytes(0)) lines.push_back({tr("missing, with its margin"), text_of(plan.missing), {}});
  lines.push_back({is_current ? tr("this is the current plan") : tr("click or press Enter to take this plan"), {}, {}});
  draw_note(painter, bounds.adjusted(4, 4, -4, -4), at, lines, theme());
}

QString ParetoWidget::describe(const ValueRange& selection) const {
  int count = 0;
  int fitting = 0;
  for (const PlanPoint& point : points_) {
    if (point.time < selection.begin || point.time > selection.end) continue;
    ++count;
    fitting += point.fits ? 1 : 0;
  }
  return tr("%1 · %2 plans, %3 fit").arg(text_of(Seconds(selection.width()))).arg(count).arg(fitting);
}

QString ParetoWidget::status_at(double /*value*/) const {
  if (pointed_ < 0) return {};
  const planner::Candidate& plan = snapshot()->plans[pointed_];
  return tr("%1 · step %2 · device peak %3")
      .arg(QString::fromStdString(plan.label), text_of(plan.step), text_of(plan.device_peak));
}

void ParetoWidget::pointed(const QPointF& at) {
  pointed_ = nearest(at);
  update();
}

void ParetoWidget::select_plan(int index) {
  if (index < 0 || static_cast<std::size_t>(index) >= points_.size()) return;
  selected_ = index;
  pointed_ = index;
  steps_.point(points_[index].time);
  emit status_changed(status_at(0));
  update();
}

void ParetoWidget::activate(const QPointF& at) {
  const int under = nearest(at);
  if (under >= 0)
    selected_ = under;
  else if (pointed_ < 0)
    return;
  if (selected_ >= 0) emit plan_chosen(snapshot()->plans[selected_].plan);
}

void ParetoWidget::keyPressEvent(QKeyEvent* event) {
  static constexpr std::array kKeys = {std::pair(Qt::Key_Left, Direction::Left),
                                       std::pair(Qt::Key_Right, Direction::Right), std::pair(Qt::Key_Up, Direction::Up),
                                       std::pair(Qt::Key_Down, Direction::Down)};
  for (const auto& [key, direction] : kKeys) {
    if (event->key() != key || points_.empty()) continue;
    if (selected_ < 0) return select_plan(front_.empty() ? 0 : front_.front());
    const int next = neighbor(pixels_of(current_plot()), selected_, direction);
    if (next >= 0) select_plan(next);
    return;
  }
  const bool is_enter = event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter;
  if (is_enter && selected_ >= 0) {
    emit plan_chosen(snapshot()->plans[selected_].plan);
    return;
  }
  PlotWidget::keyPressEvent(event);
}

}  // namespace fsdp::gui
