#pragma once

// Qt's Fusion style with outlines that are visible on dark backgrounds, too: Fusion makes them darker than the window.

#include <QProxyStyle>

namespace fsdp::gui {

class Style : public QProxyStyle {
  Q_OBJECT

 public:
  Style() : QProxyStyle("Fusion") {}

  void drawPrimitive(PrimitiveElement element, const QStyleOption* option, QPainter* painter,
                     const QWidget* widget) const override;
  void drawComplexControl(ComplexControl control, const QStyleOptionComplex* option, QPainter* painter,
                          const QWidget* widget) const override;
  QSize sizeFromContents(ContentsType type, const QStyleOption* option, const QSize& size,
                         const QWidget* widget) const override;
};

}  // namespace fsdp::gui
