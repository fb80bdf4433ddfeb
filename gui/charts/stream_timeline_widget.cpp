// The chart of streams: a lane for each stream. Wide events are drawn one by one with their names; narrow ones are
// joined, in a color as strong as they are busy. The part of a collective that the computation waits for is hatched.

#include "gui/charts/stream_timeline_widget.h"

#include <QKeyEvent>
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/parse_units.h"
#include "gui/charts/chart_text.h"
#include "gui/charts/plot_paint.h"

namespace fsdp::gui {

namespace {

struct StreamRow {
  Stream stream;
  Lane lane;
  const char* name;
};

constexpr std::array kRows = {StreamRow{Stream::Compute, Lane::Compute, QT_TR_NOOP("compute")},
                              StreamRow{Stream::AllGather, Lane::AllGather, QT_TR_NOOP("all-gather")},
                              StreamRow{Stream::ReduceScatter, Lane::ReduceScatter, QT_TR_NOOP("reduce-scatter")},
                              StreamRow{Stream::AllReduce, Lane::AllReduce, QT_TR_NOOP("all-reduce")},
                              StreamRow{Stream::Copy, Lane::Copy, QT_TR_NOOP("copy-in")},
                              StreamRow{Stream::ToHost, Lane::Copy, QT_TR_NOOP("to host")}};

constexpr qreal kRight = 14;
constexpr qreal kLeast = 108;  // Least width of the lane names: the left margin of the memory chart above.

/// The kind of work of a compute lane's event. Events of the other lanes are all of the first kind.
enum class Work : std::uint8_t { Forward, Backward, Recompute, Optimizer, Copy };
static_assert(static_cast<std::size_t>(Work::Copy) < kMostKinds);

Work work_of(const StreamEvent& event) {
  if (event.stream != Stream::Compute) return Work::Forward;
  if (event.name.starts_with("copy-")) return Work::Copy;
  if (event.name == "recompute") return Work::Recompute;
  if (event.phase == StepPhase::Backward) return Work::Backward;
  return event.phase == StepPhase::Optimizer ? Work::Optimizer : Work::Forward;
}

/// Events of several phases are never drawn as one.
std::uint8_t phase_of(const StreamEvent& event) {
  if (event.stream != Stream::Compute) return 0;
  return event.phase == StepPhase::Backward ? 1 : event.phase == StepPhase::Optimizer ? 2 : 0;
}

QColor color_of(Work work, const QColor& lane, const Theme& theme) {
  switch (work) {
    case Work::Forward:
      return lane;
    case Work::Backward:
      return mixed(lane, theme.is_dark ? QColor(Qt::white) : QColor(Qt::black), 0.22);
    case Work::Recompute:
      return mixed(lane, theme.background, 0.35);
    case Work::Optimizer:
      return mixed(lane, theme.text_weak, 0.55);
    case Work::Copy:
      return mixed(lane, theme.background, 0.55);
  }
  return lane;
}

/// The kind of work with the largest share of a run.
Work main_work(const LaneRun& run) {
  return static_cast<Work>(std::max_element(run.shares.begin(), run.shares.end()) - run.shares.begin());
}

}  // namespace

StreamTimelineWidget::StreamTimelineWidget(TimeRange* range, QWidget* parent) : PlotWidget(range, parent) {
  setAccessibleName(tr("Streams over one step"));
  setAccessibleDescription(
      tr("Computation and communication over time. Up and down choose a stream, left and right its next event, Enter "
         "shows what it waits for; the table of this chart has the same figures."));
}

const std::vector<StreamEvent>& StreamTimelineWidget::events_of(const LaneRow& row) const {
  return row.is_measured ? overlay_->events : snapshot()->curves.events;
}

void StreamTimelineWidget::set_snapshot(SnapshotPtr snapshot) {
  PlotWidget::set_snapshot(std::move(snapshot));
  selected_ = -1;
  make_rows();
  fill_table();
}

void StreamTimelineWidget::set_overlay(OverlayPtr overlay) {
  overlay_ = std::move(overlay);
  make_rows();
  refresh();
}

void StreamTimelineWidget::make_rows() {
  rows_.clear();
  waited_by_.clear();
  if (this->snapshot() == nullptr || this->snapshot()->curves.empty()) return;
  const simulator::StepCurves& curves = this->snapshot()->curves;
  const auto add = [&](const StreamRow& kind, const std::vector<StreamEvent>& events, bool is_measured) {
    LaneRow row{is_measured ? tr("%1, measured").arg(tr(kind.name)) : tr(kind.name), kind.lane, is_measured, {}};
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (events[i].stream != kind.stream) continue;
      row.spans.push_back({events[i].start.count(), events[i].end.count(), static_cast<std::int32_t>(i),
                           static_cast<std::uint8_t>(work_of(events[i])), phase_of(events[i])});
    }
    // The first three lanes are always shown, so that plans can be compared.
    if (!row.spans.empty() || (!is_measured && kind.stream <= Stream::ReduceScatter)) rows_.push_back(std::move(row));
  };
  for (const StreamRow& kind : kRows) {
    add(kind, curves.events, false);
    if (overlay_ != nullptr) add(kind, overlay_->events, true);
  }
  waited_by_.resize(curves.events.size());
  for (std::size_t i = 0; i < curves.events.size(); ++i) {
    for (const std::int32_t other : curves.events[i].waits_for) {
      waited_by_[other].push_back(static_cast<std::int32_t>(i));
    }
  }
  PlotWidget::range().set_full({0, std::max(1e-9, curves.step.count())});
}

