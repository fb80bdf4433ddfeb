#include "gui/panels/suggestion_row.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QPushButton>
#include <QStyleOptionButton>
#include <QStylePainter>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/report/device_verdict.h"
#include "gui/panels/flow_layout.h"
#include "gui/theme/figure_text.h"
#include "planner/advice/remedy_kind.h"
#include "render/choice_words.h"
#include "render/render_search.h"

namespace fsdp::gui {

namespace {

using planner::Remedy;
using planner::RemedyKind;

constexpr std::size_t kMostChips = 5;

struct Group {
  RemedyKind kind;
  const char* title;
  std::size_t reserved;  ///< Number of visible buttons that the group gets, if it has so many.
};

constexpr std::array<Group, 3> kGroups = {{
    {RemedyKind::Free, QT_TRANSLATE_NOOP("fsdp::gui::SuggestionRow", "Free"), 2},
    {RemedyKind::ChangesTraining, QT_TRANSLATE_NOOP("fsdp::gui::SuggestionRow", "Changes training"), 2},
    {RemedyKind::OtherMachine, QT_TRANSLATE_NOOP("fsdp::gui::SuggestionRow", "Other machine"), 1},
}};

/// A button that shows as much text as fits.
class Chip : public QPushButton {
 public:
  using QPushButton::QPushButton;

