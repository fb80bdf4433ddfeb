#include "gui/panels/comparison_panel.h"

#include <QHeaderView>
#include <QStyledItemDelegate>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>
#include <utility>

#include "gui/charts/plot_paint.h"

namespace fsdp::gui {

namespace {

using Kind = ComparedFigure::Kind;

QString text_of_figure(const ComparedFigure& figure, double value) {
  switch (figure.kind) {
    case Kind::Bytes:
      return text_of(Bytes(static_cast<std::int64_t>(value)));
    case Kind::Time:
      return text_of(Seconds(value));
    case Kind::Share:
      return QString("%1 %").arg(100 * value, 0, 'f', 1);
    case Kind::Number:
    case Kind::Text:
      break;
  }
  const bool is_large = std::abs(value) >= 1000;
  return QString::number(value, is_large ? 'f' : 'g', is_large ? 0 : 4);
}

// Writes "less" or "more": color alone does not reach everybody.
QString difference_of(const ComparedFigure& figure) {
  if (!figure.differs()) return QObject::tr("same");
  if (figure.kind == Kind::Text) return QObject::tr("changed");
  const QString size = text_of_figure(figure, std::abs(figure.difference()));
  return figure.difference() < 0 ? QObject::tr("%1 less").arg(size) : QObject::tr("%1 more").arg(size);
}

QString relative_of(const ComparedFigure& figure) {
  if (figure.kind == Kind::Text || !figure.differs() || figure.before == 0) return {};
  const double share = 100 * figure.difference() / figure.before;
  return QString("%1%2 %").arg(share > 0 ? "+" : "\u2212").arg(std::abs(share), 0, 'f', std::abs(share) < 10 ? 1 : 0);
}

// Colors a difference by whether it is good, more strongly the larger it is, up to a factor of two.
class DifferenceDelegate : public QStyledItemDelegate {
 public:
  /// `is_judged`: less is good or bad. A measured difference is neither; it is only an error.
  DifferenceDelegate(const std::vector<ComparedFigure>& figures, const Theme& theme, bool is_judged, QObject* parent)
      : QStyledItemDelegate(parent), figures_(figures), theme_(theme), is_judged_(is_judged) {}

  void initStyleOption(QStyleOptionViewItem* option, const QModelIndex& index) const override {
    QStyledItemDelegate::initStyleOption(option, index);
    const ComparedFigure& figure = figures_[index.row()];
    if (!figure.differs()) {
      option->palette.setColor(QPalette::Text, theme_.text_weak);
      return;
    }
    if (figure.kind == Kind::Text || index.column() < 4) return;
    const bool is_good = (figure.difference() < 0) == figure.less_is_good;
    const double ratio = figure.before > 0 && figure.after > 0 ? std::abs(std::log2(figure.after / figure.before)) : 1;
    const QColor strong = !is_judged_ ? theme_.warn : is_good ? theme_.good : theme_.bad;
    option->palette.setColor(QPalette::Text, mixed(theme_.text, strong, std::clamp(0.55 + 0.45 * ratio, 0.0, 1.0)));
    option->font.setBold(true);
  }

