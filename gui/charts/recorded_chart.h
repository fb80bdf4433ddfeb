#pragma once

// Live and reserved bytes of a recording over its allocations and frees; a click chooses a moment.

#include <QWidget>
#include <memory>
#include <vector>

#include "gui/charts/chart_axis.h"
#include "gui/overlay/recorded_memory.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

class RecordedChart : public QWidget {
  Q_OBJECT

 public:
  explicit RecordedChart(QWidget* parent = nullptr);
  void show_memory(std::shared_ptr<const RecordedMemory> memory);
  /// Reserved bytes under other settings. Empty to show the recorded ones only.
  void show_replayed(std::vector<Bytes> reserved);
  void set_theme(const Theme& theme);
  std::size_t moment() const { return moment_; }
  void set_moment(std::size_t step);

  QSize sizeHint() const override { return {720, 260}; }
  QSize minimumSizeHint() const override { return {260, 110}; }

 signals:
  void moment_chosen(std::size_t step);

 protected:
  void paintEvent(QPaintEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;

 private:
  QRectF plot() const;
  std::int64_t top() const;
  void draw_curves(QPainter& painter, const QRectF& plot, const ChartAxis& values) const;

  std::shared_ptr<const RecordedMemory> memory_;
  std::vector<Bytes> replayed_;
  Theme theme_ = light_theme();
  std::size_t moment_ = 0;
};

}  // namespace fsdp::gui