void StreamTimelineWidget::fill_table() {
  const SnapshotPtr shown = snapshot();
  const int rows = shown == nullptr ? 0 : static_cast<int>(shown->curves.events.size());
  table_.set({{tr("stream"), "stream"},
              {tr("event"), "event"},
              {tr("unit"), "unit"},
              {tr("phase"), "phase"},
              {tr("start"), "start_seconds", true},
              {tr("duration"), "duration_seconds", true},
              {tr("payload"), "payload_bytes", true},
              {tr("bandwidth"), "bytes_per_second", true},
              {tr("exposed"), "exposed_seconds", true},
              {tr("waits for"), "waits_for"}},
             rows, [shown](int row, int column) -> TableCell {
               const StreamEvent& event = shown->curves.events[row];
               switch (column) {
                 case 0:
                   return cell_of(std::string(name_of(event.stream)));
                 case 1:
                   return cell_of(event.name.empty() ? std::string("root") : event.name);
                 case 2:
                   return cell_of(name_of_unit(event.unit));
                 case 3:
                   return cell_of(std::string(name_of(event.phase)));
                 case 4:
                   return cell_of(event.start);
                 case 5:
                   return cell_of(event.end - event.start);
                 case 6:
                   return event.payload ? cell_of(event.payload->bytes) : TableCell{};
                 case 7:
                   return event.payload ? TableCell{QString::fromStdString(format_bandwidth(bandwidth_of(event))),
                                                    bandwidth_of(event).count()}
                                        : TableCell{};
                 case 8:
                   return cell_of(event.exposed);
                 default: {
                   QStringList numbers;
                   for (const std::int32_t other : event.waits_for) numbers << QString::number(other + 1);
                   return cell_of(numbers.join(", "));
                 }
               }
             });
}

void StreamTimelineWidget::select_event(int event) {
  selected_ = event;
  update();
  if (event >= 0) emit event_chosen(event);
}

void StreamTimelineWidget::select_unit(const QString& unit) {
  unit_ = unit;
  has_unit_ = true;
  refresh();
}

int StreamTimelineWidget::row_at(const QRectF& plot, double y) const {
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const QRectF box = box_of(r, plot);
    if (y >= box.top() - 3 && y <= box.bottom() + 3) return static_cast<int>(r);
  }
  return -1;
}

void StreamTimelineWidget::pointed(const QPointF& at) {
  pointed_row_ = row_at(current_plot(), at.y());
}

int StreamTimelineWidget::event_at(double value) const {
  if (pointed_row_ < 0 || static_cast<std::size_t>(pointed_row_) >= rows_.size()) return -1;
  const LaneRow& row = rows_[pointed_row_];
  const double reach = 3 * range().visible().width() / std::max(1.0, current_plot().width());
  return span_at(row.spans, value, reach);
}

