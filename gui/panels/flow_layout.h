#pragma once

// Places widgets in as many rows as they need, at most two. A title stands in one row with the next widget.

#include <QLayout>
#include <QList>

namespace fsdp::gui {

class FlowLayout : public QLayout {
 public:
  explicit FlowLayout(QWidget* parent) : QLayout(parent) { setSpacing(6); }
  ~FlowLayout() override;

  void addItem(QLayoutItem* item) override { items_.append(item); }
  int count() const override { return static_cast<int>(items_.size()); }
  QLayoutItem* itemAt(int index) const override { return items_.value(index); }
  QLayoutItem* takeAt(int index) override;
  Qt::Orientations expandingDirections() const override { return {}; }
  bool hasHeightForWidth() const override { return true; }
  int heightForWidth(int width) const override { return place({0, 0, width, 0}, false); }
  QSize minimumSize() const override;
  QSize sizeHint() const override { return minimumSize(); }
  void setGeometry(const QRect& rect) override;

 private:
  /// Returns the needed height. Moves the widgets if `moves`.
  int place(const QRect& rect, bool moves) const;

  QList<QLayoutItem*> items_;
};

}  // namespace fsdp::gui
