#include "gui/panels/control.h"

#include <QAbstractItemView>
#include <QCompleter>
#include <QFontMetrics>
#include <QHBoxLayout>
#include <QKeyEvent>
#include <QSignalBlocker>
#include <QStyleOptionComboBox>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/parse_units.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

/// Every gesture of every control has its own number, so that undo merges the changes of one drag and not of two.
int next_gesture() {
  static int last = 0;
  return ++last;
}

/// A wheel that scrolls the panel must not change the control under it.
template <class Editor>
class Unscrolled : public Editor {
 public:
  using Editor::Editor;

 protected:
  void wheelEvent(QWheelEvent* event) override {
    if (this->hasFocus()) {
      Editor::wheelEvent(event);
    } else {
      event->ignore();
    }
  }
};

QString people_size(const QString& text) {
  const auto size = parse_size(text.toStdString(), "");
  return size ? QString::fromStdString(format_bytes(*size)) : text;
}

}  // namespace

Control::Control(ControlKind kind, const QString& name, const QString& label, const QString& help,
                 std::vector<std::int64_t> stops, const std::vector<std::string>& choices, QWidget* parent)
    : QWidget(parent), kind_(kind), stops_(std::move(stops)) {
  auto* row = new QHBoxLayout(this);
  row->setContentsMargins(0, 0, 0, 0);
  row->setSpacing(6);
  label_ = new QLabel(label, this);
  QFont bold = font();
  bold.setBold(true);
  label_->setMinimumWidth(QFontMetrics(bold).horizontalAdvance("Wrap embeddings/head"));
  // The editor gets the free room.
  label_->setSizePolicy(QSizePolicy::Fixed, QSizePolicy::Preferred);
  row->addWidget(label_);
  if (kind == ControlKind::Count) build_count();
  if (kind == ControlKind::Size) build_size();
  if (kind == ControlKind::Choice || kind == ControlKind::Open) build_choice(kind == ControlKind::Open, choices);
  if (kind == ControlKind::Text) build_text();
  reset_ = new QToolButton(this);
  reset_->setText(QString(QChar(0x21ba)));
  reset_->setAutoRaise(true);
  QSizePolicy policy = reset_->sizePolicy();
  policy.setRetainSizeWhenHidden(true);
  reset_->setSizePolicy(policy);
  reset_->hide();
  connect(reset_, &QToolButton::clicked, this, [this] { emit edited(QString(), next_gesture()); });
  row->addWidget(reset_);
  finish(name, label, help);
}

void Control::build_count() {
  slider_ = new Unscrolled<QSlider>(Qt::Horizontal, this);
  slider_->setRange(0, static_cast<int>(stops_.size()) - 1);
  slider_->setPageStep(1);
  slider_->setMinimumWidth(36);
  box_ = new Unscrolled<QSpinBox>(this);
  box_->setRange(static_cast<int>(std::min<std::int64_t>(1, stops_.front())), std::numeric_limits<int>::max());
  box_->setKeyboardTracking(false);
  box_->setMinimumWidth(fontMetrics().horizontalAdvance("131072") + 34);
  box_->setMaximumWidth(fontMetrics().horizontalAdvance("131072") + 34);
  connect(slider_, &QSlider::sliderPressed, this, [this] { gesture_ = next_gesture(); });
  connect(slider_, &QSlider::sliderReleased, this, [this] { gesture_ = 0; });
  connect(slider_, &QSlider::valueChanged, this, [this](int stop) { tell(QString::number(stops_[stop])); });
  connect(box_, &QSpinBox::valueChanged, this, [this](int number) { tell(QString::number(number)); });
  layout()->addWidget(slider_);
  layout()->addWidget(box_);
  editor_ = box_;
}

void Control::build_size() {
  slider_ = new Unscrolled<QSlider>(Qt::Horizontal, this);
  slider_->setRange(0, static_cast<int>(stops_.size()) - 1);
  slider_->setPageStep(1);
  slider_->setMinimumWidth(36);
  text_ = new QLineEdit(this);
  text_->setFixedWidth(fontMetrics().horizontalAdvance("131072") + 34);
  text_->setAlignment(Qt::AlignRight);
  text_->setPlaceholderText(tr("unknown"));
  connect(slider_, &QSlider::sliderPressed, this, [this] { gesture_ = next_gesture(); });
  connect(slider_, &QSlider::sliderReleased, this, [this] { gesture_ = 0; });
  connect(slider_, &QSlider::valueChanged, this,
          [this](int stop) { tell(QString::number(stops_[stop]) + QStringLiteral("GiB")); });
  connect(text_, &QLineEdit::editingFinished, this, [this] {
    if (text_->isModified()) tell(text_->text().trimmed());
  });
  layout()->addWidget(slider_);
  layout()->addWidget(text_);
  editor_ = text_;
}

