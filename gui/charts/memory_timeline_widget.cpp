#include "gui/charts/memory_timeline_widget.h"

#include <QMouseEvent>
#include <algorithm>
#include <utility>

#include "gui/charts/plot_paint.h"

namespace fsdp::gui {

namespace {

std::vector<double> positions_of(const simulator::MemoryCurve& curve, MemoryTimelineWidget::Axis axis) {
  std::vector<double> positions(curve.size());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    positions[i] = axis == MemoryTimelineWidget::Axis::Time ? curve.time[i].count() : static_cast<double>(i);
  }
  return positions;
}

}  // namespace

MemoryTimelineWidget::MemoryTimelineWidget(TimeRange* range, QWidget* parent) : PlotWidget(range, parent) {
  watch(&events_);
  setAccessibleName(tr("Memory over one step"));
  setAccessibleDescription(tr(
      "Live memory by category, stacked below the capacity of the device. The arrow keys move from one change to the "
      "next; the table of this chart has the same figures."));
  add_action(tr("Time or events"), tr("Lay the chart out by time, or by allocations and frees"), {Qt::Key_T},
             [this] { set_axis(axis_ == Axis::Time ? Axis::Events : Axis::Time); });
  add_action(tr("Go to peak"), tr("Show the moment at which most is live"), {Qt::Key_P}, [this] { go_to_peak(); });
  add_action(tr("Initialization"), tr("Show memory while the model is made"), {Qt::Key_1},
             [this] { set_phase(RunPhase::Initialization); });
  add_action(tr("First step"), tr("Show the first step, in which the optimizer's states are made"), {Qt::Key_2},
             [this] { set_phase(RunPhase::FirstStep); });
  add_action(tr("Steady step"), tr("Show a step like all later ones"), {Qt::Key_3},
             [this] { set_phase(RunPhase::SteadyStep); });
}

TimeRange& MemoryTimelineWidget::range() const {
  const bool has_clock = axis_ == Axis::Time && wanted_phase_ != RunPhase::Initialization;
  return has_clock ? PlotWidget::range() : const_cast<TimeRange&>(events_);
}

bool MemoryTimelineWidget::has_curve() const {
  return snapshot() != nullptr && !snapshot()->curves.empty() && curve().size() > 0;
}

const simulator::MemoryCurve& MemoryTimelineWidget::curve() const {
  return snapshot()->curves.phases[phase_];
}

void MemoryTimelineWidget::set_snapshot(SnapshotPtr snapshot) {
  PlotWidget::set_snapshot(std::move(snapshot));
  take_phase();
}

void MemoryTimelineWidget::take_phase() {
  positions_.clear();
  pyramid_ = StackPyramid();
  phase_ = 0;
  if (snapshot() != nullptr) {
    const auto& phases = snapshot()->curves.phases;
    for (std::size_t i = 0; i < phases.size(); ++i) {
      if (phases[i].phase == wanted_phase_) phase_ = i;
    }
  }
  if (has_curve()) {
    const bool has_clock = &range() != &events_;
    positions_ = positions_of(curve(), has_clock ? Axis::Time : Axis::Events);
    pyramid_ = StackPyramid(curve().total);
    peak_ = curve().peak();
    most_reserved_ = *std::max_element(curve().reserved.begin(), curve().reserved.end());
    for (std::size_t c = 0; c < most_live_.size(); ++c) {
      const std::vector<std::int64_t>& live = curve().live[c];
      most_live_[c] = *std::max_element(live.begin(), live.end());
    }
    events_.set_full({0, static_cast<double>(curve().size())});
    // A first step with its own order of units takes longer.
    const double end = std::max(snapshot()->curves.step.count(), curve().time.back().count());
    if (has_clock) PlotWidget::range().set_full({0, std::max(1e-9, end)});
  }
  set_baseline(baseline());
  fill_table();
  refresh();
}