 protected:
  void paintEvent(QPaintEvent* /*event*/) override {
    QStyleOptionButton option;
    initStyleOption(&option);
    if (sizeHint().width() > width()) option.text = fontMetrics().elidedText(text(), Qt::ElideMiddle, width() - 10);
    QStylePainter(this).drawControl(QStyle::CE_PushButton, option);
  }
};

/// The effects of a remedy; if the plan does not fit, the first is whether the remedy makes it fit.
QString effects_of(const Remedy& remedy, bool says_fits) {
  QStringList effects;
  const bool fits = remedy.verdict == Verdict::Fits;
  if (says_fits && remedy.has_room()) effects << SuggestionRow::tr("fits");
  if (remedy.delta_bytes != Bytes(0)) effects << signed_text_of(remedy.delta_bytes);
  if (std::abs(remedy.delta_time.count()) >= 1e-9) effects << signed_text_of(remedy.delta_time);
  if (remedy.is_tight) effects << SuggestionRow::tr("tight");
  if (effects.isEmpty()) effects << (fits ? SuggestionRow::tr("fits") : SuggestionRow::tr("does not fit"));
  return effects.join(", ");
}

QString text_of_remedy(const Remedy& remedy, bool misses) {
  QString what = text_of(remedy.what);
  what[0] = what[0].toUpper();
  return what + ":  " + effects_of(remedy, misses);
}

QString tip_of(const Remedy& remedy) {
  const QString how = remedy.is_searched
                          ? SuggestionRow::tr("A click searches again; its best plan was predicted")
                          : SuggestionRow::tr("A click changes this plan and searches nothing; predicted");
  const QString verdict = text_of(render::verdict_cell(remedy.verdict, remedy.is_tight).text);
  return SuggestionRow::tr("%1\n%2: %3.").arg(text_of(render::flags_of(remedy.change)), how, verdict);
}

/// Indices of the visible remedies, by group: the best ones of each, then the best of the rest. If the plan does not
/// fit, a remedy that makes it fit comes first.
std::vector<std::size_t> first_of(const std::vector<Remedy>& remedies, bool misses) {
  const bool some_fit =
      std::any_of(remedies.begin(), remedies.end(), [](const Remedy& each) { return each.has_room(); });
  const auto is_wanted = [&](const Remedy& remedy) { return !misses || !some_fit || remedy.has_room(); };
  std::vector<bool> is_first(remedies.size(), false);
  std::size_t count = 0;
  const auto take = [&](std::size_t i) {
    is_first[i] = true;
    ++count;
  };
  for (const Group& group : kGroups) {
    std::size_t left = group.reserved;
    for (std::size_t i = 0; i < remedies.size() && left > 0; ++i) {
      if (kind_of(remedies[i]) != group.kind || !is_wanted(remedies[i])) continue;
      take(i);
      --left;
    }
  }
  for (std::size_t i = 0; i < remedies.size() && count < kMostChips; ++i) {
    if (!is_first[i] && is_wanted(remedies[i])) take(i);
  }
  std::vector<std::size_t> numbers;
  for (const Group& group : kGroups) {
    for (std::size_t i = 0; i < remedies.size(); ++i) {
      if (is_first[i] && kind_of(remedies[i]) == group.kind) numbers.push_back(i);
    }
  }
  return numbers;
}

const Group& group_of(const Remedy& remedy) {
  return *std::find_if(kGroups.begin(), kGroups.end(),
                       [&](const Group& group) { return group.kind == kind_of(remedy); });
}

bool misses_room(const Snapshot& shown) {
  return !has_room(shown.report);
}

}  // namespace

SuggestionRow::SuggestionRow(AppState& state, QWidget* parent) : QWidget(parent), state_(state) {
  auto* row = new QHBoxLayout(this);
  row->setContentsMargins(0, 0, 0, 0);
  chips_ = new QWidget(this);
  chips_->setObjectName("remedies");
  auto* flow = new FlowLayout(chips_);
  flow->setContentsMargins(0, 0, 0, 0);
  row->addWidget(chips_, 1);
  more_ = new QToolButton(this);
  more_->setObjectName("all_remedies");
  more_->setPopupMode(QToolButton::InstantPopup);
  more_->setMenu(new QMenu(more_));
  more_->setToolTip(tr("Every suggestion with its cost"));
  more_->hide();
  row->addWidget(more_, 0, Qt::AlignTop);
}

void SuggestionRow::set_theme(const Theme& theme) {
  theme_ = theme;
  for (QLabel* title : chips_->findChildren<QLabel*>()) set_text_color(*title, theme_.text_weak);
}

void SuggestionRow::show_suggestions() {
  const SnapshotPtr shown = state_.snapshot();
  QString now;
  if (shown) {
    for (const Remedy& remedy : shown->explanation.remedies) {
      now += text_of(render::flags_of(remedy.change)) + tip_of(remedy) + text_of_remedy(remedy, misses_room(*shown));
    }
    now += QString::number(shown->stage == Stage::Explained);
  }
  if (now == shown_) return;
  shown_ = now;
  while (QLayoutItem* item = chips_->layout()->takeAt(0)) {
    item->widget()->hide();
    item->widget()->deleteLater();
    delete item;
  }
  more_->menu()->clear();
  const bool has_any = shown && !shown->explanation.remedies.empty();
  more_->setVisible(has_any);
  if (!has_any) return;
  show_chips(*shown);
  fill_menu(*shown);
}

void SuggestionRow::show_chips(const Snapshot& shown) {
  const std::vector<Remedy>& remedies = shown.explanation.remedies;
  const Group* group = nullptr;
  for (const std::size_t number : first_of(remedies, misses_room(shown))) {
    const Remedy& remedy = remedies[number];
    if (group != &group_of(remedy)) {
      group = &group_of(remedy);
      auto* title = new QLabel(tr(group->title), chips_);
      title->setObjectName("remedy_group");
      set_text_color(*title, theme_.text_weak);
      chips_->layout()->addWidget(title);
    }
    auto* chip = new Chip(chips_);
    chip->setObjectName("remedy_" + QString::number(number + 1));
    chip->setText(" " + text_of_remedy(remedy, misses_room(shown)) + " ");
    chip->setToolTip(tip_of(remedy));
    chip->setAccessibleName(tr("%1: %2").arg(tr(group->title), chip->text().trimmed()));
    chip->setMaximumWidth(460);
    connect(chip, &QPushButton::clicked, this, [this, remedy] { state_.apply_remedy(remedy); });
    chips_->layout()->addWidget(chip);
  }
}

void SuggestionRow::fill_menu(const Snapshot& shown) {
  const std::vector<Remedy>& remedies = shown.explanation.remedies;
  for (const Group& group : kGroups) {
    bool is_titled = false;
    for (const Remedy& remedy : remedies) {
      if (kind_of(remedy) != group.kind) continue;
      if (!is_titled) more_->menu()->addSection(tr(group.title));
      is_titled = true;
      QAction* entry = more_->menu()->addAction(text_of_remedy(remedy, misses_room(shown)));
      entry->setToolTip(text_of(render::flags_of(remedy.change)));
      connect(entry, &QAction::triggered, this, [this, remedy] { state_.apply_remedy(remedy); });
    }
  }
  more_->setText(tr("All %1 ▾").arg(remedies.size()));
  more_->setAccessibleName(tr("All %1 suggestions").arg(remedies.size()));
}

}  // namespace fsdp::gui
