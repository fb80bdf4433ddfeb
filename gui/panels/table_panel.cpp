#include "gui/panels/table_panel.h"

#include <QAction>
#include <QApplication>
#include <QClipboard>
#include <QHeaderView>
#include <QVBoxLayout>
#include <algorithm>

#include "gui/charts/table_twin.h"

namespace fsdp::gui {

TablePanel::TablePanel(QWidget* parent) : QWidget(parent) {
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(6, 6, 6, 6);
  choice_ = new QComboBox(this);
  choice_->setObjectName("table_choice");
  choice_->setAccessibleName(tr("Which table"));
  choice_->setToolTip(tr("The same figures as the chart of this name"));
  view_ = new QTableView(this);
  view_->setObjectName("table");
  view_->setAccessibleName(tr("Table"));
  view_->setAlternatingRowColors(true);
  view_->setSortingEnabled(true);
  view_->verticalHeader()->hide();
  view_->verticalHeader()->setDefaultSectionSize(fontMetrics().height() + 8);
  view_->horizontalHeader()->setStretchLastSection(true);
  sorted_.setSortRole(TableTwin::kExact);
  view_->setModel(&sorted_);
  view_->horizontalHeader()->setSortIndicator(-1, Qt::AscendingOrder);
  auto* copy = new QAction(tr("Copy"), this);
  copy->setShortcut(QKeySequence::Copy);
  copy->setShortcutContext(Qt::WidgetWithChildrenShortcut);
  copy->setToolTip(tr("Copy the selection, with tabs between the columns"));
  connect(copy, &QAction::triggered, this, &TablePanel::copy_selection);
  view_->addAction(copy);
  view_->setContextMenuPolicy(Qt::ActionsContextMenu);
  column->addWidget(choice_, 0, Qt::AlignLeft);
  column->addWidget(view_);
  connect(&sorted_, &QAbstractItemModel::modelReset, this, &TablePanel::fit_columns);
  connect(choice_, &QComboBox::currentIndexChanged, this, &TablePanel::show_table);
}

void TablePanel::add_table(const QString& title, QAbstractItemModel* table) {
  tables_.push_back(table);
  choice_->addItem(title);
}

const QAbstractItemModel* TablePanel::current() const {
  const int index = choice_->currentIndex();
  return index < 0 ? nullptr : tables_[index];
}

void TablePanel::show_table(int index) {
  if (index < 0) return;
  sorted_.setSourceModel(is_in_sight_ ? tables_[index] : nullptr);
  if (is_in_sight_) fit_columns();
}

void TablePanel::set_in_sight(bool is_in_sight) {
  if (is_in_sight == is_in_sight_) return;
  is_in_sight_ = is_in_sight;
  show_table(choice_->currentIndex());
}

// Measures the titles and the first rows only: a long table would take seconds.
void TablePanel::fit_columns() {
  constexpr int kWidest = 420;
  QHeaderView& header = *view_->horizontalHeader();
  header.setResizeContentsPrecision(200);
  view_->resizeColumnsToContents();
  for (int column = 0; column < header.count(); ++column) {
    header.resizeSection(column, std::clamp(header.sectionSize(column) + 10, 60, kWidest));
  }
}

void TablePanel::copy_selection() const {
  QModelIndexList cells = view_->selectionModel()->selectedIndexes();
  std::sort(cells.begin(), cells.end());
  QString text;
  for (qsizetype i = 0; i < cells.size(); ++i) {
    if (i > 0) text += cells[i].row() == cells[i - 1].row() ? '\t' : '\n';
    text += cells[i].data().toString();
  }
  QApplication::clipboard()->setText(text);
}

}  // namespace fsdp::gui