void MemoryTimelineWidget::set_baseline(SnapshotPtr baseline) {
  ghost_positions_.clear();
  ghost_ = StackPyramid();
  if (baseline != nullptr && phase_ < baseline->curves.phases.size()) {
    const simulator::MemoryCurve& other = baseline->curves.phases[phase_];
    ghost_positions_ = positions_of(other, &range() == &events_ ? Axis::Events : Axis::Time);
    ghost_ = StackPyramid(other.total);
  }
  PlotWidget::set_baseline(std::move(baseline));
}

void MemoryTimelineWidget::set_overlay(OverlayPtr overlay) {
  overlay_ = std::move(overlay);
  measured_ = overlay_ == nullptr ? StackPyramid() : StackPyramid(overlay_->allocated);
  refresh();
}

void MemoryTimelineWidget::set_axis(Axis axis) {
  axis_ = axis;
  take_phase();
}

void MemoryTimelineWidget::set_phase(RunPhase phase) {
  wanted_phase_ = phase;
  take_phase();
}

RunPhase MemoryTimelineWidget::phase() const {
  return has_curve() ? curve().phase : wanted_phase_;
}

void MemoryTimelineWidget::go_to(std::size_t moment) {
  if (!has_curve() || moment >= positions_.size()) return;
  const double at = positions_[moment];
  const ValueRange& now = range().visible();
  if (at < now.begin || at > now.end) range().pan(at - (now.begin + now.end) / 2);
  range().point(at);
  emit moment_chosen(static_cast<int>(phase_), static_cast<int>(moment));
}

void MemoryTimelineWidget::go_to_peak() {
  if (snapshot() == nullptr || snapshot()->curves.empty()) return;
  set_phase(snapshot()->curves.phases[snapshot()->curves.peak_phase()].phase);
  go_to(curve().peak());
}

void MemoryTimelineWidget::fill_table() {
  std::vector<TableColumn> columns = {{tr("event"), "event", true},
                                      {tr("time"), "seconds", true},
                                      {tr("instruction"), "instruction"},
                                      {tr("unit"), "unit"},
                                      {tr("tensor"), "tensor"},
                                      {tr("change"), "change_bytes", true},
                                      {tr("live"), "live_bytes", true},
                                      {tr("allocated"), "allocated_bytes", true},
                                      {tr("reserved"), "reserved_bytes", true}};
  const auto fixed = static_cast<int>(columns.size());
  for (int c = 0; c < kNumMemoryCategories; ++c) {
    const QString name = QString::fromStdString(std::string(name_of(static_cast<MemoryCategory>(c))));
    columns.push_back({name, name.toLower().replace(' ', '_') + "_bytes", true});
  }
  const int rows = has_curve() ? static_cast<int>(curve().size()) : 0;
  const SnapshotPtr shown = snapshot();
  table_.set(std::move(columns), rows, [shown, fixed, phase = phase_](int row, int column) {
    const simulator::StepCurves& curves = shown->curves;
    const simulator::MemoryCurve& curve = curves.phases[phase];
    const auto moment = static_cast<std::size_t>(row);
    const simulator::CurveInstruction* step = curves.instruction_at(phase, moment);
    switch (column) {
      case 0:
        return cell_of(static_cast<std::int64_t>(row));
      case 1:
        return cell_of(curve.time[moment]);
      case 2:
        return step == nullptr ? TableCell{} : cell_of(step->name);
      case 3:
        return step == nullptr ? TableCell{} : cell_of(name_of_unit(step->unit));
      case 4:
        return cell_of(curves.tensor_at(phase, moment));
      case 5:
        return cell_of(Bytes(curve.change[moment]));
      case 6:
        return cell_of(Bytes(curve.total[moment]));
      case 7:
        return cell_of(Bytes(curve.allocated[moment]));
      case 8:
        return cell_of(Bytes(curve.reserved[moment]));
      default:
        return cell_of(Bytes(curve.live[column - fixed][moment]));
    }
  });
}

