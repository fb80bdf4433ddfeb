#pragma once

// Draws a bar under a number: its size relative to the largest.

#include <QStyledItemDelegate>

#include "gui/theme/theme.h"

namespace fsdp::gui {

class CostDelegate : public QStyledItemDelegate {
  Q_OBJECT

 public:
  /// `column` has exact amounts (TableTwin::kExact); its largest has the longest bar.
  CostDelegate(int column, QObject* parent) : QStyledItemDelegate(parent), column_(column) {}
  void set_theme(const Theme& theme) { theme_ = theme; }
  void set_largest(double largest) { largest_ = largest; }

  void paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const override;

 private:
  int column_;
  double largest_ = 0;
  Theme theme_ = light_theme();
};

}  // namespace fsdp::gui
