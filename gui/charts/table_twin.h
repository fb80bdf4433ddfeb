#pragma once

// A chart as a table, for screen readers and for files.

#include <QAbstractTableModel>
#include <QVariant>
#include <functional>
#include <vector>

#include "core/base/units.h"

namespace fsdp::gui {

struct TableColumn {
  QString title;  ///< For people.
  QString name;   ///< For files: "live_bytes".
  bool is_numeric = false;
};

/// The text for people and the value for files.
struct TableCell {
  QString text;
  QVariant exact;
};
TableCell cell_of(Bytes bytes);
TableCell cell_of(Seconds time);
TableCell cell_of(std::int64_t count);
TableCell cell_of(const QString& text);
TableCell cell_of(const std::string& text);

class TableTwin : public QAbstractTableModel {
  Q_OBJECT

 public:
  /// The exact value of a cell: what sorting and files use.
  static constexpr int kExact = Qt::UserRole;

  using QAbstractTableModel::QAbstractTableModel;

  /// Replaces the contents. `cell` is called for a cell only if it is shown.
  void set(std::vector<TableColumn> columns, int rows, std::function<TableCell(int row, int column)> cell);
  const std::vector<TableColumn>& columns() const { return columns_; }

  int rowCount(const QModelIndex& parent = {}) const override;
  int columnCount(const QModelIndex& parent = {}) const override;
  QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
  QVariant headerData(int section, Qt::Orientation orientation, int role = Qt::DisplayRole) const override;

 private:
  std::vector<TableColumn> columns_;
  int rows_ = 0;
  std::function<TableCell(int, int)> cell_;
};

}  // namespace fsdp::gui