QString MemoryTimelineWidget::describe(const ValueRange& selection) const {
  if (!has_curve()) return {};
  const std::size_t first = moment_at(positions_, selection.begin);
  const std::size_t last = std::max(first + 1, moment_at(positions_, selection.end) + 1);
  const std::size_t highest = pyramid_.highest(first, std::min(last, positions_.size()));
  const QString width =
      &range() == &events_ ? tr("%1 events").arg(selection.width(), 0, 'f', 0) : text_of(Seconds(selection.width()));
  return tr("%1 · %2 changes · at most %3 live")
      .arg(width)
      .arg(last - first)
      .arg(text_of(Bytes(curve().total[highest])));
}

ValueRange MemoryTimelineWidget::item_at(double value) const {
  if (!has_curve()) return {value, value};
  const simulator::CurveInstruction* step = snapshot()->curves.instruction_at(phase_, moment_at(positions_, value));
  if (step == nullptr || &range() == &events_) return {value, value};
  return {step->begin.count(), step->end.count()};
}

double MemoryTimelineWidget::next_stop(double value, int direction) const {
  if (!has_curve()) return value;
  if (direction > 0) {
    const auto next = std::upper_bound(positions_.begin(), positions_.end(), value);
    return next == positions_.end() ? value : *next;
  }
  const auto here = std::lower_bound(positions_.begin(), positions_.end(), value);
  return here == positions_.begin() ? value : *std::prev(here);
}

void MemoryTimelineWidget::activate(const QPointF& at) {
  if (!has_curve()) return;
  const QRectF plot = current_plot();
  const double value = time_axis(plot).to_value(at.x());
  if (value < range().full().begin || value > range().full().end) return;
  // A click selects the pixel, and the pixel shows its highest moment.
  const ChartAxis pixel{{value, time_axis(plot).to_value(at.x() + 1)}, 0, 1};
  const std::vector<StackColumn> columns = decimate(pyramid_, positions_, pixel, 1);
  const std::size_t moment = columns.empty() ? moment_at(positions_, value) : columns.front().moment;
  emit moment_changed(curve().time[moment].count());
  emit moment_chosen(static_cast<int>(phase_), static_cast<int>(moment));
  const simulator::CurveInstruction* step = snapshot()->curves.instruction_at(phase_, moment);
  if (step != nullptr) emit unit_chosen(QString::fromStdString(step->unit));
}

QString MemoryTimelineWidget::status_at(double value) const {
  if (!has_curve()) return {};
  const std::size_t moment = moment_at(positions_, value);
  const PeakMoment place = snapshot()->curves.moment_at(phase_, moment);
  return tr("%1 · %2 live · %3 reserved · %4")
      .arg(text_of(curve().time[moment]), text_of(Bytes(curve().total[moment])),
           text_of(Bytes(curve().reserved[moment])), QString::fromStdString(name_of(place)));
}

void MemoryTimelineWidget::mousePressEvent(QMouseEvent* event) {
  const QRectF map = minimap_of(QRectF(rect()));
  if (event->button() != Qt::LeftButton || !map.contains(event->position())) return PlotWidget::mousePressEvent(event);
  const ChartAxis axis{range().full(), map.left(), map.width()};
  const ValueRange& now = range().visible();
  range().pan(axis.to_value(event->position().x()) - (now.begin + now.end) / 2);
}

void MemoryTimelineWidget::mouseMoveEvent(QMouseEvent* event) {
  const QRectF map = minimap_of(QRectF(rect()));
  const bool drags = event->buttons().testFlag(Qt::LeftButton) && map.contains(event->position());
  if (!drags) return PlotWidget::mouseMoveEvent(event);
  const ChartAxis axis{range().full(), map.left(), map.width()};
  const ValueRange& now = range().visible();
  range().pan(axis.to_value(event->position().x()) - (now.begin + now.end) / 2);
}

}  // namespace fsdp::gui
