#pragma once

#include <QWidget>

#include "core/report/report.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

/// The device's memory as a bar: used, margin, free, and missing.
class BudgetBar : public QWidget {
  Q_OBJECT

 public:
  explicit BudgetBar(QWidget* parent = nullptr);
  void show_report(const MemoryReport& memory, const StepReport* baseline);
  void set_theme(const Theme& theme);
  QSize sizeHint() const override { return {260, 22}; }

 protected:
  void paintEvent(QPaintEvent* event) override;

 private:
  MemoryReport memory_;
  Bytes baseline_peak_{-1};
  Theme theme_ = light_theme();
};

}  // namespace fsdp::gui