void Control::build_choice(bool is_open, const std::vector<std::string>& choices) {
  list_ = new Unscrolled<QComboBox>(this);
  list_->setEditable(is_open);
  list_->setInsertPolicy(QComboBox::NoInsert);
  list_->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
  list_->setMinimumContentsLength(8);
  list_->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
  editor_ = list_;
  if (is_open) {
    // Qt would complete in the field: Return would then take the first matching name of the alphabet.
    auto* names = new QCompleter(list_->model(), list_);
    names->setCompletionMode(QCompleter::PopupCompletion);
    names->setFilterMode(Qt::MatchContains);
    names->setCaseSensitivity(Qt::CaseInsensitive);
    names->popup()->setAccessibleName(tr("Names that contain the typed text"));
    list_->setCompleter(names);
  }
  set_choices(choices);
  connect(list_, &QComboBox::activated, this, [this](int index) { tell(list_->itemText(index)); });
  if (is_open) {
    connect(list_->lineEdit(), &QLineEdit::editingFinished, this, [this] {
      if (list_->lineEdit()->isModified()) tell(list_->currentText().trimmed());
    });
  }
  layout()->addWidget(list_);
}

void Control::build_text() {
  text_ = new QLineEdit(this);
  connect(text_, &QLineEdit::editingFinished, this, [this] {
    if (text_->isModified()) tell(text_->text().trimmed());
  });
  layout()->addWidget(text_);
  editor_ = text_;
}

void Control::finish(const QString& name, const QString& label, const QString& help) {
  setObjectName(name);
  name_ = label;
  help_ = help;
  label_->setBuddy(editor_);
  reset_->setAccessibleName(tr("Take back: %1").arg(label));
  for (QWidget* part : std::initializer_list<QWidget*>{slider_, box_, text_, list_}) {
    if (part == nullptr) continue;
    part->setAccessibleName(part == slider_ ? tr("%1, slider").arg(label) : label);
    part->setAccessibleDescription(help);
  }
  show_help();
  setFocusProxy(editor_);
  for (QLineEdit* line : findChildren<QLineEdit*>()) line->installEventFilter(this);
  // A box passes key events directly to its line, whose filter does not see them.
  editor_->installEventFilter(this);
}

bool Control::eventFilter(QObject* watched, QEvent* event) {
  const auto* own = qobject_cast<const QLineEdit*>(watched);
  const QLineEdit* line = own != nullptr ? own : watched->findChild<QLineEdit*>();
  const bool is_focus = event->type() == QEvent::FocusIn || event->type() == QEvent::FocusOut;
  // The line of a list has the list as its focus proxy.
  if (is_focus && watched == list_ && list_->isEditable() && !list_->lineEdit()->isModified()) {
    const bool was_showing = std::exchange(is_showing_, true);
    list_->setEditText(event->type() == QEvent::FocusIn ? value_ : fitting(value_));
    is_showing_ = was_showing;
  }
  if (event->type() == QEvent::ShortcutOverride && line != nullptr && !line->isModified()) {
    const auto* key = static_cast<const QKeyEvent*>(event);
    if (key->matches(QKeySequence::Undo) || key->matches(QKeySequence::Redo)) {
      event->ignore();
      return true;
    }
  }
  return QWidget::eventFilter(watched, event);
}

void Control::set_choices(const std::vector<std::string>& choices) {
  const QSignalBlocker blocker(list_);
  list_->clear();
  for (const std::string& choice : choices) list_->addItem(QString::fromStdString(choice));
  const bool was_showing = std::exchange(is_showing_, true);
  show_value(value_, is_own_);
  is_showing_ = was_showing;
}

void Control::set_reason(const QString& reason) {
  reason_ = reason;
  setEnabled(reason.isEmpty());
  show_help();
}

void Control::set_problem(const QString& problem) {
  if (problem == problem_) return;
  problem_ = problem;
  show_help();
  mark();
}

void Control::show_help() {
  QStringList lines;
  // The field may be too narrow for a long name.
  if (list_ != nullptr && !value_.isEmpty()) lines << value_;
  for (const QString& line : {problem_, reason_, help_}) {
    if (!line.isEmpty()) lines << line;
  }
  setToolTip(lines.join('\n'));
  for (QWidget* part : std::initializer_list<QWidget*>{label_, slider_, box_, text_, list_}) {
    if (part != nullptr) part->setToolTip(lines.join('\n'));
  }
}

