#pragma once

// A large button with a title and a sentence, for the start page.

#include <QAbstractButton>
#include <QString>

namespace fsdp::gui {

class ExampleCard : public QAbstractButton {
  Q_OBJECT

 public:
  ExampleCard(const QString& title, const QString& sentence, QWidget* parent);
  QSize sizeHint() const override;
  QSize minimumSizeHint() const override { return {200, sizeHint().height()}; }

 protected:
  void paintEvent(QPaintEvent* event) override;
  void enterEvent(QEnterEvent* event) override;
  void leaveEvent(QEvent* event) override;

 private:
  QString sentence_;
};

}  // namespace fsdp::gui
