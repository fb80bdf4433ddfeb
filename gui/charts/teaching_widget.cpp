#include "gui/charts/teaching_widget.h"

#include <QKeyEvent>
#include <QMouseEvent>
#include <algorithm>
#include <array>
#include <utility>

#include "gui/charts/plot_paint.h"
#include "gui/charts/plot_widget.h"

namespace fsdp::gui {

namespace {

constexpr int kMostGpus = 4;
constexpr qreal kUnitHeight = 22;
constexpr qreal kLeastUnitHeight = 17;
constexpr int kBetweenFrames = 650;  // Milliseconds.

constexpr int kButton = 26;
constexpr int kNumColumns = 4;  // Parameters, gradients, optimizer states, activations.

// Before the columns.
qreal name_width_of(const QRectF& row) {
  return std::min(row.width() * 0.31, 96.0);
}

}  // namespace

TeachingWidget::TeachingWidget(QWidget* parent) : QWidget(parent) {
  setFocusPolicy(Qt::StrongFocus);
  setAccessibleName(tr("One iteration, step by step"));
  const auto add = [this](const QString& text, const QString& tip, const QList<QKeySequence>& keys, auto run) {
    add_widget_action(*this, text, tip, keys, run);
  };
  setContextMenuPolicy(Qt::ActionsContextMenu);
  add(tr("Play"), tr("Play or pause"), {Qt::Key_Space}, [this] { is_playing() ? pause() : play(); });
  add(tr("Next instruction"), tr("One instruction forward"), {Qt::Key_Right, Qt::Key_D}, [this] { step_by(1); });
  add(tr("Previous instruction"), tr("One instruction back"), {Qt::Key_Left, Qt::Key_A}, [this] { step_by(-1); });
  add(tr("Ten instructions on"), tr("Ten instructions forward"), {Qt::Key_PageDown}, [this] { step_by(10); });
  add(tr("Ten instructions back"), tr("Ten instructions back"), {Qt::Key_PageUp}, [this] { step_by(-10); });
  add(tr("To the beginning"), tr("Before the step"), {Qt::Key_Home, Qt::Key_0}, [this] { set_frame(0); });
  add(tr("To the end"), tr("After the step"), {Qt::Key_End}, [this] { set_frame(num_frames() - 1); });
  add_buttons();
  set_speed(1);
  connect(&timer_, &QTimer::timeout, this, [this] {
    if (frame_ + 1 >= num_frames())
      pause();
    else
      set_frame(frame_ + 1);
  });
}

QToolButton* TeachingWidget::add_button(const QString& name, const QString& sign, const QString& tip) {
  auto* button = new QToolButton(this);
  button->setObjectName(name);
  button->setText(sign);
  button->setToolTip(tip);
  button->setAccessibleName(tip);
  button->setAutoRaise(true);
  return button;
}

void TeachingWidget::add_buttons() {
  back_ = add_button("lesson_back", QStringLiteral("‹"), tr("One instruction back"));
  play_ = add_button("lesson_play", QStringLiteral("▶"), tr("Play or pause"));
  next_ = add_button("lesson_next", QStringLiteral("›"), tr("One instruction forward"));
  fast_ = add_button("lesson_speed", {}, tr("How fast it plays"));
  connect(back_, &QToolButton::clicked, this, [this] { step_by(-1); });
  connect(play_, &QToolButton::clicked, this, [this] { is_playing() ? pause() : play(); });
  connect(next_, &QToolButton::clicked, this, [this] { step_by(1); });
  connect(fast_, &QToolButton::clicked, this, [this] { set_speed(speed_ == 4 ? 1 : speed_ * 2); });
}

void TeachingWidget::step_by(int frames) {
  pause();
  set_frame(frame_ + frames);
}

void TeachingWidget::set_speed(int factor) {
  speed_ = factor;
  timer_.setInterval(kBetweenFrames / factor);
  fast_->setText(tr("%1×").arg(factor));
}

void TeachingWidget::resizeEvent(QResizeEvent* event) {
  QWidget::resizeEvent(event);
  show_buttons();
}

void TeachingWidget::show_buttons() {
  int left = 12;
  for (QToolButton* button : {back_, play_, next_, fast_}) {
    button->setGeometry(left, height() - kButton - 7, kButton, kButton);
    button->setVisible(num_frames() > 0);
    left += kButton + 2;
  }
  play_->setText(is_playing() ? QStringLiteral("❚❚") : QStringLiteral("▶"));
  back_->setEnabled(frame_ > 0);
  next_->setEnabled(frame_ + 1 < num_frames());
}

void TeachingWidget::set_snapshot(SnapshotPtr snapshot) {
  snapshot_ = std::move(snapshot);
  lesson_ = {};
  ranks_ = 0;
  if (snapshot_ != nullptr && !snapshot_->curves.empty()) {
    ranks_ = snapshot_->report.plan.mesh.dp_shard();
    replicas_ = snapshot_->report.plan.mesh.dp_replicate();
    lesson_ = make_lesson(snapshot_->curves, snapshot_->report.plan);
  }
  set_frame(std::min(frame_, std::max(0, num_frames() - 1)));
  update();
}

void TeachingWidget::set_theme(const Theme& theme) {
  theme_ = theme;
  update();
}

void TeachingWidget::set_frame(int frame) {
  frame_ = std::clamp(frame, 0, std::max(0, num_frames() - 1));
  const auto at = static_cast<std::size_t>(frame_);
  if (num_frames() > 0)
    setAccessibleDescription(QString::fromStdString(lesson_.headings[at] + ". " + lesson_.sentences[at]));
  emit frame_changed(frame_);
  if (at < lesson_.instructions.size() && lesson_.instructions[at] >= 0) {
    emit moment_changed(
        snapshot_->curves.instructions[static_cast<std::size_t>(lesson_.instructions[at])].begin.count());
  }
  show_buttons();
  update();
}

void TeachingWidget::play() {
  if (frame_ + 1 >= num_frames()) set_frame(0);
  timer_.start();
  show_buttons();
  update();
}

void TeachingWidget::pause() {
  timer_.stop();
  show_buttons();
  update();
}

QRectF TeachingWidget::slider_of(const QRectF& bounds) const {
  const qreal buttons = 4 * (kButton + 2) + 22;
  return {bounds.left() + buttons, bounds.bottom() - 26, bounds.width() - buttons - 20, 12};
}

void TeachingWidget::mousePressEvent(QMouseEvent* event) {
  const QRectF slider = slider_of(QRectF(rect()));
  if (event->button() != Qt::LeftButton || event->position().y() < slider.top() - 8) return;
  if (event->position().x() >= slider.left() - 8) mouseMoveEvent(event);
}

void TeachingWidget::mouseMoveEvent(QMouseEvent* event) {
  const QRectF slider = slider_of(QRectF(rect()));
  if (!event->buttons().testFlag(Qt::LeftButton) || event->position().y() < slider.top() - 8) return;
  const double share = (event->position().x() - slider.left()) / slider.width();
  set_frame(static_cast<int>(share * (num_frames() - 1) + 0.5));
}

void TeachingWidget::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(this);
  painter.setFont(font());
  draw(painter, QRectF(rect()));
}

