#include "gui/panels/peak_panel.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

#include "gui/charts/plot_paint.h"

namespace fsdp::gui {

namespace {

constexpr int kBytesColumn = 0;

struct Row {
  std::string name;
  std::string kind;
  std::int64_t count = 0;
  Bytes bytes;
  std::string formula;
};

// Tensors first, then the other memory of the device.
std::vector<Row> rows_of(const Snapshot& snapshot, std::size_t phase, std::size_t moment, bool is_peak) {
  std::vector<Row> rows;
  LiveTensors alive = is_peak ? snapshot.at_peak : nullptr;
  if (alive == nullptr) {
    alive = std::make_shared<const std::vector<simulator::LiveTensorDetail>>(
        snapshot.curves.live_tensors_at(phase, moment));
  }
  for (const simulator::LiveTensorDetail& each : *alive) {
    rows.push_back({each.tensor.name, std::string(name_of(each.tensor.category)), each.tensor.count, each.tensor.bytes,
                    each.formula});
  }
  const simulator::MemoryCurve& curve = snapshot.curves.phases[static_cast<std::size_t>(phase)];
  const Bytes rounding(curve.allocated[moment] - curve.total[moment]);
  const Bytes cached(curve.reserved[moment] - curve.allocated[moment]);
  if (rounding > Bytes(0)) rows.push_back({"rounded up to blocks", "allocator", 1, rounding, "blocks of 512 B"});
  if (cached > Bytes(0)) rows.push_back({"reserved and not in use", "allocator", 1, cached, "parts of segments"});
  for (std::size_t i = 1; i < snapshot.report.memory.device_terms.size(); ++i) {
    const DeviceTerm& term = snapshot.report.memory.device_terms[i];
    if (term.bytes > Bytes(0)) rows.push_back({term.name, "outside PyTorch", 1, term.bytes, term.source});
  }
  return rows;
}

}  // namespace

PeakPanel::PeakPanel(QWidget* parent)
    : QWidget(parent),
      heading_(new QLabel(this)),
      sentence_(new QLabel(this)),
      to_peak_(new QPushButton(tr("Show the peak"), this)),
      view_(new QTreeView(this)),
      bars_(new CostDelegate(kBytesColumn, this)) {
  QFont strong = font();
  strong.setBold(true);
  heading_->setFont(strong);
  heading_->setWordWrap(true);
  sentence_->setWordWrap(true);
  sentence_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  to_peak_->setToolTip(tr("Back to the moment at which most is live"));
  connect(to_peak_, &QPushButton::clicked, this, [this] {
    show_peak();
    emit peak_asked();
  });
  sorted_.setSourceModel(&table_);
  sorted_.setSortRole(TableTwin::kExact);
  view_->setModel(&sorted_);
  view_->setRootIsDecorated(false);
  view_->setUniformRowHeights(true);
  view_->setAlternatingRowColors(true);
  view_->setSortingEnabled(true);
  view_->sortByColumn(kBytesColumn, Qt::DescendingOrder);
  view_->setItemDelegate(bars_);
  view_->setAccessibleName(tr("Live tensors at this moment"));
  auto* top = new QHBoxLayout;
  top->addWidget(heading_, 1);
  top->addWidget(to_peak_, 0, Qt::AlignTop);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(8, 8, 8, 8);
  layout->addLayout(top);
  layout->addWidget(sentence_);
  layout->addWidget(view_, 1);
  set_snapshot(nullptr);
}

void PeakPanel::set_theme(const Theme& theme) {
  bars_->set_theme(theme);
  view_->viewport()->update();
}

void PeakPanel::set_snapshot(SnapshotPtr snapshot) {
  snapshot_ = std::move(snapshot);
  show_peak();
}

void PeakPanel::show_peak() {
  if (snapshot_ == nullptr || snapshot_->curves.empty()) {
    heading_->setText(tr("Choose a model to see what its memory is made of."));
    sentence_->hide();
    to_peak_->hide();
    table_.set({{tr("bytes"), "bytes", true}}, 0, {});
    return;
  }
  const std::size_t phase = snapshot_->curves.peak_phase();
  fill(phase, snapshot_->curves.phases[static_cast<std::size_t>(phase)].peak(), true);
}

void PeakPanel::show_moment(int phase, int moment) {
  if (snapshot_ == nullptr || phase < 0 || static_cast<std::size_t>(phase) >= snapshot_->curves.phases.size()) return;
  const std::size_t size = snapshot_->curves.phases[static_cast<std::size_t>(phase)].size();
  if (moment < 0 || static_cast<std::size_t>(moment) >= size) return;
  const std::size_t peak_phase = snapshot_->curves.peak_phase();
  const bool is_peak = peak_phase == static_cast<std::size_t>(phase) &&
                       snapshot_->curves.phases[peak_phase].peak() == static_cast<std::size_t>(moment);
  fill(static_cast<std::size_t>(phase), static_cast<std::size_t>(moment), is_peak);
}

void PeakPanel::fill(std::size_t phase, std::size_t moment, bool is_peak) {
  const simulator::MemoryCurve& curve = snapshot_->curves.phases[static_cast<std::size_t>(phase)];
  const PeakMoment place = snapshot_->curves.moment_at(phase, moment);
  QString where = QString::fromStdString(name_of(place));
  if (!place.op.empty()) where += " (" + QString::fromStdString(place.op) + ")";
  heading_->setText(
      (is_peak ? tr("Peak: %1 live in %2") : tr("%1 live in %2")).arg(text_of(Bytes(curve.total[moment])), where));
  sentence_->setText(QString::fromStdString(snapshot_->explanation.binding));
  sentence_->setVisible(is_peak && !snapshot_->explanation.binding.empty());
  to_peak_->setVisible(!is_peak);
  const auto rows = std::make_shared<const std::vector<Row>>(rows_of(*snapshot_, phase, moment, is_peak));
  Bytes largest;
  for (const Row& row : *rows) largest = std::max(largest, row.bytes);
  bars_->set_largest(static_cast<double>(largest.count()));
  table_.set({{tr("bytes"), "bytes", true},
              {tr("tensors"), "count", true},
              {tr("category"), "category"},
              {tr("what"), "name"},
              {tr("each is"), "formula"}},
             static_cast<int>(rows->size()), [rows](int row, int column) -> TableCell {
               const Row& each = (*rows)[row];
               switch (column) {
                 case kBytesColumn:
                   return cell_of(each.bytes);
                 case 1:
                   return cell_of(each.count);
                 case 2:
                   return cell_of(each.kind);
                 case 3:
                   return cell_of(each.name);
                 default:
                   return cell_of(each.formula);
               }
             });
  if (is_in_sight_) fit_columns();
}

void PeakPanel::fit_columns() {
  for (int column = 0; column < 4; ++column) view_->resizeColumnToContents(column);
  view_->setColumnWidth(3, std::min(view_->columnWidth(3), 420));
}

void PeakPanel::set_in_sight(bool is_in_sight) {
  if (is_in_sight == is_in_sight_) return;
  is_in_sight_ = is_in_sight;
  sorted_.setSourceModel(is_in_sight ? &table_ : nullptr);
  if (is_in_sight) fit_columns();
}

}  // namespace fsdp::gui
