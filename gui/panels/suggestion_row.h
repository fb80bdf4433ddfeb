#pragma once

// Suggestions as buttons, grouped by what they cost besides bytes and seconds: the first ones of each group are
// visible, and a menu has all of them.

#include <QToolButton>
#include <QWidget>

#include "gui/state/app_state.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

class SuggestionRow : public QWidget {
  Q_OBJECT

 public:
  explicit SuggestionRow(AppState& state, QWidget* parent = nullptr);
  void set_theme(const Theme& theme);
  /// Shows the suggestions of the state's snapshot.
  void show_suggestions();

 private:
  void show_chips(const Snapshot& shown);
  void fill_menu(const Snapshot& shown);

  AppState& state_;
  Theme theme_ = light_theme();
  QWidget* chips_;
  QToolButton* more_;  ///< All suggestions, including those without room.
  QString shown_;      ///< The texts of the buttons, to detect that nothing changed.
};

}  // namespace fsdp::gui
