#include "gui/panels/budget_bar.h"

#include <QPainter>
#include <algorithm>

#include "core/report/device_verdict.h"
#include "gui/theme/figure_text.h"

namespace fsdp::gui {

BudgetBar::BudgetBar(QWidget* parent) : QWidget(parent) {
  setObjectName("budget_bar");
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
  setMinimumWidth(120);
}

void BudgetBar::show_report(const MemoryReport& memory, const StepReport* baseline) {
  memory_ = memory;
  baseline_peak_ = baseline == nullptr ? Bytes(-1) : baseline->memory.peaks.device;
  const QString text = tr("Device peak %1 of %2; %3 are kept free as a margin")
                           .arg(text_of(memory.peaks.device), text_of(memory.budget), text_of(memory.margin));
  setToolTip(text);
  setAccessibleName(text);
  update();
}

void BudgetBar::set_theme(const Theme& theme) {
  theme_ = theme;
  update();
}

void BudgetBar::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(this);
  painter.setRenderHint(QPainter::Antialiasing);
  const double most = static_cast<double>(
      std::max({memory_.budget.count(), memory_.peaks.device.count(), baseline_peak_.count(), std::int64_t{1}}));
  const QRectF track = QRectF(rect()).adjusted(0.5, 3.5, -0.5, -3.5);
  const auto x_of = [&](Bytes bytes) {
    return track.left() + track.width() * static_cast<double>(bytes.count()) / most;
  };
  painter.setPen(Qt::NoPen);
  painter.setBrush(theme_.grid);
  painter.drawRoundedRect(track, 3, 3);
  const Bytes used = std::min(memory_.peaks.device, memory_.budget);
  const DeviceVerdict device = device_verdict_of(memory_);
  painter.setBrush(device.has_room() ? theme_.good : device.verdict == Verdict::Fits ? theme_.warn : theme_.bad);
  painter.drawRoundedRect(QRectF(track.topLeft(), QPointF(x_of(used), track.bottom())), 3, 3);
  // The margin is hatched: it must stay unused.
  const QRectF margin(QPointF(x_of(used), track.top()),
                      QPointF(x_of(std::min(used + memory_.margin, memory_.budget)), track.bottom()));
  painter.fillRect(margin, QBrush(theme_.text_weak, Qt::BDiagPattern));
  if (memory_.peaks.device > memory_.budget) {
    const QRectF missing(QPointF(x_of(memory_.budget), track.top()),
                         QPointF(x_of(memory_.peaks.device), track.bottom()));
    painter.fillRect(missing, QBrush(theme_.bad, Qt::DiagCrossPattern));
    painter.setPen(QPen(theme_.text, 2));
    painter.drawLine(QPointF(x_of(memory_.budget), 0), QPointF(x_of(memory_.budget), height()));
  }
  if (baseline_peak_ >= Bytes(0)) {
    painter.setPen(QPen(theme_.baseline, 2, Qt::DashLine));
    painter.drawLine(QPointF(x_of(baseline_peak_), 0), QPointF(x_of(baseline_peak_), height()));
  }
}

}  // namespace fsdp::gui
