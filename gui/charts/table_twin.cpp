#include "gui/charts/table_twin.h"

#include "gui/charts/plot_paint.h"

namespace fsdp::gui {

TableCell cell_of(Bytes bytes) {
  return {text_of(bytes), static_cast<qlonglong>(bytes.count())};
}

TableCell cell_of(Seconds time) {
  return {text_of(time), time.count()};
}

TableCell cell_of(std::int64_t count) {
  return {QString::number(count), static_cast<qlonglong>(count)};
}

TableCell cell_of(const QString& text) {
  return {text, text};
}

TableCell cell_of(const std::string& text) {
  return cell_of(QString::fromStdString(text));
}

void TableTwin::set(std::vector<TableColumn> columns, int rows, std::function<TableCell(int, int)> cell) {
  beginResetModel();
  columns_ = std::move(columns);
  rows_ = rows;
  cell_ = std::move(cell);
  endResetModel();
}

int TableTwin::rowCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : rows_;
}

int TableTwin::columnCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(columns_.size());
}

QVariant TableTwin::data(const QModelIndex& index, int role) const {
  if (!index.isValid() || index.row() >= rows_ || index.column() >= columnCount()) return {};
  if (role == Qt::TextAlignmentRole) {
    const bool is_numeric = columns_[index.column()].is_numeric;
    return static_cast<int>((is_numeric ? Qt::AlignRight : Qt::AlignLeft) | Qt::AlignVCenter);
  }
  if (role == Qt::DisplayRole) return cell_(index.row(), index.column()).text;
  if (role == kExact) return cell_(index.row(), index.column()).exact;
  return {};
}

QVariant TableTwin::headerData(int section, Qt::Orientation orientation, int role) const {
  if (role != Qt::DisplayRole) return {};
  if (orientation == Qt::Vertical) return section + 1;
  if (section < 0 || section >= columnCount()) return {};
  return columns_[static_cast<std::size_t>(section)].title;
}

}  // namespace fsdp::gui
