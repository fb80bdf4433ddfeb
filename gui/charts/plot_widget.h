#pragma once

// The common part of all charts: painting on screen and on paper, zooming, moving, measuring, keys, and a table of the
// same data.

#include <QAbstractTableModel>
#include <QAction>
#include <QPixmap>
#include <QWidget>
#include <functional>
#include <memory>
#include <optional>

#include "gui/charts/time_range.h"
#include "gui/state/snapshot.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

/// An action of a widget: in its context menu, and by its keys while the widget has the focus.
QAction* add_widget_action(QWidget& widget, const QString& text, const QString& tip, const QList<QKeySequence>& keys,
                           const std::function<void()>& run);

class PlotWidget : public QWidget {
  Q_OBJECT

 public:
  /// `range` may be shared with other charts, and must outlive them; null if a subclass returns its own from range().
  explicit PlotWidget(TimeRange* range, QWidget* parent = nullptr);

  virtual void set_snapshot(SnapshotPtr snapshot);
  virtual void set_baseline(SnapshotPtr baseline);  ///< `baseline` may be null.
  void set_theme(const Theme& theme);
  const Theme& theme() const { return theme_; }
  /// A model is chosen, and its first answer is not there yet.
  void set_is_waiting(bool is_waiting);
  /// The shown state in one line: model, machines, plan and its figures. Empty if there is no state.
  QString caption() const;

  /// Draws the chart into `bounds`, for the screen and for files, without pointer and selection.
  void draw(QPainter& painter, const QRectF& bounds);
  /// The same data as a table.
  virtual QAbstractTableModel* twin_model() = 0;
  /// Title of the chart, for windows and files: "Memory over one step".
  virtual QString title() const = 0;

  QSize sizeHint() const override { return {720, 260}; }
  QSize minimumSizeHint() const override { return {260, 120}; }

 signals:
  /// A sentence about the item under the pointer. Empty if there is none.
  void status_changed(QString text);

 protected:
  virtual TimeRange& range() const { return *range_; }
  /// The part of `bounds` in which values are drawn. Called before any drawing.
  virtual QRectF plot_area(const QRectF& bounds) const = 0;
  virtual void draw_chart(QPainter& painter, const QRectF& bounds, const QRectF& plot) = 0;
  /// Draws on top at each movement of the pointer, so it must be cheap.
  virtual void draw_pointer(QPainter& painter, const QRectF& bounds, const QRectF& plot, double value) = 0;
  /// The text for a selection: "12.5 ms, 3 all-gathers".
  virtual QString describe(const ValueRange& selection) const = 0;
  /// The range of the item at a value, to which F zooms.
  virtual ValueRange item_at(double value) const { return {value, value}; }
  /// The next value to stop at with the arrow keys.
  virtual double next_stop(double value, int direction) const;
  /// Enter or a click at `at`.
  virtual void activate(const QPointF& /*at*/) {}
  virtual QString status_at(double /*value*/) const { return {}; }
  /// The pointer moved to `at`; y matters for charts with lanes.
  virtual void pointed(const QPointF& /*at*/) {}

  const SnapshotPtr& snapshot() const { return snapshot_; }
  const SnapshotPtr& baseline() const { return baseline_; }
  /// The text of a chart without a picture: `hint` until a model is chosen.
  QString empty_text(const QString& hint) const;
  ChartAxis time_axis(const QRectF& plot) const;
  QRectF current_plot() const { return plot_area(QRectF(rect())); }
  /// Draws the whole chart again.
  void refresh();
  /// Whether the pointer was last moved in this chart, and not by another chart or by a lesson. Only then a note is
  /// shown.
  bool points_here() const;
  void point_at(double value);
  QAction* add_action(const QString& text, const QString& tip, const QList<QKeySequence>& keys,
                      const std::function<void()>& run);
  /// Follows another range, for example if the axis changes.
  void watch(TimeRange* range);

  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void wheelEvent(QWheelEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void mouseReleaseEvent(QMouseEvent* event) override;
  void mouseDoubleClickEvent(QMouseEvent* event) override;
  void leaveEvent(QEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void focusInEvent(QFocusEvent* event) override;
  void focusOutEvent(QFocusEvent* event) override;

 private:
  enum class Drag { None, Select, Pan };
  void make_actions();
  void draw_selection(QPainter& painter, const QRectF& plot) const;

  TimeRange* range_;
  SnapshotPtr snapshot_;
  SnapshotPtr baseline_;
  Theme theme_ = light_theme();
  QPixmap picture_;  // Everything except the pointer.
  bool is_stale_ = true;
  bool is_waiting_ = false;
  Drag drag_ = Drag::None;
  QPointF pressed_;
  QPointF last_;
  std::optional<double> own_pointer_;
  bool has_moved_ = false;
};

}  // namespace fsdp::gui
