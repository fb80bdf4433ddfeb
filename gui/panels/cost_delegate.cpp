#include "gui/panels/cost_delegate.h"

#include <QPainter>
#include <algorithm>

#include "gui/charts/plot_paint.h"
#include "gui/charts/table_twin.h"

namespace fsdp::gui {

void CostDelegate::paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const {
  if (index.column() == column_ && largest_ > 0) {
    const double share = std::clamp(index.data(TableTwin::kExact).toDouble() / largest_, 0.0, 1.0);
    const QVariant color = index.data(Qt::DecorationRole);
    const QRectF box = QRectF(option.rect).adjusted(1, 2, -1, -2);
    const QColor fill = color.canConvert<QColor>() ? color.value<QColor>() : theme_.accent;
    painter->fillRect(QRectF(box.right() - box.width() * share, box.top(), box.width() * share, box.height()),
                      with_alpha(fill, theme_.is_dark ? 0.45 : 0.35));
  }
  QStyleOptionViewItem plain(option);
  QStyledItemDelegate::paint(painter, plain, index);
}

}  // namespace fsdp::gui