// A sign next to the color: some people cannot see the color.
void Control::mark() {
  label_->setText(problem_.isEmpty() ? name_ : QStringLiteral("⚠ ") + name_);
  QPalette colors = palette();
  if (!problem_.isEmpty()) {
    for (const auto role : {QPalette::Base, QPalette::Button}) colors.setColor(role, problem_ground(colors));
  }
  editor_->setPalette(problem_.isEmpty() ? QPalette() : colors);
}

void Control::changeEvent(QEvent* event) {
  QWidget::changeEvent(event);
  if (event->type() == QEvent::PaletteChange && !problem_.isEmpty()) mark();
}

void Control::set_reset_hint(const QString& hint) {
  reset_->setToolTip(hint);
  reset_->setVisible(!hint.isEmpty());
}

int Control::stop_of(double value) const {
  int nearest = 0;
  for (std::size_t i = 1; i < stops_.size(); ++i) {
    const auto distance = [&](std::size_t stop) { return std::abs(static_cast<double>(stops_[stop]) - value); };
    if (distance(i) < distance(static_cast<std::size_t>(nearest))) nearest = static_cast<int>(i);
  }
  return nearest;
}

void Control::show_value(const QString& value, bool is_own) {
  value_ = value;
  is_own_ = is_own;
  const bool was_showing = std::exchange(is_showing_, true);
  QFont font = this->font();
  font.setBold(is_own);
  label_->setFont(font);
  editor_->setFont(font);
  if (box_ != nullptr) {
    // Before the first answer there is no value; the lowest stop would look like one.
    const int least = static_cast<int>(std::min<std::int64_t>(1, stops_.front()));
    box_->setMinimum(value.isEmpty() ? least - 1 : least);
    box_->setSpecialValueText(value.isEmpty() ? QStringLiteral("–") : QString());
    box_->setValue(value.isEmpty() ? least - 1 : value.toInt());
    if (!slider_->isSliderDown()) slider_->setValue(stop_of(value.toDouble()));
  } else if (slider_ != nullptr) {
    const auto size = parse_size(value.toStdString(), "");
    if (!text_->hasFocus() || !text_->isModified()) text_->setText(people_size(value));
    if (size && !slider_->isSliderDown()) slider_->setValue(stop_of(static_cast<double>(size->count()) / kGib));
  } else if (list_ != nullptr) {
    const int index = list_->findText(value);
    show_help();
    list_->setCurrentIndex(index);
    if (list_->isEditable()) {
      // A user who edits sees all of it.
      const bool is_edited = list_->lineEdit()->hasFocus();
      if (!list_->lineEdit()->isModified()) list_->setEditText(is_edited ? value : fitting(value));
      list_->lineEdit()->setPlaceholderText(QStringLiteral("—"));
      list_->lineEdit()->setCursorPosition(0);
    } else if (index < 0) {
      list_->setPlaceholderText(value.isEmpty() ? QStringLiteral("—") : fitting(value));
    }
  } else if (!text_->hasFocus() || !text_->isModified()) {
    text_->setText(value);
  }
  is_showing_ = was_showing;
}

int Control::room() const {
  QStyleOptionComboBox option;
  option.initFrom(list_);
  option.editable = list_->isEditable();
  const QRect field = list_->style()->subControlRect(QStyle::CC_ComboBox, &option, QStyle::SC_ComboBoxEditField, list_);
  // A line has a margin around its text.
  return std::max(0, field.width() - 8);
}

QString Control::fitting(const QString& value) const {
  return editor_->fontMetrics().elidedText(value, Qt::ElideRight, room());
}

void Control::resizeEvent(QResizeEvent* event) {
  QWidget::resizeEvent(event);
  layout()->activate();
  if (list_ != nullptr) show_value(value_, is_own_);
}

void Control::tell(const QString& text) {
  if (is_showing_ || text == value_ || text.isEmpty()) return;
  const bool is_bare = kind_ == ControlKind::Size && text.toDouble() > 0;
  if (is_bare) return tell(text + QStringLiteral("GiB"));
  for (QLineEdit* line : findChildren<QLineEdit*>()) line->setModified(false);
  // A description in brackets is not the user's text.
  if (text.startsWith('(')) return;
  emit edited(text, gesture_ > 0 ? gesture_ : next_gesture());
}

}  // namespace fsdp::gui