ValueRange StreamTimelineWidget::item_at(double value) const {
  const int number = event_at(value);
  if (number < 0) return {value, value};
  const StreamEvent& event = events_of(rows_[pointed_row_])[number];
  return {event.start.count(), event.end.count()};
}

double StreamTimelineWidget::next_stop(double value, int direction) const {
  if (pointed_row_ < 0 || static_cast<std::size_t>(pointed_row_) >= rows_.size()) return value;
  const std::vector<LaneSpan>& spans = rows_[pointed_row_].spans;
  const auto middle = [](const LaneSpan& span) { return (span.begin + span.end) / 2; };
  if (direction > 0) {
    for (const LaneSpan& span : spans) {
      if (middle(span) > value * (1 + 1e-12) + 1e-15) return middle(span);
    }
    return value;
  }
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    if (middle(*span) < value * (1 - 1e-12) - 1e-15) return middle(*span);
  }
  return value;
}

void StreamTimelineWidget::activate(const QPointF& at) {
  if (rows_.empty()) return;
  const int row = row_at(current_plot(), at.y());
  if (row >= 0 && !hasFocus()) pointed_row_ = row;
  const int number = event_at(time_axis(current_plot()).to_value(at.x()));
  const bool is_predicted = number >= 0 && !rows_[pointed_row_].is_measured;
  select_event(is_predicted ? number : -1);
  if (is_predicted) {
    emit unit_chosen(QString::fromStdString(snapshot()->curves.events[number].unit));
  }
}

void StreamTimelineWidget::keyPressEvent(QKeyEvent* event) {
  const bool is_vertical = event->key() == Qt::Key_Up || event->key() == Qt::Key_Down;
  if (!is_vertical || rows_.empty()) return PlotWidget::keyPressEvent(event);
  const int last = static_cast<int>(rows_.size()) - 1;
  pointed_row_ = std::clamp(pointed_row_ + (event->key() == Qt::Key_Down ? 1 : -1), 0, last);
  const ValueRange& now = range().visible();
  const double at = range().pointer().value_or((now.begin + now.end) / 2);
  point_at(at);
  update();
}

QString StreamTimelineWidget::status_at(double value) const {
  const int number = event_at(value);
  if (number < 0) return text_of(Seconds(value));
  const LaneRow& row = rows_[pointed_row_];
  const StreamEvent& event = events_of(row)[number];
  QString text = tr("%1 · %2 · %3")
                     .arg(row.name, event.name.empty() ? tr("root") : QString::fromStdString(event.name),
                          text_of(event.end - event.start));
  if (event.payload) {
    text += tr(" · %1 at %2")
                .arg(text_of(event.payload->bytes), QString::fromStdString(format_bandwidth(bandwidth_of(event))));
  }
  return text;
}

QString StreamTimelineWidget::describe(const ValueRange& selection) const {
  if (snapshot() == nullptr) return {};
  double compute = 0;
  std::vector<ValueRange> communicates;  // All communication streams, which overlap.
  int count = 0;
  for (const LaneRow& row : rows_) {
    if (row.is_measured) continue;
    for (const LaneSpan& span : row.spans) {
      const double shared = std::min(span.end, selection.end) - std::max(span.begin, selection.begin);
      if (shared <= 0) continue;
      ++count;
      if (row.lane == Lane::Compute) compute += shared;
      if (row.lane == Lane::Compute || row.lane == Lane::Copy) continue;
      communicates.push_back({std::max(span.begin, selection.begin), std::min(span.end, selection.end)});
    }
  }
  const double communication = covered_length(std::move(communicates));
  const double width = selection.width();
  return tr("%1 · %2 events · computing %3 % · communicating %4 % of the time")
      .arg(text_of(Seconds(width)))
      .arg(count)
      .arg(100 * compute / width, 0, 'f', 0)
      .arg(100 * communication / width, 0, 'f', 0);
}