void TeachingWidget::draw(QPainter& painter, const QRectF& bounds) {
  painter.fillRect(bounds, theme_.background);
  if (lesson_.frames.empty()) {
    return draw_empty(painter, bounds, tr("Choose a model to step through one of its iterations."), theme_);
  }
  painter.setRenderHint(QPainter::Antialiasing);
  const QFontMetricsF metrics(font());
  const QRectF width_of_text(0, 0, bounds.width() - 32, 1000);
  const QString sentence = QString::fromStdString(lesson_.sentences[frame_]);
  const qreal text_height = metrics.boundingRect(width_of_text, Qt::TextWordWrap, sentence).height();
  const qreal most = 2.2 * metrics.height();
  // In a high panel the GPUs keep their place from sentence to sentence.
  const qreal heading = 1.4 * metrics.height() + 12 + (bounds.height() < 240 ? std::min(text_height, most) : most);
  draw_heading(painter, QRectF(bounds.left() + 16, bounds.top() + 10, bounds.width() - 32, heading));
  const QRectF slider = slider_of(bounds);
  const QRectF room(bounds.left() + 16, bounds.top() + heading + 12, bounds.width() - 32,
                    slider.top() - bounds.top() - heading - 28);
  const int shards = static_cast<int>(std::clamp<std::int64_t>(ranks_, 1, kMostGpus));
  // If few GPUs share the parameters, there is room for replicas.
  const int drawn = shards * static_cast<int>(std::clamp<std::int64_t>(replicas_, 1, kMostGpus / shards));
  constexpr qreal kGap = 12;
  const qreal width = (room.width() - kGap * (drawn - 1)) / drawn;
  for (int rank = 0; rank < drawn; ++rank) {
    draw_gpu(painter, QRectF(room.left() + rank * (width + kGap), room.top(), width, room.height()), rank, shards);
  }
  draw_slider(painter, slider);
}

