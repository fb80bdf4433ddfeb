#pragma once

// Every chart as a table, for screen readers, for copying and for files.

#include <QAbstractItemModel>
#include <QComboBox>
#include <QSortFilterProxyModel>
#include <QTableView>
#include <QWidget>
#include <vector>

namespace fsdp::gui {

class TablePanel : public QWidget {
  Q_OBJECT

 public:
  explicit TablePanel(QWidget* parent = nullptr);
  /// REQUIRES: `table` outlives this panel.
  void add_table(const QString& title, QAbstractItemModel* table);
  /// The table that is shown.
  const QAbstractItemModel* current() const;
  /// Whether the panel is visible: half a million rows are sorted and measured only if it is.
  void set_in_sight(bool is_in_sight);

 private:
  void show_table(int index);
  void fit_columns();
  void copy_selection() const;

  std::vector<QAbstractItemModel*> tables_;
  QSortFilterProxyModel sorted_;
  QComboBox* choice_;
  QTableView* view_;
  bool is_in_sight_ = false;
};

}  // namespace fsdp::gui