std::vector<LegendEntry> StreamTimelineWidget::legend() const {
  const QColor& compute = theme().lane[static_cast<std::size_t>(Lane::Compute)];
  std::vector<LegendEntry> entries = {{tr("compute:"), {}}};
  const auto add = [&](Work work, const QString& text) { entries.push_back({text, color_of(work, compute, theme())}); };
  const auto& events = snapshot()->curves.events;
  const auto is_recomputed = [](const StreamEvent& event) { return event.name == "recompute"; };
  add(Work::Forward, tr("forward"));
  add(Work::Backward, tr("backward"));
  if (std::any_of(events.begin(), events.end(), is_recomputed)) add(Work::Recompute, tr("recomputed"));
  add(Work::Optimizer, tr("optimizer"));
  entries.push_back({tr("exposed: compute waits"), theme().bad, true});
  return entries;
}

// A low window gives its room to the lanes.
qreal StreamTimelineWidget::legend_height(const QRectF& bounds) const {
  if (rows_.empty() || bounds.height() < 26 * static_cast<qreal>(rows_.size()) + 56) return 0;
  return draw_legend(nullptr, font(), bounds.adjusted(12, 4, -kRight, 0), legend(), theme());
}

// A measured lane stands below its prediction.
QString StreamTimelineWidget::label_of(const LaneRow& row) {
  return row.is_measured ? tr("measured") : row.name;
}

QRectF StreamTimelineWidget::plot_area(const QRectF& bounds) const {
  const QFontMetricsF metrics(font());
  qreal left = kLeast;
  for (const LaneRow& row : rows_) left = std::max(left, metrics.horizontalAdvance(label_of(row)) + 20);
  return bounds.adjusted(left, 10 + legend_height(bounds), -kRight, -metrics.height() - 12);
}

QRectF StreamTimelineWidget::box_of(std::size_t row, const QRectF& plot) const {
  const qreal height = plot.height() / std::max<qreal>(1, static_cast<qreal>(rows_.size()));
  const qreal bar = std::min(height - 5, std::max(40.0, height * 0.7));
  const qreal top = plot.top() + static_cast<qreal>(row) * height + (height - bar) / 2;
  return {plot.left(), top, plot.width(), std::max(3.0, bar)};
}

QRectF StreamTimelineWidget::rect_of(int event, const QRectF& plot) const {
  const ChartAxis axis = time_axis(plot);
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    if (rows_[r].is_measured) continue;
    const StreamEvent& wanted = snapshot()->curves.events[event];
    if (rows_[r].spans.empty() || snapshot()->curves.events[rows_[r].spans.front().item].stream != wanted.stream) {
      continue;
    }
    const QRectF box = box_of(r, plot);
    const qreal begin = axis.to_pixel(wanted.start.count());
    return {begin, box.top(), std::max(1.5, axis.to_pixel(wanted.end.count()) - begin), box.height()};
  }
  return {};
}

void StreamTimelineWidget::draw_chart(QPainter& painter, const QRectF& bounds, const QRectF& plot) {
  if (rows_.empty()) {
    return draw_empty(painter, bounds, empty_text(tr("Choose a model to see what its streams do.")), theme());
  }
  if (plot.width() < 20 || plot.height() < 20) return;
  const ChartAxis axis = time_axis(plot);
  if (legend_height(bounds) > 0) {
    draw_legend(&painter, font(), bounds.adjusted(12, 4, -kRight, 0), legend(), theme());
  }
  draw_time_axis(painter, plot, axis, time_ticks(axis.values, std::max(2, static_cast<int>(plot.width() / 90))),
                 theme(), {});
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const QRectF box = box_of(r, plot);
    painter.setPen(rows_[r].is_measured ? theme().text : theme().text_weak);
    QFont small = font();
    const qreal pitch = plot.height() / static_cast<qreal>(rows_.size());
    if (pitch < QFontMetricsF(small).height()) small.setPixelSize(std::max(6, static_cast<int>(pitch * 0.8)));
    painter.setFont(small);
    const QFontMetricsF metrics(small);
    painter.drawText(QPointF(plot.left() - 10 - metrics.horizontalAdvance(label_of(rows_[r])),
                             box.center().y() + metrics.capHeight() / 2),
                     label_of(rows_[r]));
    painter.fillRect(box, with_alpha(theme().grid, 0.35));
  }
  painter.setFont(font());
  painter.save();
  painter.setClipRect(plot);
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    draw_row(painter, plot, r);
    draw_exposed(painter, plot, r);
  }
  painter.restore();
}

