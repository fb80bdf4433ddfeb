#include "gui/panels/module_tree.h"

#include <QHeaderView>
#include <QPainter>
#include <QStyledItemDelegate>
#include <QVBoxLayout>

#include "gui/state/plan_edit.h"

namespace fsdp::gui {

namespace {

/// A bar under the number, as long as its share.
class BarDelegate : public QStyledItemDelegate {
 public:
  using QStyledItemDelegate::QStyledItemDelegate;

  void paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const override {
    const QVariant share = index.data(ModuleTreeModel::kBarRole);
    if (share.isValid() && !(option.state & QStyle::State_Selected)) {
      QRectF bar = QRectF(option.rect).adjusted(2, 2, -2, -2);
      bar.setLeft(bar.right() - bar.width() * share.toDouble());
      QColor color = option.palette.color(QPalette::Highlight);
      color.setAlphaF(0.28F);
      painter->fillRect(bar, color);
    }
    QStyledItemDelegate::paint(painter, option, index);
  }
};

}  // namespace

ModuleTree::ModuleTree(AppState& state, QWidget* parent) : QWidget(parent), state_(state) {
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(6, 6, 6, 6);
  search_ = new QLineEdit(this);
  search_->setObjectName("module_search");
  search_->setPlaceholderText(tr("Search modules, such as mlp or DecoderLayer"));
  search_->setAccessibleName(tr("Search modules"));
  search_->setClearButtonEnabled(true);
  view_ = new QTreeView(this);
  view_->setObjectName("module_tree");
  view_->setAccessibleName(tr("Modules and their units"));
  view_->setUniformRowHeights(true);
  view_->setAlternatingRowColors(true);
  view_->setItemDelegateForColumn(ModuleTreeModel::kParameters, new BarDelegate(view_));
  view_->setContextMenuPolicy(Qt::ActionsContextMenu);
  proxy_.setSourceModel(&model_);
  proxy_.setRecursiveFilteringEnabled(true);
  proxy_.setFilterKeyColumn(-1);
  proxy_.setFilterCaseSensitivity(Qt::CaseInsensitive);
  view_->setModel(&proxy_);
  view_->header()->setStretchLastSection(true);
  view_->header()->setDefaultAlignment(Qt::AlignLeft | Qt::AlignVCenter);
  view_->setIndentation(14);
  // As wide as their widest text; the name gets the remaining width of a panel of the usual size.
  const auto wide = [this](const char* text) { return fontMetrics().horizontalAdvance(text) + 14; };
  view_->header()->resizeSection(ModuleTreeModel::kName, 150);
  view_->header()->resizeSection(ModuleTreeModel::kUnit, wide("Unit") + 2);
  view_->header()->resizeSection(ModuleTreeModel::kParameters, wide("999.9 M"));
  view_->header()->resizeSection(ModuleTreeModel::kReshard, wide("Reshard"));
  view_->header()->resizeSection(ModuleTreeModel::kCheckpoint, wide("selective"));
  view_->header()->resizeSection(ModuleTreeModel::kShare, wide("In unit"));
  column->addWidget(search_);
  column->addWidget(view_);
  connect(search_, &QLineEdit::textChanged, this, [this](const QString& text) {
    proxy_.setFilterFixedString(text);
    if (!text.isEmpty()) view_->expandAll();
  });
  connect(&model_, &ModuleTreeModel::unit_wanted, this, [this](const QString& module, bool is_unit) {
    const SnapshotPtr shown = state_.snapshot();
    if (!shown || !shown->model) return;
    change_plan(with_unit(shown->report.plan, *shown->model, module.toStdString(), is_unit),
                is_unit ? tr("make %1 a unit").arg(module) : tr("give %1 to the unit around it").arg(module));
  });
  connect(view_->selectionModel(), &QItemSelectionModel::currentChanged, this,
          [this](const QModelIndex& current, const QModelIndex&) {
            emit unit_chosen(current.data(ModuleTreeModel::kModuleNameRole).toString());
          });
  connect(&state_, &AppState::snapshot_changed, this, &ModuleTree::show_state);
  add_actions();
  show_state();
}

void ModuleTree::add_actions() {
  const auto add = [&](const QString& text, const QString& tip, const QKeySequence& key, auto&& act) {
    auto* action = new QAction(text, this);
    action->setToolTip(tip);
    action->setShortcut(key);
    action->setShortcutContext(Qt::WidgetWithChildrenShortcut);
    connect(action, &QAction::triggered, this, act);
    view_->addAction(action);
  };
  const auto reshard = [this](ReshardAfterForward::Kind kind, const QString& text) {
    const SnapshotPtr shown = state_.snapshot();
    if (!shown || unit_of(shown->report.plan, current_module().toStdString()) < 0) return;
    change_plan(fsdp::gui::with_reshard(shown->report.plan, current_module().toStdString(), {kind, 0}),
                tr("%1 of %2").arg(text, current_module()));
  };
  add(tr("Reshard after forward"), tr("reshard_after_forward=True for this unit"), Qt::CTRL | Qt::Key_R,
      [=] { reshard(ReshardAfterForward::Kind::Always, tr("reshard")); });
  add(tr("Keep unsharded until backward"), tr("reshard_after_forward=False for this unit"), Qt::CTRL | Qt::Key_U,
      [=] { reshard(ReshardAfterForward::Kind::Never, tr("keep unsharded")); });
  const auto checkpoint = [this](CheckpointMode mode, const QString& text) {
    const SnapshotPtr shown = state_.snapshot();
    if (!shown || current_module().isEmpty()) return;
    change_plan(with_checkpoint(shown->report.plan, current_module().toStdString(), mode),
                tr("%1 of %2").arg(text, current_module()));
  };
  add(tr("Checkpoint this block in full"), tr("Recompute its activations in backward"), Qt::CTRL | Qt::Key_K,
      [=] { checkpoint(CheckpointMode::Full, tr("full checkpointing")); });
  add(tr("Do not checkpoint this block"), tr("Keep its activations"), Qt::CTRL | Qt::SHIFT | Qt::Key_K,
      [=] { checkpoint(CheckpointMode::None, tr("no checkpointing")); });
}

QString ModuleTree::current_module() const {
  return view_->currentIndex().data(ModuleTreeModel::kModuleNameRole).toString();
}

void ModuleTree::change_plan(const Plan& plan, const QString& text) {
  state_.keep_plan(plan, text);
}

void ModuleTree::show_module(const QString& name) {
  QModelIndex index = model_.index_of_module(name);
  if (!index.isValid()) return;
  index = proxy_.mapFromSource(index);
  view_->setCurrentIndex(index);
  view_->scrollTo(index);
}

void ModuleTree::show_state() {
  model_.set_snapshot(state_.snapshot());
  const bool is_empty = model_.rowCount() == 0;
  if (was_empty_ && !is_empty) view_->expandToDepth(1);
  was_empty_ = is_empty;
}

void ModuleTree::set_theme(const Theme& theme) {
  view_->setPalette(palette_of(theme));
}

}  // namespace fsdp::gui
