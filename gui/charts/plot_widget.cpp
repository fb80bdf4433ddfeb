#include "gui/charts/plot_widget.h"

#include <QApplication>
#include <QFontDatabase>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QWheelEvent>
#include <cmath>
#include <functional>
#include <utility>

#include "core/plan/framework_traits.h"
#include "gui/charts/plot_paint.h"
#include "planner/space/strategy_names.h"

namespace fsdp::gui {

namespace {

constexpr double kKeyZoom = 1.5;
constexpr double kKeyPan = 0.15;       // Share of the visible range.
constexpr double kWheelZoom = 1.0015;  // For each eighth of a degree; 120 are one notch.

}  // namespace

QAction* add_widget_action(QWidget& widget, const QString& text, const QString& tip, const QList<QKeySequence>& keys,
                           const std::function<void()>& run) {
  auto* action = new QAction(text, &widget);
  action->setToolTip(tip);
  action->setShortcuts(keys);
  action->setShortcutContext(Qt::WidgetShortcut);
  QObject::connect(action, &QAction::triggered, &widget, run);
  widget.addAction(action);
  return action;
}

PlotWidget::PlotWidget(TimeRange* range, QWidget* parent) : QWidget(parent), range_(range) {
  setMouseTracking(true);
  setFocusPolicy(Qt::StrongFocus);
  setAttribute(Qt::WA_OpaquePaintEvent);
  make_actions();
  if (range != nullptr) watch(range);
}

void PlotWidget::watch(TimeRange* range) {
  connect(range, &TimeRange::changed, this, &PlotWidget::refresh);
  connect(range, &TimeRange::selection_changed, this, qOverload<>(&QWidget::update));
  connect(range, &TimeRange::pointer_changed, this, qOverload<>(&QWidget::update));
}

void PlotWidget::set_snapshot(SnapshotPtr snapshot) {
  snapshot_ = std::move(snapshot);
  refresh();
}

void PlotWidget::set_baseline(SnapshotPtr baseline) {
  baseline_ = std::move(baseline);
  refresh();
}

void PlotWidget::set_theme(const Theme& theme) {
  theme_ = theme;
  refresh();
}

void PlotWidget::set_is_waiting(bool is_waiting) {
  if (is_waiting_ == is_waiting) return;
  is_waiting_ = is_waiting;
  refresh();
}

QString PlotWidget::empty_text(const QString& hint) const {
  return is_waiting_ ? tr("Looking for the best plan …") : hint;
}

QString PlotWidget::caption() const {
  if (snapshot_ == nullptr) return {};
  const StepReport& report = snapshot_->report;
  const QString strategy = QString::fromStdString(
      traits_of(report.plan).wraps_units ? planner::fsdp1_name(report.plan) : planner::strategy_name(report.plan));
  return tr("%1 on %2 x %3 · %4 · peak %5 of %6 · step %7")
      .arg(QString::fromStdString(report.model))
      .arg(report.gpus_per_node * report.nodes)
      .arg(QString::fromStdString(report.gpu), strategy, text_of(report.memory.peaks.device),
           text_of(report.memory.budget), text_of(report.time.step));
}

void PlotWidget::refresh() {
  is_stale_ = true;
  update();
}

QAction* PlotWidget::add_action(const QString& text, const QString& tip, const QList<QKeySequence>& keys,
                                const std::function<void()>& run) {
  return add_widget_action(*this, text, tip, keys, run);
}

void PlotWidget::make_actions() {
  setContextMenuPolicy(Qt::ActionsContextMenu);
  const auto middle = [this] {
    const ValueRange& now = range().visible();
    return range().pointer().value_or((now.begin + now.end) / 2);
  };
  add_action(tr("Zoom in"), tr("Zoom in at the pointer"), {Qt::Key_W, Qt::Key_Plus, Qt::Key_Equal},
             [this, middle] { range().zoom(kKeyZoom, middle()); });
  add_action(tr("Zoom out"), tr("Zoom out at the pointer"), {Qt::Key_S, Qt::Key_Minus},
             [this, middle] { range().zoom(1 / kKeyZoom, middle()); });
  add_action(tr("Move left"), tr("Show earlier times"), {Qt::Key_A},
             [this] { range().pan(-kKeyPan * range().visible().width()); });
  add_action(tr("Move right"), tr("Show later times"), {Qt::Key_D},
             [this] { range().pan(kKeyPan * range().visible().width()); });
  add_action(tr("Zoom to selection"), tr("Show the selected range only"), {Qt::Key_Z},
             [this] { range().show_selection(); });
  add_action(tr("Fit item"), tr("Show only the part under the pointer"), {Qt::Key_F}, [this, middle] {
    const ValueRange item = item_at(middle());
    const double margin = item.width() * 0.1;
    if (item.width() > 0) range().show({item.begin - margin, item.end + margin});
  });
  add_action(tr("Show all"), tr("Show all of it"), {Qt::Key_0, Qt::Key_Home}, [this] { range().show_all(); });
  add_action(tr("Undo zoom"), tr("Show the previous view"), {Qt::Key_Backspace}, [this] { range().undo(); });
}

ChartAxis PlotWidget::time_axis(const QRectF& plot) const {
  return {range().visible(), plot.left(), plot.width()};
}

double PlotWidget::next_stop(double value, int direction) const {
  const QRectF plot = current_plot();
  return value + direction * range().visible().width() / std::max(1.0, plot.width());
}

void PlotWidget::draw(QPainter& painter, const QRectF& bounds) {
  painter.save();
  painter.fillRect(bounds, theme_.background);
  painter.setFont(font());
  draw_chart(painter, bounds, plot_area(bounds));
  painter.restore();
}

void PlotWidget::paintEvent(QPaintEvent* /*event*/) {
  const qreal scale = devicePixelRatioF();
  const QSize pixels = (QSizeF(size()) * scale).toSize();
  if (is_stale_ || picture_.size() != pixels) {
    picture_ = QPixmap(pixels);
    picture_.setDevicePixelRatio(scale);
    QPainter painter(&picture_);
    draw(painter, QRectF(rect()));
    is_stale_ = false;
  }
  QPainter painter(this);
  painter.drawPixmap(0, 0, picture_);
  painter.setFont(font());
  const QRectF plot = current_plot();
  draw_selection(painter, plot);
  const std::optional<double>& pointer = range().pointer();
  const bool is_visible = pointer && *pointer >= range().visible().begin && *pointer <= range().visible().end;
  if (is_visible) draw_pointer(painter, QRectF(rect()), plot, *pointer);
  if (hasFocus()) {
    painter.setPen(hairline(theme_.accent));
    painter.setBrush(Qt::NoBrush);
    painter.drawRect(QRectF(rect()).adjusted(0.5, 0.5, -0.5, -0.5));
  }
}

void PlotWidget::draw_selection(QPainter& painter, const QRectF& plot) const {
  const std::optional<ValueRange>& selection = range().selection();
  if (!selection || !(selection->width() > 0)) return;
  const ChartAxis axis = time_axis(plot);
  const qreal left = std::clamp(axis.to_pixel(selection->begin), plot.left(), plot.right());
  const qreal right = std::clamp(axis.to_pixel(selection->end), plot.left(), plot.right());
  if (right <= left) return;
  const QRectF box(left, plot.top(), right - left, plot.height());
  painter.fillRect(box, with_alpha(theme_.accent, 0.13));
  painter.setPen(hairline(theme_.accent));
  painter.drawLine(box.topLeft(), box.bottomLeft());
  painter.drawLine(box.topRight(), box.bottomRight());
  // At the bottom, clear of the peak and of the lane of kernels.
  draw_note(painter, plot, QPointF(left - 6, plot.bottom() + 8), {{describe(*selection), {}, {}, true}}, theme_);
}

void PlotWidget::resizeEvent(QResizeEvent* event) {
  is_stale_ = true;
  QWidget::resizeEvent(event);
}

void PlotWidget::wheelEvent(QWheelEvent* event) {
  const QPoint turned = event->angleDelta();
  const double at = time_axis(current_plot()).to_value(event->position().x());
  const bool is_sideways =
      event->modifiers().testFlag(Qt::ShiftModifier) || std::abs(turned.x()) > std::abs(turned.y());
  if (is_sideways) {
    const int amount = turned.x() != 0 ? turned.x() : turned.y();
    range().pan(-amount / 120.0 * kKeyPan * range().visible().width());
  } else if (turned.y() != 0) {
    range().zoom(std::pow(kWheelZoom, turned.y()), at);
  }
  event->accept();
}

void PlotWidget::mousePressEvent(QMouseEvent* event) {
  pressed_ = last_ = event->position();
  has_moved_ = false;
  const bool pans = event->button() == Qt::MiddleButton ||
                    (event->button() == Qt::LeftButton && event->modifiers().testFlag(Qt::ShiftModifier));
  if (pans) {
    drag_ = Drag::Pan;
    setCursor(Qt::ClosedHandCursor);
  } else if (event->button() == Qt::LeftButton) {
    drag_ = Drag::Select;
  }
}

void PlotWidget::mouseMoveEvent(QMouseEvent* event) {
  const QRectF plot = current_plot();
  const ChartAxis axis = time_axis(plot);
  const QPointF at = event->position();
  has_moved_ = has_moved_ || (at - pressed_).manhattanLength() >= QApplication::startDragDistance() / 2.0;
  if (drag_ == Drag::Pan) {
    range().pan(axis.to_value(last_.x()) - axis.to_value(at.x()));
  } else if (drag_ == Drag::Select && has_moved_) {
    const double a = axis.to_value(std::clamp(pressed_.x(), plot.left(), plot.right()));
    const double b = axis.to_value(std::clamp(at.x(), plot.left(), plot.right()));
    range().select(ValueRange{std::min(a, b), std::max(a, b)});
  }
  last_ = at;
  pointed(at);
  const bool is_inside = at.x() >= plot.left() && at.x() <= plot.right();
  if (is_inside)
    point_at(axis.to_value(at.x()));
  else
    leaveEvent(nullptr);
}

void PlotWidget::mouseReleaseEvent(QMouseEvent* event) {
  const Drag was = std::exchange(drag_, Drag::None);
  unsetCursor();
  if (was != Drag::Select || has_moved_) return;
  range().select(std::nullopt);
  activate(event->position());
}

void PlotWidget::mouseDoubleClickEvent(QMouseEvent* event) {
  const ValueRange item = item_at(time_axis(current_plot()).to_value(event->position().x()));
  if (item.width() > 0) range().show({item.begin - item.width() * 0.1, item.end + item.width() * 0.1});
}

void PlotWidget::leaveEvent(QEvent* /*event*/) {
  range().point(std::nullopt);
  emit status_changed({});
}

bool PlotWidget::points_here() const {
  return own_pointer_ && own_pointer_ == range().pointer() && (underMouse() || hasFocus());
}

void PlotWidget::point_at(double value) {
  own_pointer_ = value;
  range().point(value);
  emit status_changed(status_at(value));
}

void PlotWidget::keyPressEvent(QKeyEvent* event) {
  const bool is_arrow = event->key() == Qt::Key_Left || event->key() == Qt::Key_Right;
  const ValueRange& now = range().visible();
  if (is_arrow) {
    const int direction = event->key() == Qt::Key_Right ? 1 : -1;
    const double from = range().pointer().value_or((now.begin + now.end) / 2);
    double next = from;
    for (int i = 0; i < (event->modifiers().testFlag(Qt::ShiftModifier) ? 10 : 1); ++i)
      next = next_stop(next, direction);
    next = std::clamp(next, range().full().begin, range().full().end);
    if (next < now.begin || next > now.end) range().pan(next - from);
    point_at(next);
    return;
  }
  if (event->key() == Qt::Key_Escape) {
    range().select(std::nullopt);
    leaveEvent(nullptr);
    return;
  }
  if ((event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter) && range().pointer()) {
    const QRectF plot = current_plot();
    activate({time_axis(plot).to_pixel(*range().pointer()), plot.center().y()});
    return;
  }
  QWidget::keyPressEvent(event);
}

void PlotWidget::focusInEvent(QFocusEvent* event) {
  update();
  QWidget::focusInEvent(event);
}

void PlotWidget::focusOutEvent(QFocusEvent* event) {
  update();
  QWidget::focusOutEvent(event);
}

}  // namespace fsdp::gui