// In a run of several events, each kind of work gets its share of the height, in a color as strong as the events are
// busy.
void StreamTimelineWidget::draw_run(QPainter& painter, const QRectF& shape, const LaneRun& run,
                                    const QColor& lane) const {
  const double strength = run.count > 1 ? 0.25 + 0.75 * run.busy : 1;
  qreal top = shape.top();
  for (std::size_t kind = 0; kind < run.shares.size(); ++kind) {
    const qreal height = shape.height() * run.shares[kind];
    if (height <= 0) continue;
    painter.fillRect(QRectF(shape.left(), top, shape.width(), height),
                     with_alpha(color_of(static_cast<Work>(kind), lane, theme()), strength));
    top += height;
  }
}

void StreamTimelineWidget::draw_row(QPainter& painter, const QRectF& plot, std::size_t row) const {
  const LaneRow& lane = rows_[row];
  const std::vector<StreamEvent>& events = events_of(lane);
  const QRectF box = box_of(row, plot);
  const QColor color = theme().lane[static_cast<std::size_t>(lane.lane)];
  const QFontMetricsF metrics(font());
  for (const LaneRun& run : runs_of(lane.spans, time_axis(plot))) {
    const QRectF shape(run.begin, box.top(), std::max(0.75, run.end - run.begin), box.height());
    const StreamEvent& event = events[run.item];
    const bool is_joined = run.count > 1;
    const bool is_marked = has_unit_ && QString::fromStdString(event.unit) == unit_ && !is_joined;
    const QColor fill = color_of(main_work(run), color, theme());
    draw_run(painter, shape, run, color);
    const qreal width = shape.width();
    if (width > 4 && !is_joined)
      painter.fillRect(QRectF(shape.right() - 1, shape.top(), 1, shape.height()), theme().background);
    if (is_marked) {
      painter.setPen(hairline(theme().accent, 2));
      painter.setBrush(Qt::NoBrush);
      painter.drawRect(shape.adjusted(1, 1, -1, -1));
    }
    if (box.height() < metrics.height() + 3 || width < 26) continue;
    const QString name = is_joined ? QString("× %1").arg(run.count)
                                   : (event.name.empty() ? tr("root") : QString::fromStdString(event.name));
    const auto most = static_cast<std::size_t>((width - 8) / metrics.averageCharWidth());
    QString text =
        metrics.horizontalAdvance(name) <= width - 8
            ? name
            : (is_joined || most < 5 ? QString() : QString::fromStdString(shortened_name(name.toStdString(), most)));
    if (metrics.horizontalAdvance(text) > width - 6) text.clear();
    painter.setPen(is_joined && run.busy < 0.5 ? theme().text : text_on(fill));
    painter.drawText(shape, Qt::AlignCenter, text);
  }
}

void StreamTimelineWidget::draw_exposed(QPainter& painter, const QRectF& plot, std::size_t row) const {
  const LaneRow& lane = rows_[row];
  if (lane.lane == Lane::Compute) return;
  const std::vector<StreamEvent>& events = events_of(lane);
  const QRectF box = box_of(row, plot);
  std::vector<LaneSpan> exposed;
  for (const LaneSpan& span : lane.spans) {
    const double time = events[span.item].exposed.count();
    if (time > 0) exposed.push_back({std::max(span.begin, span.end - time), span.end, span.item});
  }
  QPainterPath path;
  for (const LaneRun& run : runs_of(exposed, time_axis(plot))) {
    if (run.end - run.begin < kNarrowestSpan) continue;
    path.addRect(QRectF(run.begin, box.top(), run.end - run.begin, box.height()));
    painter.fillRect(QRectF(run.begin, box.bottom() - 3, run.end - run.begin, 3), theme().bad);
  }
  draw_hatch(painter, path, text_on(theme().lane[static_cast<std::size_t>(lane.lane)]), 5);
}

