#include "gui/charts/stream_timeline_widget.h"

#include <QKeyEvent>
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/parse_units.h"
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

}  // namespace

StreamTimelineWidget::StreamTimelineWidget(TimeRange* range, QWidget* parent) : PlotWidget(range, parent) {
  setAccessibleName(tr("Streams over one step"));
  setAccessibleDescription(
      tr("What computes and what communicates when. Up and down choose a stream, left and right its next event, Enter "
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
      row.spans.push_back({events[i].start.count(), events[i].end.count(), static_cast<std::int32_t>(i)});
    }
    // The first three are always there, so that one plan does not look like another with less.
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
                   return cell_of(event.phase);
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
  range().point(at);
  emit status_changed(status_at(at));
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
  std::vector<ValueRange> communicates;  // Of all communication streams, which overlap.
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

}  // namespace fsdp::gui