void TeachingWidget::draw_heading(QPainter& painter, const QRectF& box) const {
  const auto at = static_cast<std::size_t>(frame_);
  QFont strong = font();
  strong.setBold(true);
  strong.setPointSizeF(strong.pointSizeF() * 1.25);
  painter.setFont(strong);
  painter.setPen(theme_.text);
  const QFontMetricsF metrics(strong);
  painter.drawText(QPointF(box.left(), box.top() + metrics.ascent()), QString::fromStdString(lesson_.headings[at]));
  painter.setFont(font());
  painter.setPen(theme_.text_weak);
  const QString place = tr("%1 of %2").arg(frame_).arg(num_frames() - 1);
  painter.drawText(QRectF(box.left(), box.top(), box.width(), metrics.height()), Qt::AlignRight | Qt::AlignVCenter,
                   place);
  painter.setPen(theme_.text);
  painter.drawText(QRectF(box.left(), box.top() + metrics.height() + 4, box.width(), box.height() - metrics.height()),
                   Qt::AlignLeft | Qt::AlignTop | Qt::TextWordWrap, QString::fromStdString(lesson_.sentences[at]));
}

// As many units as fit, around the active one.
std::pair<std::size_t, std::size_t> TeachingWidget::shown_units(qreal height) const {
  const auto most = static_cast<std::size_t>(std::max(1.0, height / kLeastUnitHeight));
  const std::vector<UnitFrame>& units = lesson_.frames[frame_].units;
  if (units.size() <= most) return {0, units.size()};
  const auto busy = std::find_if(units.begin(), units.end(), [](const UnitFrame& unit) { return unit.is_at_work; });
  const auto middle = busy == units.end() ? std::size_t{0} : static_cast<std::size_t>(busy - units.begin());
  const std::size_t first = std::min(units.size() - most, middle > most / 2 ? middle - most / 2 : 0);
  return {first, first + most};
}

void TeachingWidget::draw_gpu(QPainter& painter, const QRectF& box, int rank, int shards) const {
  painter.setPen(hairline(theme_.grid, 1.5));
  painter.setBrush(theme_.panel);
  painter.drawRoundedRect(box, 8, 8);
  const QFontMetricsF metrics(font());
  QString name = tr("GPU %1").arg(rank);
  if (rank + 1 == shards && ranks_ > shards) name += tr("  (of %1)").arg(ranks_);
  if (rank >= shards) name += tr("  (the same parts as GPU %1)").arg(rank % shards);
  painter.setPen(theme_.text);
  painter.drawText(QPointF(box.left() + 10, box.top() + 6 + metrics.ascent()), name);
  const QRectF room = box.adjusted(10, 2 * metrics.height() + 20, -10, -8);
  draw_columns(painter, QRectF(room.left(), room.top() - metrics.height() - 4, room.width(), metrics.height()));
  const auto [first, last] = shown_units(room.height());
  const qreal height = std::min(kUnitHeight, room.height() / static_cast<qreal>(last - first));
  for (std::size_t unit = first; unit < last; ++unit) {
    const qreal y = room.top() + static_cast<qreal>(unit - first) * height;
    draw_unit(painter, QRectF(room.left(), y, room.width(), height - 3), unit, rank % shards, shards);
  }
}