void StreamTimelineWidget::draw_arrows(QPainter& painter, const QRectF& plot, int number) const {
  if (number < 0 || static_cast<std::size_t>(number) >= waited_by_.size()) return;
  const auto& events = snapshot()->curves.events;
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setClipRect(plot.adjusted(0, -4, 0, 4));
  const QRectF own = rect_of(number, plot);
  painter.setBrush(Qt::NoBrush);
  painter.setPen(hairline(theme().text, 2));
  painter.drawRect(own);
  const auto arrow = [&](int from, int to, const QColor& color) {
    const QRectF source = rect_of(from, plot);
    const QRectF target = rect_of(to, plot);
    const bool goes_down = source.top() < target.top();
    const QPointF begin(source.right(), goes_down ? source.bottom() : source.top());
    const QPointF end(target.left(), goes_down ? target.top() : target.bottom());
    const qreal bend = std::max(12.0, std::abs(end.y() - begin.y()) * 0.5) * (goes_down ? 1 : -1);
    QPainterPath path(begin);
    path.cubicTo(begin + QPointF(0, bend), end - QPointF(0, bend), end);
    painter.setPen(hairline(theme().background, 4));
    painter.drawPath(path);
    painter.setPen(hairline(color, 1.8));
    painter.drawPath(path);
    painter.setBrush(color);
    const qreal sign = goes_down ? -1 : 1;
    painter.drawPolygon(QPolygonF({end, end + QPointF(-4, 7 * sign), end + QPointF(4, 7 * sign)}));
    painter.setBrush(Qt::NoBrush);
  };
  for (const std::int32_t other : events[number].waits_for) arrow(other, number, theme().text);
  for (const std::int32_t other : waited_by_[number]) arrow(number, other, theme().accent);
  painter.restore();
}

void StreamTimelineWidget::draw_pointer(QPainter& painter, const QRectF& bounds, const QRectF& plot, double value) {
  if (rows_.empty()) return;
  const qreal x = time_axis(plot).to_pixel(value);
  painter.setPen(hairline(theme().text));
  painter.drawLine(QPointF(x, plot.top()), QPointF(x, plot.bottom()));
  const int number = points_here() ? event_at(value) : -1;
  const bool is_predicted = number >= 0 && !rows_[pointed_row_].is_measured;
  draw_arrows(painter, plot, is_predicted ? number : selected_);
  if (number < 0) return;
  const LaneRow& row = rows_[pointed_row_];
  const StreamEvent& event = events_of(row)[number];
  std::vector<NoteLine> lines;
  lines.push_back({event.name.empty() ? tr("root") : QString::fromStdString(event.name), {}, {}, true});
  lines.push_back(
      {row.name, text_of(std::string(name_of(event.phase))), theme().lane[static_cast<std::size_t>(row.lane)]});
  lines.push_back({tr("unit"), name_of_unit(event.unit), {}});
  lines.push_back({tr("takes"), text_of(event.end - event.start), {}});
  lines.push_back({tr("starts at"), text_of(event.start), {}});
  if (event.payload) {
    lines.push_back({tr("payload"), text_of(event.payload->bytes), {}});
    lines.push_back({tr("bandwidth"), QString::fromStdString(format_bandwidth(bandwidth_of(event))), {}});
    lines.push_back({tr("dtype"), QString::fromStdString(std::string(name_of(event.payload->dtype))), {}});
    lines.push_back({tr("ranks"), QString::number(event.payload->group_size), {}});
    const double share = 1 - event.exposed.count() / std::max(1e-12, (event.end - event.start).count());
    lines.push_back({tr("exposed"), text_of(event.exposed), {}, event.exposed > Seconds(0)});
    lines.push_back({tr("hidden by compute"), QString("%1 %").arg(100 * std::clamp(share, 0.0, 1.0), 0, 'f', 0), {}});
  }
  const QRectF box = box_of(static_cast<std::size_t>(pointed_row_), plot);
  draw_note(painter, bounds.adjusted(4, 4, -4, -4), QPointF(x, box.bottom() - 10), lines, theme());
}

}  // namespace fsdp::gui
