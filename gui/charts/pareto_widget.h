#pragma once

// All plans of a search: the memory and the step time of each, the Pareto front, and the memory limit.

#include <QPushButton>
#include <vector>

#include "gui/charts/chart_scatter.h"
#include "gui/charts/plot_paint.h"
#include "gui/charts/plot_widget.h"
#include "gui/charts/table_twin.h"

namespace fsdp::gui {

class ParetoWidget : public PlotWidget {
  Q_OBJECT

 public:
  explicit ParetoWidget(QWidget* parent = nullptr);

  void set_snapshot(SnapshotPtr snapshot) override;
  void set_baseline(SnapshotPtr baseline) override;
  /// Marks the plan that Enter would choose; -1 marks none.
  void select_plan(int index);
  int selected_plan() const { return selected_; }

  QAbstractTableModel* twin_model() override { return &table_; }
  QString title() const override { return tr("Plans: memory and time"); }

 signals:
  /// A click or Enter chose the plan.
  void plan_chosen(const Plan& plan);
  /// The user pressed the button next to a lone plan: search for others.
  void search_wanted();

 protected:
  TimeRange& range() const override { return const_cast<TimeRange&>(steps_); }
  QRectF plot_area(const QRectF& bounds) const override;
  void draw_chart(QPainter& painter, const QRectF& bounds, const QRectF& plot) override;
  void draw_pointer(QPainter& painter, const QRectF& bounds, const QRectF& plot, double value) override;
  QString describe(const ValueRange& selection) const override;
  void activate(const QPointF& at) override;
  QString status_at(double value) const override;
  void pointed(const QPointF& at) override;
  void keyPressEvent(QKeyEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  struct PlanPoint {
    double time = 0;
    double bytes = 0;
    bool fits = false;
    bool is_current = false;
    bool is_uncertain = false;  ///< Within the band of the current plan.
  };
  void take_plans();
  void fill_table();
  ValueRange bytes_range() const;
  std::vector<LegendEntry> legend() const;
  qreal legend_height(const QRectF& bounds) const;
  bool has_legend(const QRectF& bounds) const;
  ChartAxis value_axis(const QRectF& plot) const;
  std::vector<ScatterPoint> pixels_of(const QRectF& plot) const;
  int nearest(const QPointF& at) const;
  QString lone_text() const;  ///< The text next to a lone plan.
  void place_search();
  void draw_point(QPainter& painter, const QPointF& at, bool fits) const;
  void draw_points(QPainter& painter, const std::vector<ScatterPoint>& pixels) const;
  bool has_band() const;
  void draw_band(QPainter& painter, const QRectF& plot) const;
  void draw_limit(QPainter& painter, const QRectF& plot) const;
  void draw_front(QPainter& painter, const QRectF& plot, const std::vector<ScatterPoint>& pixels) const;
  QString label_of(std::size_t index) const;

  TimeRange steps_;  // The axis of step times.
  std::vector<PlanPoint> points_;
  std::vector<std::int32_t> front_;
  int selected_ = -1;
  int pointed_ = -1;
  QPushButton* search_;
  TableTwin table_;
};

}  // namespace fsdp::gui
