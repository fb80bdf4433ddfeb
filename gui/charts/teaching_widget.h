#pragma once

// Steps through one iteration of FSDP on drawn GPUs: sharded, gathered, computed, resharded, reduced, updated.

#include <QAction>
#include <QTimer>
#include <QToolButton>
#include <QWidget>

#include "gui/charts/chart_teaching.h"
#include "gui/state/snapshot.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

class TeachingWidget : public QWidget {
  Q_OBJECT

 public:
  explicit TeachingWidget(QWidget* parent = nullptr);

  void set_snapshot(SnapshotPtr snapshot);
  void set_theme(const Theme& theme);
  /// Frame 0 is before the step; the last one is the number of visible instructions.
  int frame() const { return frame_; }
  int num_frames() const { return static_cast<int>(lesson_.frames.size()); }
  void set_frame(int frame);
  bool is_playing() const { return timer_.isActive(); }
  void play();
  void pause();
  /// The number of frames a second is multiplied by one, two or four.
  void set_speed(int factor);
  void draw(QPainter& painter, const QRectF& bounds);

  QSize sizeHint() const override { return {760, 420}; }
  QSize minimumSizeHint() const override { return {320, 220}; }

 signals:
  /// The moment of the step that the frame shows.
  void moment_changed(double seconds);
  void frame_changed(int frame);

 protected:
  void paintEvent(QPaintEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  void add_buttons();
  void show_buttons();
  void step_by(int frames);
  QToolButton* add_button(const QString& name, const QString& sign, const QString& tip);
  QRectF slider_of(const QRectF& bounds) const;
  void draw_heading(QPainter& painter, const QRectF& box) const;
  void draw_gpu(QPainter& painter, const QRectF& box, int rank, int drawn) const;
  void draw_columns(QPainter& painter, const QRectF& box) const;
  void draw_unit(QPainter& painter, const QRectF& box, std::size_t unit, int rank, int drawn) const;
  void draw_slider(QPainter& painter, const QRectF& box) const;
  std::pair<std::size_t, std::size_t> shown_units(qreal height) const;

  SnapshotPtr snapshot_;
  Lesson lesson_;
  std::int64_t ranks_ = 0;     ///< GPUs that share the parameters.
  std::int64_t replicas_ = 1;  ///< Groups of such GPUs.
  int frame_ = 0;
  Theme theme_ = light_theme();
  QTimer timer_;
  int speed_ = 1;
  QToolButton* back_ = nullptr;
  QToolButton* play_ = nullptr;
  QToolButton* next_ = nullptr;
  QToolButton* fast_ = nullptr;
};

}  // namespace fsdp::gui
