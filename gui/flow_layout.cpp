#include "gui/flow_layout.h"

#include <QWidget>
#include <algorithm>

namespace fsdp::gui {

namespace {

constexpr int kMostRows = 2;

}  // namespace

FlowLayout::~FlowLayout() {
  while (QLayoutItem* item = takeAt(0)) delete item;
}

QLayoutItem* FlowLayout::takeAt(int index) {
  return index >= 0 && index < items_.size() ? items_.takeAt(index) : nullptr;
}

QSize FlowLayout::minimumSize() const {
  int height = 0;
  for (const QLayoutItem* item : items_) height = std::max(height, item->sizeHint().height());
  return {0, height};
}

void FlowLayout::setGeometry(const QRect& rect) {
  QLayout::setGeometry(rect);
  place(rect, true);
}

int FlowLayout::place(const QRect& rect, bool moves) const {
  int x = rect.x();
  int y = rect.y();
  int row_height = 0;
  int row = 0;
  for (QLayoutItem* item : items_) {
    const QSize size = item->sizeHint().boundedTo(QSize(rect.width(), item->sizeHint().height()));
    if (x > rect.x() && x + size.width() > rect.x() + rect.width()) {
      x = rect.x();
      y += row_height + spacing();
      row_height = 0;
      ++row;
    }
    if (moves) {
      item->setGeometry(QRect(QPoint(x, y), size));
      item->widget()->setVisible(row < kMostRows);
    }
    if (row < kMostRows) row_height = std::max(row_height, size.height());
    x += size.width() + spacing();
    if (row >= kMostRows) break;
  }
  if (row >= kMostRows) y -= spacing();
  return y + row_height - rect.y();
}

}  // namespace fsdp::gui
