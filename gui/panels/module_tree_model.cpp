#include "gui/panels/module_tree_model.h"

#include <array>
#include <utility>

#include <algorithm>
#include <map>

#include "core/base/parse_units.h"
#include "gui/state/plan_edit.h"
#include "text/figures.h"

namespace fsdp::gui {

namespace {

QString text(const std::string& view) {
  return QString::fromStdString(view);
}

/// "1.93 B", as on model cards; the tool tip has all digits.
QString count_text(std::int64_t count) {
  constexpr std::array<std::pair<double, const char*>, 3> kScales = {{{1e9, " B"}, {1e6, " M"}, {1e3, " K"}}};
  for (const auto& [scale, unit] : kScales) {
    const double scaled = static_cast<double>(count) / scale;
    if (scaled < 0.9995) continue;
    return QString::number(scaled, 'f', scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0) + unit;
  }
  return QString::number(count);
}

QString reshard_text(const ReshardAfterForward& reshard) {
  switch (reshard.kind) {
    case ReshardAfterForward::Kind::Default:
      return QStringLiteral("default");
    case ReshardAfterForward::Kind::Always:
      return QStringLiteral("true");
    case ReshardAfterForward::Kind::Never:
      return QStringLiteral("false");
    case ReshardAfterForward::Kind::Smaller:
      return QString::number(reshard.world_size);
  }
  return {};
}

}  // namespace

void ModuleTreeModel::set_snapshot(SnapshotPtr snapshot) {
  const std::shared_ptr<const Model> model = snapshot ? snapshot->model : nullptr;
  const bool is_same =
      model && model_ && model->modules.size() == model_->modules.size() && model->name == model_->name;
  if (!is_same) beginResetModel();
  snapshot_ = std::move(snapshot);
  model_ = model;
  if (!is_same) count_parameters();
  unit_of_.assign(model_ ? model_->modules.size() : 0, -1);
  if (model_) {
    std::map<std::string_view, int> units;
    const std::vector<Unit>& all = snapshot_->report.plan.units;
    for (std::size_t u = 0; u < all.size(); ++u) {
      for (const std::string& module : all[u].modules) units[module] = static_cast<int>(u);
    }
    for (std::size_t m = 0; m < model_->modules.size(); ++m) {
      const auto found = units.find(model_->modules[m].name);
      if (found != units.end()) unit_of_[m] = found->second;
    }
  }
  if (!is_same) {
    endResetModel();
  } else {
    emit dataChanged(index(0, 0), index(0, kNumColumns - 1));
    for (std::size_t m = 0; m < model_->modules.size(); ++m) {
      const auto children = static_cast<int>(model_->modules[m].children.size());
      if (children == 0) continue;
      const QModelIndex parent = createIndex(rows_[m].place, 0, static_cast<quintptr>(m));
      emit dataChanged(index(0, 0, parent), index(children - 1, kNumColumns - 1, parent));
    }
  }
}

void ModuleTreeModel::count_parameters() {
  rows_.assign(model_ ? model_->modules.size() : 0, {});
  if (!model_) return;
  for (const Parameter& parameter : model_->parameters) {
    const std::int64_t elements = num_elements(parameter.shape);
    for (int module = parameter.module; module >= 0; module = model_->modules[module].parent) {
      rows_[module].parameters += elements;
    }
  }
  for (std::size_t m = 0; m < rows_.size(); ++m) {
    rows_[m].can_be_unit = m > 0 && model_->modules[m].called && rows_[m].parameters > 0;
    const std::vector<int>& children = model_->modules[m].children;
    for (std::size_t i = 0; i < children.size(); ++i) {
      rows_[children[i]].place = static_cast<int>(i);
    }
  }
}

QModelIndex ModuleTreeModel::index(int row, int column, const QModelIndex& parent) const {
  if (!hasIndex(row, column, parent)) return {};
  if (!parent.isValid()) return createIndex(0, column, quintptr{0});
  const Module& module = model_->modules[parent.internalId()];
  return createIndex(row, column, static_cast<quintptr>(module.children[row]));
}

QModelIndex ModuleTreeModel::parent(const QModelIndex& child) const {
  if (!child.isValid() || child.internalId() == 0 || !model_) return {};
  const int parent = model_->modules[child.internalId()].parent;
  return createIndex(rows_[parent].place, 0, static_cast<quintptr>(parent));
}

int ModuleTreeModel::rowCount(const QModelIndex& parent) const {
  if (!model_) return 0;
  if (!parent.isValid()) return 1;
  if (parent.column() > 0) return 0;
  return static_cast<int>(model_->modules[parent.internalId()].children.size());
}

int ModuleTreeModel::columnCount(const QModelIndex& /*parent*/) const {
  return kNumColumns;
}

QModelIndex ModuleTreeModel::index_of_module(const QString& name) const {
  if (!model_) return {};
  for (std::size_t m = 0; m < model_->modules.size(); ++m) {
    if (text(model_->modules[m].name) != name) continue;
    return createIndex(rows_[m].place, 0, static_cast<quintptr>(m));
  }
  return {};
}

QString ModuleTreeModel::shown_name(int module) const {
  const Module& each = model_->modules[module];
  if (module == 0) return text(model_->name);
  return text(each.name.substr(each.name.find_last_of('.') + 1));
}

QVariant ModuleTreeModel::display(int module, int column) const {
  const auto m = static_cast<std::size_t>(module);
  const Plan& plan = snapshot_->report.plan;
  switch (column) {
    case kName:
      return shown_name(module);
    case kUnit:
      return module == 0 ? tr("root") : QVariant();
    case kParameters:
      return count_text(rows_[m].parameters);
    case kShare: {
      const int unit = unit_of_[m];
      return unit < 0 ? QVariant() : QVariant(unit + 1);
    }
    case kReshard:
      return unit_of_[m] < 0 ? QVariant() : QVariant(reshard_text(plan.units[unit_of_[m]].reshard_after_forward));
    case kCheckpoint: {
      const CheckpointMode mode = checkpoint_of(plan, model_->modules[m].name);
      if (mode == CheckpointMode::None) return {};
      if (mode == CheckpointMode::Nested) return tr("nested");
      if (mode == CheckpointMode::Reentrant) return tr("reentrant");
      return mode == CheckpointMode::Full ? tr("full") : tr("selective");
    }
    case kClass:
      return text(model_->modules[m].class_name);
    default:
      return {};
  }
}

QVariant ModuleTreeModel::data(const QModelIndex& index, int role) const {
  if (!index.isValid() || !model_ || index.internalId() >= rows_.size()) return {};
  const int module = static_cast<int>(index.internalId());
  const Row& row = rows_[index.internalId()];
  if (role == Qt::DisplayRole) return display(module, index.column());
  if (role == Qt::CheckStateRole && index.column() == kUnit && row.can_be_unit) {
    return unit_of_[index.internalId()] >= 0 ? Qt::Checked : Qt::Unchecked;
  }
  if (role == Qt::TextAlignmentRole && index.column() == kParameters) {
    return QVariant::fromValue(Qt::AlignRight | Qt::AlignVCenter);
  }
  if (role == kBarRole && index.column() == kParameters && rows_[0].parameters > 0) {
    return static_cast<double>(row.parameters) / static_cast<double>(rows_[0].parameters);
  }
  if (role == kModuleNameRole) return text(model_->modules[index.internalId()].name);
  if (role == Qt::ToolTipRole) {
    const Module& each = model_->modules[index.internalId()];
    QString tip = each.name.empty() ? tr("The root") : text(each.name);
    tip += "\n" + tr("%1 parameters").arg(text(text::grouped(row.parameters)));
    if (index.column() == kUnit && !row.can_be_unit && module != 0) {
      tip += "\n" + tr("No unit: its forward is not called, or it has no parameters.");
    }
    return tip;
  }
  if (role == Qt::AccessibleTextRole && index.column() == kUnit) {
    return tr("%1 is its own unit").arg(text(model_->modules[index.internalId()].name));
  }
  return {};
}

QVariant ModuleTreeModel::headerData(int section, Qt::Orientation orientation, int role) const {
  if (orientation != Qt::Horizontal || role != Qt::DisplayRole) return {};
  const QStringList titles = {tr("Module"), tr("Unit"),    tr("Params"), tr("Reshard"),
                              tr("Ckpt."),  tr("In unit"), tr("Class")};
  return titles.value(section);
}

Qt::ItemFlags ModuleTreeModel::flags(const QModelIndex& index) const {
  if (!index.isValid()) return Qt::NoItemFlags;
  Qt::ItemFlags flags = Qt::ItemIsEnabled | Qt::ItemIsSelectable;
  if (index.column() == kUnit && index.internalId() < rows_.size() && rows_[index.internalId()].can_be_unit) {
    flags |= Qt::ItemIsUserCheckable;
  }
  return flags;
}

bool ModuleTreeModel::setData(const QModelIndex& index, const QVariant& value, int role) {
  if (role != Qt::CheckStateRole || !(flags(index) & Qt::ItemIsUserCheckable)) return false;
  emit unit_wanted(data(index, kModuleNameRole).toString(), value.toInt() == Qt::Checked);
  return true;
}

}  // namespace fsdp::gui
