#include "gui/theme/style.h"

#include <QPainter>
#include <QStyleOption>

#include "gui/theme/theme.h"

namespace fsdp::gui {

namespace {

QColor outline_of(const QStyleOption& option) {
  const bool has_focus = option.state & QStyle::State_HasFocus;
  return option.palette.color(has_focus ? QPalette::Highlight : QPalette::Mid);
}

void draw_outline(QPainter& painter, const QStyleOption& option, const QRect& box) {
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(QPen(outline_of(option).lighter(option.state & QStyle::State_HasFocus ? 100 : 118), 1));
  painter.setBrush(Qt::NoBrush);
  painter.drawRoundedRect(QRectF(box).adjusted(0.5, 0.5, -0.5, -0.5), 2, 2);
  painter.restore();
}

/// Marks the button or list that receives the next key. Qt's own mark is a line of one pixel, and appears only after
/// the user has pressed Tab.
void draw_focus(QPainter& painter, const QStyleOption& option) {
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(QPen(option.palette.color(QPalette::Highlight), 2));
  painter.setBrush(Qt::NoBrush);
  painter.drawRoundedRect(QRectF(option.rect).adjusted(1, 1, -1, -1), 2, 2);
  painter.restore();
}

/// A box with a tick, or with a line if only some of its children are checked.
void draw_check_box(QPainter& painter, const QStyleOption& option) {
  const bool is_enabled = option.state & QStyle::State_Enabled;
  const bool is_marked = option.state & (QStyle::State_On | QStyle::State_NoChange);
  const QPalette& palette = option.palette;
  const QColor mark = palette.color(is_enabled ? QPalette::Active : QPalette::Disabled, QPalette::Highlight);
  const qreal side = std::min(option.rect.width(), option.rect.height()) - 1;
  const QRectF box(option.rect.x() + (option.rect.width() - side) / 2,
                   option.rect.y() + (option.rect.height() - side) / 2, side, side);
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(QPen(is_marked ? mark : palette.color(QPalette::PlaceholderText), 1.2));
  painter.setBrush(is_marked ? mark : palette.color(QPalette::Base));
  painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), 2.5, 2.5);
  painter.setPen(QPen(palette.color(QPalette::HighlightedText), side / 7, Qt::SolidLine, Qt::RoundCap, Qt::RoundJoin));
  const auto at = [&](qreal x, qreal y) { return QPointF(box.left() + x * side, box.top() + y * side); };
  if (option.state & QStyle::State_On)
    painter.drawPolyline(QPolygonF({at(0.26, 0.53), at(0.44, 0.71), at(0.75, 0.31)}));
  if (option.state & QStyle::State_NoChange) painter.drawLine(at(0.28, 0.5), at(0.72, 0.5));
  painter.restore();
}

void draw_radio_button(QPainter& painter, const QStyleOption& option) {
  const bool is_on = option.state & QStyle::State_On;
  const bool is_enabled = option.state & QStyle::State_Enabled;
  const QColor mark = option.palette.color(is_enabled ? QPalette::Active : QPalette::Disabled, QPalette::Highlight);
  const qreal radius = std::min(option.rect.width(), option.rect.height()) / 2.0 - 1;
  const QPointF center = QRectF(option.rect).center();
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(QPen(is_on ? mark : option.palette.color(QPalette::PlaceholderText), 1.2));
  painter.setBrush(option.palette.color(QPalette::Base));
  painter.drawEllipse(center, radius, radius);
  painter.setPen(Qt::NoPen);
  painter.setBrush(mark);
  if (is_on) painter.drawEllipse(center, radius * 0.55, radius * 0.55);
  painter.restore();
}

}  // namespace

void Style::drawPrimitive(PrimitiveElement element, const QStyleOption* option, QPainter* painter,
                          const QWidget* widget) const {
  switch (element) {
    case PE_IndicatorCheckBox:
    case PE_IndicatorItemViewItemCheck:
      return draw_check_box(*painter, *option);
    case PE_IndicatorRadioButton:
      return draw_radio_button(*painter, *option);
    default:
      break;
  }
  QProxyStyle::drawPrimitive(element, option, painter, widget);
  const bool is_button = element == PE_PanelButtonCommand || element == PE_PanelButtonTool;
  if (is_button && (option->state & State_HasFocus)) return draw_focus(*painter, *option);
  const bool has_outline = element == PE_FrameLineEdit || element == PE_PanelButtonCommand || element == PE_Frame;
  if (!has_outline || !is_dark(option->palette)) return;
  if (element == PE_PanelButtonCommand) {
    const auto* button = qstyleoption_cast<const QStyleOptionButton*>(option);
    const bool is_raised = option->state & (State_MouseOver | State_Sunken | State_On);
    if (button != nullptr && (button->features & QStyleOptionButton::Flat) && !is_raised) return;
  }
  draw_outline(*painter, *option, option->rect);
}

void Style::drawComplexControl(ComplexControl control, const QStyleOptionComplex* option, QPainter* painter,
                               const QWidget* widget) const {
  if (const auto* button = qstyleoption_cast<const QStyleOptionToolButton*>(option)) {
    // A button with a menu has its arrow in its text; Qt would draw a second one over it.
    QStyleOptionToolButton plain = *button;
    plain.features &= ~QStyleOptionToolButton::HasMenu;
    return QProxyStyle::drawComplexControl(control, &plain, painter, widget);
  }
  QProxyStyle::drawComplexControl(control, option, painter, widget);
  const auto* list = qstyleoption_cast<const QStyleOptionComboBox*>(option);
  if (list != nullptr && (option->state & State_HasFocus)) return draw_focus(*painter, *option);
  const bool is_framed = control == CC_SpinBox || (list != nullptr && list->editable);
  if (is_framed && is_dark(option->palette)) draw_outline(*painter, *option, option->rect);
}

QSize Style::sizeFromContents(ContentsType type, const QStyleOption* option, const QSize& size,
                              const QWidget* widget) const {
  const QSize plain = QProxyStyle::sizeFromContents(type, option, size, widget);
  return type == CT_ItemViewItem ? plain + QSize(0, 4) : plain;
}

}  // namespace fsdp::gui
