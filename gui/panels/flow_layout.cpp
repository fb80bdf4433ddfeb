#include "gui/panels/flow_layout.h"

#include <QLabel>
#include <QWidget>
#include <algorithm>

namespace fsdp::gui {

namespace {

constexpr int kBetweenGroups = 8;

/// A narrow window needs the room below.
int most_rows(int width) {
  return width < 620 ? 1 : 2;
}

bool is_title(const QLayoutItem& item) {
  return qobject_cast<const QLabel*>(item.widget()) != nullptr;
}

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
  int bottom = rect.y();  // Bottom of the visible rows.
  int row = 0;
  const int most = most_rows(rect.width());
  for (qsizetype i = 0; i < items_.size(); ++i) {
    QLayoutItem* item = items_[i];
    QSize size = item->sizeHint().boundedTo(QSize(rect.width(), item->sizeHint().height()));
    const bool has_title = i > 0 && is_title(*items_[i - 1]);
    int together = size.width();
    if (is_title(*item)) {
      if (x > rect.x()) x += kBetweenGroups;
      size.setHeight(std::max(size.height(), minimumSize().height()));
      if (i + 1 < items_.size()) together += spacing() + items_[i + 1]->sizeHint().width();
    }
    if (has_title) {
      size.setWidth(std::min(size.width(), rect.x() + rect.width() - x));
    } else if (x > rect.x() && x + together > rect.x() + rect.width()) {
      x = rect.x();
      y += row_height + spacing();
      row_height = 0;
      ++row;
    }
    if (moves) {
      // Hiding a widget would start another layout from here.
      const bool is_shown = row < most;
      item->setGeometry(QRect(QPoint(x, y), is_shown ? size : QSize(0, 0)));
      if (!is_title(*item)) item->widget()->setFocusPolicy(is_shown ? Qt::StrongFocus : Qt::NoFocus);
    }
    row_height = std::max(row_height, size.height());
    if (row < most) bottom = y + row_height;
    x += size.width() + spacing();
  }
  return bottom - rect.y();
}

}  // namespace fsdp::gui