void TeachingWidget::draw_columns(QPainter& painter, const QRectF& box) const {
  const QFontMetricsF metrics(font());
  const qreal left = box.left() + name_width_of(box) + 4;
  const qreal part = (box.right() - left) / kNumColumns;
  painter.setPen(theme_.text_weak);
  std::array<QString, kNumColumns> titles = {tr("parameters"), tr("gradients"), tr("optimizer"), tr("activations")};
  if (metrics.horizontalAdvance(titles[3]) > part - 4) titles = {tr("params"), tr("grads"), tr("optim."), tr("activ.")};
  if (metrics.horizontalAdvance(titles[0]) > part - 4) titles = {tr("P"), tr("G"), tr("O"), tr("A")};
  for (int column = 0; column < kNumColumns; ++column) {
    const QString title = metrics.elidedText(titles[static_cast<std::size_t>(column)], Qt::ElideRight, part - 4);
    painter.drawText(QPointF(left + column * part, box.top() + metrics.ascent()), title);
  }
}

void TeachingWidget::draw_unit(QPainter& painter, const QRectF& box, std::size_t unit, int rank, int drawn) const {
  const UnitFrame& frame = lesson_.frames[frame_].units[unit];
  const QFontMetricsF metrics(font());
  const auto color = [&](MemoryCategory category) { return theme_.category[static_cast<std::size_t>(category)]; };
  const qreal name_width = name_width_of(box);
  painter.setPen(frame.is_at_work ? theme_.text : theme_.text_weak);
  const QString full = name_of_unit(lesson_.units[unit]);
  // Among its neighbors "transformer.h.3" is "h.3".
  const QString name = metrics.elidedText(full.section('.', -2), Qt::ElideLeft, name_width - 4);
  painter.drawText(QPointF(box.left(), box.center().y() + metrics.capHeight() / 2), name);
  const QRectF bars(box.left() + name_width + 4, box.top(), box.width() - name_width - 4, box.height());
  const qreal part = (bars.width() - 4 * (kNumColumns - 1)) / kNumColumns;
  const auto cell = [&](int column) {
    return QRectF(bars.left() + column * (part + 4), bars.top(), part, bars.height());
  };
  const auto slot = [&](const QRectF& whole) {
    return QRectF(whole.left() + whole.width() * rank / drawn, whole.top(), whole.width() / drawn, whole.height());
  };
  painter.setPen(hairline(theme_.grid));
  painter.setBrush(theme_.background);
  for (int column = 0; column < kNumColumns; ++column) painter.drawRect(cell(column));
  painter.setPen(Qt::NoPen);
  if (frame.parameters == HeldParameters::Unsharded) painter.fillRect(cell(0), color(MemoryCategory::UnshardedParam));
  if (frame.parameters == HeldParameters::Gathering) {
    QPainterPath path;
    path.addRect(cell(0));
    painter.fillRect(cell(0), with_alpha(color(MemoryCategory::AllGather), 0.5));
    draw_hatch(painter, path, theme_.text, 5);
  }
  painter.fillRect(slot(cell(0)), color(MemoryCategory::ShardedParam));
  if (frame.gradients == HeldGradients::Unsharded) painter.fillRect(cell(1), color(MemoryCategory::UnshardedGrad));
  if (frame.gradients == HeldGradients::Sharded) painter.fillRect(slot(cell(1)), color(MemoryCategory::ShardedGrad));
  if (lesson_.has_optimizer_states && !lesson_.has_states_on_host) {
    painter.fillRect(slot(cell(2)), color(MemoryCategory::OptState));
  }
  if (frame.has_activations) painter.fillRect(cell(3), color(MemoryCategory::Activation));
  if (!frame.is_at_work) return;
  painter.setPen(hairline(theme_.accent, 1.8));
  painter.setBrush(Qt::NoBrush);
  painter.drawRect(bars.adjusted(-2, -1, 2, 1));
}

void TeachingWidget::draw_slider(QPainter& painter, const QRectF& box) const {
  const qreal share = num_frames() > 1 ? static_cast<qreal>(frame_) / (num_frames() - 1) : 0;
  painter.setPen(Qt::NoPen);
  painter.setBrush(theme_.grid);
  painter.drawRoundedRect(QRectF(box.left(), box.center().y() - 2, box.width(), 4), 2, 2);
  painter.setBrush(theme_.accent);
  painter.drawRoundedRect(QRectF(box.left(), box.center().y() - 2, box.width() * share, 4), 2, 2);
  painter.drawEllipse(QPointF(box.left() + box.width() * share, box.center().y()), 7, 7);
}

}  // namespace fsdp::gui
