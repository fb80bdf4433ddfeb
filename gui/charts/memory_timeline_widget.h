#pragma once

// Memory over one step: live bytes by category, stacked on the other memory of the device, below its capacity.

#include <QString>
#include <vector>

#include "gui/charts/chart_stack.h"
#include "gui/charts/plot_paint.h"
#include "gui/charts/plot_widget.h"
#include "gui/charts/table_twin.h"
#include "gui/overlay/overlay.h"

namespace fsdp::gui {

/// Categories from the bottom of the stack to its top: permanent ones below temporary ones.
inline constexpr std::array<MemoryCategory, kNumMemoryCategories> kStackOrder = {
    MemoryCategory::ShardedParam, MemoryCategory::OptState,      MemoryCategory::ShardedGrad,
    MemoryCategory::Buffer,       MemoryCategory::Inputs,        MemoryCategory::UnshardedParam,
    MemoryCategory::AllGather,    MemoryCategory::UnshardedGrad, MemoryCategory::ReduceScatter,
    MemoryCategory::Activation,   MemoryCategory::Temp};

class MemoryTimelineWidget : public PlotWidget {
  Q_OBJECT

 public:
  enum class Axis { Time, Events };

  explicit MemoryTimelineWidget(TimeRange* range, QWidget* parent = nullptr);

  void set_snapshot(SnapshotPtr snapshot) override;
  void set_baseline(SnapshotPtr baseline) override;
  void set_overlay(OverlayPtr overlay);  ///< `overlay` may be null.
  void set_axis(Axis axis);
  Axis axis() const { return axis_; }
  /// Initialization, FirstStep or SteadyStep. The first has no clock; its axis counts events.
  void set_phase(RunPhase phase);
  RunPhase phase() const;
  /// Marks a moment and brings it into view.
  void go_to(std::size_t moment);
  void go_to_peak();

  QAbstractTableModel* twin_model() override { return &table_; }
  QString title() const override { return tr("Memory over one step"); }
  /// REQUIRES: there is a snapshot with curves.
  std::vector<LegendEntry> legend() const;

 signals:
  void moment_changed(double seconds);
  /// A click or Enter chose a moment; both numbers are indices in Snapshot::curves.
  void moment_chosen(int phase, int moment);
  void unit_chosen(QString unit);

 protected:
  TimeRange& range() const override;
  QRectF plot_area(const QRectF& bounds) const override;
  void draw_chart(QPainter& painter, const QRectF& bounds, const QRectF& plot) override;
  void draw_pointer(QPainter& painter, const QRectF& bounds, const QRectF& plot, double value) override;
  QString describe(const ValueRange& selection) const override;
  ValueRange item_at(double value) const override;
  double next_stop(double value, int direction) const override;
  void activate(const QPointF& at) override;
  QString status_at(double value) const override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;

 private:
  bool has_curve() const;
  const simulator::MemoryCurve& curve() const;
  ChartAxis value_axis(const QRectF& plot) const;
  struct Parts {
    qreal above = 0;  // Pixels around the plot.
    qreal below = 0;
    bool has_legend = false;
    bool has_minimap = false;
  };
  Parts parts_of(const QRectF& bounds) const;
  QRectF minimap_of(const QRectF& bounds) const;
  std::int64_t highest() const;  // Bytes that the axis must reach.
  ValueRange shown_bytes() const;
  /// Whether the axis leaves out most of the memory outside of PyTorch, which would fill the chart.
  bool is_cut() const;
  std::int64_t floor() const;  // Bytes below the curves.
  void take_phase();
  void fill_table();
  void draw_stack(QPainter& painter, const QRectF& plot, const std::vector<StackColumn>& columns);
  void draw_overhead(QPainter& painter, const ChartAxis& values, const std::vector<StackColumn>& columns,
                     const std::vector<qreal>& below);
  void draw_bars(QPainter& painter, const std::vector<StackColumn>& columns, const std::vector<qreal>& above,
                 const std::vector<qreal>& below, std::size_t category) const;
  void draw_shape(QPainter& painter, const std::vector<StackColumn>& columns, const std::vector<qreal>& above,
                  const std::vector<qreal>& below, std::size_t category) const;
  void draw_lines(QPainter& painter, const QRectF& plot, const std::vector<StackColumn>& columns);
  void draw_ticks(QPainter& painter, const QRectF& plot);
  void draw_cut(QPainter& painter, const QRectF& plot);
  void draw_limits(QPainter& painter, const QRectF& plot);
  void draw_peak(QPainter& painter, const QRectF& plot);
  void draw_phases(QPainter& painter, const QRectF& plot);
  void draw_ghosts(QPainter& painter, const QRectF& plot);
  void draw_minimap(QPainter& painter, const QRectF& box);

  Axis axis_ = Axis::Time;
  std::size_t phase_ = 0;
  RunPhase wanted_phase_ = RunPhase::SteadyStep;
  std::vector<double> positions_;  // [moments] On the axis.
  StackPyramid pyramid_;
  std::size_t peak_ = 0;                                        // Index of the moment.
  std::int64_t most_reserved_ = 0;                              // Bytes.
  std::array<std::int64_t, kNumMemoryCategories> most_live_{};  // Bytes.
  std::vector<double> ghost_positions_;
  StackPyramid ghost_;
  OverlayPtr overlay_;
  StackPyramid measured_;
  TimeRange events_;
  TableTwin table_;
};

}  // namespace fsdp::gui
