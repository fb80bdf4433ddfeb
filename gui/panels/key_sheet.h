#pragma once

// All shortcuts on one sheet, by menu, and the keys of the charts.

#include <QDialog>
#include <QMenuBar>
#include <QString>
#include <utility>
#include <vector>

namespace fsdp::gui {

struct KeyGroup {
  QString title;                                  ///< "File"
  std::vector<std::pair<QString, QString>> keys;  ///< "Ctrl+O", "Open"
};

/// A view that has keys of its own.
struct KeyedWidget {
  QString title;
  const QWidget* widget = nullptr;
  std::vector<std::pair<QString, QString>> more = {};  ///< Keys that belong to no action.
};

/// The shortcuts of the menus in the order of the menus, then the keys of the charts; keys that several charts share
/// stand with the first of them.
std::vector<KeyGroup> groups_of(const QMenuBar& menus, const std::vector<KeyedWidget>& charts);

/// Escape closes it.
class KeySheet : public QDialog {
  Q_OBJECT

 public:
  explicit KeySheet(const std::vector<KeyGroup>& groups, QWidget* parent = nullptr);
};

}  // namespace fsdp::gui
