#pragma once

// The work of each stream over one step, the waits between streams, and exposed communication.

#include <array>
#include <vector>

#include "gui/charts/chart_lanes.h"
#include "gui/charts/plot_paint.h"
#include "gui/charts/plot_widget.h"
#include "gui/charts/table_twin.h"
#include "gui/overlay/overlay.h"

namespace fsdp::gui {

class StreamTimelineWidget : public PlotWidget {
  Q_OBJECT

 public:
  explicit StreamTimelineWidget(TimeRange* range, QWidget* parent = nullptr);

  void set_snapshot(SnapshotPtr snapshot) override;
  void set_overlay(OverlayPtr overlay);  ///< Measured lanes below the predicted ones; may be null.
  /// Marks an event, with arrows to the events it waits for and to those that wait for it; -1 marks none.
  void select_event(int event);
  int selected_event() const { return selected_; }
  /// Marks all events of a unit.
  void select_unit(const QString& unit);

  QAbstractTableModel* twin_model() override { return &table_; }
  QString title() const override { return tr("Streams over one step"); }

 signals:
  void unit_chosen(QString unit);
  void event_chosen(int event);

 protected:
  QRectF plot_area(const QRectF& bounds) const override;
  void draw_chart(QPainter& painter, const QRectF& bounds, const QRectF& plot) override;
  void draw_pointer(QPainter& painter, const QRectF& bounds, const QRectF& plot, double value) override;
  QString describe(const ValueRange& selection) const override;
  ValueRange item_at(double value) const override;
  double next_stop(double value, int direction) const override;
  void activate(const QPointF& at) override;
  QString status_at(double value) const override;
  void pointed(const QPointF& at) override;
  void keyPressEvent(QKeyEvent* event) override;

 private:
  struct LaneRow {
    QString name;
    Lane lane = Lane::Compute;
    bool is_measured = false;
    std::vector<LaneSpan> spans;
  };
  const std::vector<StreamEvent>& events_of(const LaneRow& row) const;
  void make_rows();
  void fill_table();
  static QString label_of(const LaneRow& row);
  std::vector<LegendEntry> legend() const;
  qreal legend_height(const QRectF& bounds) const;  // 0 if there is no room for a legend.
  QRectF box_of(std::size_t row, const QRectF& plot) const;
  int row_at(const QRectF& plot, double y) const;
  int event_at(double value) const;  // The event on the row of the pointer.
  void draw_run(QPainter& painter, const QRectF& shape, const LaneRun& run, const QColor& lane) const;
  void draw_row(QPainter& painter, const QRectF& plot, std::size_t row) const;
  void draw_exposed(QPainter& painter, const QRectF& plot, std::size_t row) const;
  void draw_arrows(QPainter& painter, const QRectF& plot, int event) const;
  QRectF rect_of(int event, const QRectF& plot) const;

  std::vector<LaneRow> rows_;
  std::vector<std::vector<std::int32_t>> waited_by_;  // [events]
  OverlayPtr overlay_;
  int selected_ = -1;
  int pointed_row_ = 0;
  QString unit_;
  bool has_unit_ = false;
  TableTwin table_;
};

}  // namespace fsdp::gui