 private:
  std::vector<ComparedFigure> figures_;
  Theme theme_;
  bool is_judged_;
};

}  // namespace

ComparisonPanel::ComparisonPanel(QWidget* parent)
    : QWidget(parent), heading_(new QLabel(this)), view_(new QTreeView(this)) {
  heading_->setWordWrap(true);
  view_->setModel(&table_);
  view_->setRootIsDecorated(false);
  view_->setUniformRowHeights(true);
  view_->setAlternatingRowColors(true);
  view_->header()->setStretchLastSection(false);
  view_->setAccessibleName(tr("Baseline and current plan"));
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(8, 8, 8, 8);
  layout->addWidget(heading_);
  layout->addWidget(view_, 1);
  fill();
}

void ComparisonPanel::set_snapshot(SnapshotPtr snapshot) {
  snapshot_ = std::move(snapshot);
  fill();
}

void ComparisonPanel::set_baseline(SnapshotPtr baseline, const QString& name) {
  baseline_ = std::move(baseline);
  baseline_name_ = name;
  fill();
}

void ComparisonPanel::set_overlay(OverlayPtr overlay) {
  overlay_ = std::move(overlay);
  fill();
}

void ComparisonPanel::set_theme(const Theme& theme) {
  theme_ = theme;
  fill();
}

void ComparisonPanel::fill() {
  const bool has_measured = snapshot_ != nullptr && overlay_ != nullptr && overlay_->report.has_value();
  MeasuredComparison measured;
  const bool has_baseline = snapshot_ != nullptr && baseline_ != nullptr;
  std::vector<ComparedFigure> figures;
  if (has_baseline)
    figures = compared_figures(baseline_->report, snapshot_->report);
  else if (has_measured)
    measured = measured_figures(*snapshot_, *overlay_);
  if (has_measured && !has_baseline) figures = measured.figures;
  // Differing rows first; the others follow.
  std::stable_partition(figures.begin(), figures.end(), [](const ComparedFigure& figure) { return figure.differs(); });
  const auto differing =
      std::count_if(figures.begin(), figures.end(), [](const ComparedFigure& figure) { return figure.differs(); });
  if (has_baseline) {
    QString baseline = tr("the baseline");
    if (!baseline_name_.isEmpty()) baseline += tr(" %1").arg(baseline_name_);
    if (baseline_->report.model != snapshot_->report.model) {
      baseline += tr(", of the model %1").arg(QString::fromStdString(baseline_->report.model));
    }
    heading_->setText(differing == 0   ? tr("The current plan is %1.").arg(baseline)
                      : differing == 1 ? tr("1 difference from %1").arg(baseline)
                                       : tr("%1 differences from %2").arg(differing).arg(baseline));
  } else if (has_measured) {
    QStringList lines = {tr("Predicted next to what %1 measured").arg(QString::fromStdString(overlay_->name))};
    lines << measured.notes;
    heading_->setText(lines.join('\n'));
  } else {
    heading_->setText(tr("Pin a baseline, or load a measurement, to see every difference here."));
  }
  const QString before = has_baseline ? tr("baseline") : tr("predicted");
  const QString after = has_baseline ? tr("current") : tr("measured");
  const auto shared = std::make_shared<const std::vector<ComparedFigure>>(figures);
  table_.set(
      {{tr("of"), "group"},
       {tr("figure"), "figure"},
       {before, "before", true},
       {after, "after", true},
       {tr("difference"), "difference", true},
       {tr("relative"), "relative", true}},
      static_cast<int>(figures.size()), [shared](int row, int column) -> TableCell {
        const ComparedFigure& figure = (*shared)[row];
        const bool is_text = figure.kind == Kind::Text;
        switch (column) {
          case 0:
            return cell_of(figure.group);
          case 1:
            return cell_of(figure.name);
          case 2:
            return is_text ? cell_of(figure.text_before)
                           : TableCell{text_of_figure(figure, figure.before), figure.before};
          case 3:
            return is_text ? cell_of(figure.text_after) : TableCell{text_of_figure(figure, figure.after), figure.after};
          case 4:
            return {difference_of(figure), is_text ? QVariant() : QVariant(figure.difference())};
          default:
            return {relative_of(figure),
                    is_text || figure.before == 0 ? QVariant() : QVariant(figure.difference() / figure.before)};
        }
      });
  delete view_->itemDelegate();
  view_->setItemDelegate(new DifferenceDelegate(figures, theme_, has_baseline, view_));
  view_->setVisible(!figures.empty());
  heading_->setAlignment(figures.empty() ? Qt::AlignCenter : Qt::AlignLeft | Qt::AlignVCenter);
  heading_->setForegroundRole(figures.empty() ? QPalette::PlaceholderText : QPalette::WindowText);
  for (int column = 0; column < 6; ++column) {
    view_->header()->setSectionResizeMode(
        column, column == 2 || column == 3 ? QHeaderView::Stretch : QHeaderView::ResizeToContents);
  }
}

}  // namespace fsdp::gui
