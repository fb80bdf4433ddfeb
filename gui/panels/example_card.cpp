#include "gui/panels/example_card.h"

#include <QPainter>

#include "gui/charts/plot_paint.h"

namespace fsdp::gui {

namespace {

constexpr qreal kPad = 14;
constexpr qreal kArrow = 24;  // Room for it at the right.

QFont strong(QFont font) {
  font.setBold(true);
  return font;
}

}  // namespace

ExampleCard::ExampleCard(const QString& title, const QString& sentence, QWidget* parent)
    : QAbstractButton(parent), sentence_(sentence) {
  setText(title);
  setAccessibleName(title);
  setAccessibleDescription(sentence);
  setToolTip(sentence);
  setCursor(Qt::PointingHandCursor);
  setFocusPolicy(Qt::StrongFocus);
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
}

QSize ExampleCard::sizeHint() const {
  const QFontMetrics metrics(font());
  return {420, 2 * metrics.height() + static_cast<int>(2 * kPad) + 2};
}

void ExampleCard::enterEvent(QEnterEvent* event) {
  QAbstractButton::enterEvent(event);
  update();
}

void ExampleCard::leaveEvent(QEvent* event) {
  QAbstractButton::leaveEvent(event);
  update();
}

void ExampleCard::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(this);
  painter.setRenderHint(QPainter::Antialiasing);
  const QPalette& colors = palette();
  const bool is_marked = hasFocus() || underMouse();
  const QColor accent = colors.color(QPalette::Highlight);
  const QColor ground = colors.color(QPalette::Base);
  painter.setPen(hairline(is_marked ? accent : colors.color(QPalette::Mid), hasFocus() ? 2 : 1));
  painter.setBrush(isDown() ? mixed(ground, accent, 0.18) : underMouse() ? mixed(ground, accent, 0.07) : ground);
  painter.drawRoundedRect(QRectF(rect()).adjusted(1, 1, -1, -1), 6, 6);
  const QFontMetricsF metrics(font());
  const QFontMetricsF title_metrics(strong(font()));
  const qreal room = width() - 2 * kPad - kArrow;
  painter.setFont(strong(font()));
  painter.setPen(colors.color(QPalette::Text));
  painter.drawText(QPointF(kPad, kPad + title_metrics.ascent()),
                   title_metrics.elidedText(text(), Qt::ElideRight, room));
  painter.setFont(font());
  painter.setPen(colors.color(QPalette::PlaceholderText));
  painter.drawText(QPointF(kPad, kPad + title_metrics.height() + 2 + metrics.ascent()),
                   metrics.elidedText(sentence_, Qt::ElideRight, room));
  const QPointF tip(width() - kPad - 2, height() / 2.0);
  painter.setPen(QPen(is_marked ? accent : colors.color(QPalette::PlaceholderText), 1.6, Qt::SolidLine, Qt::RoundCap,
                      Qt::RoundJoin));
  painter.setBrush(Qt::NoBrush);
  painter.drawPolyline(QPolygonF({tip + QPointF(-5, -5), tip, tip + QPointF(-5, 5)}));
}

}  // namespace fsdp::gui
