#pragma once

// One control: a label, an editor (slider and box, list, text) and a button that takes the user's choice back.
//
// A control also shows a value that the user did not choose, in weaker type: the value of the search, the recipe or the
// machine. So a control is never empty, and the user's own values stand out.

#include <QComboBox>
#include <QLabel>
#include <QLineEdit>
#include <QSlider>
#include <QSpinBox>
#include <QString>
#include <QToolButton>
#include <QWidget>
#include <cstdint>
#include <string>
#include <vector>

#include "gui/panels/control_info.h"

namespace fsdp::gui {

class Control : public QWidget {
  Q_OBJECT

 public:
  /// `name`: the object's name, for tests and settings. `help` is the tool tip.
  Control(ControlKind kind, const QString& name, const QString& label, const QString& help,
          std::vector<std::int64_t> stops, const std::vector<std::string>& choices, QWidget* parent = nullptr);

  /// Shows a value without emitting `edited`. `is_own`: the user decided it. An empty value disables the control.
  void show_value(const QString& value, bool is_own);
  /// The hint of the reset button; an empty text hides the button.
  void set_reset_hint(const QString& hint);
  void set_choices(const std::vector<std::string>& choices);
  /// Disables the control; the tool tip gives the reason. Empty enables it.
  void set_reason(const QString& reason);
  /// Marks the field with its error. Empty removes the mark.
  void set_problem(const QString& problem);
  QString problem() const { return problem_; }
  QString label() const { return name_; }
  QString value() const { return value_; }
  /// Pixels for the text of a list. REQUIRES: it has one.
  int room() const;

 protected:
  /// Undo belongs to the window, except while the user types here.
  bool eventFilter(QObject* watched, QEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void changeEvent(QEvent* event) override;

 signals:
  /// The user wants this text; empty takes the choice back. `gesture` stays the same while a slider is dragged.
  void edited(QString text, int gesture);

 private:
  void build_count();
  void build_size();
  void build_choice(bool is_open, const std::vector<std::string>& choices);
  void build_text();
  void finish(const QString& name, const QString& label, const QString& help);
  void tell(const QString& text);
  /// The part of a description that fits the list.
  QString fitting(const QString& value) const;
  int stop_of(double value) const;
  void show_help();
  void mark();

  ControlKind kind_;
  std::vector<std::int64_t> stops_;
  QString value_;
  QString name_;  ///< The text of its label.
  QString help_;
  QString reason_;
  QString problem_;
  bool is_own_ = false;
  bool is_showing_ = false;  ///< The program is setting a value.
  int gesture_ = 0;
  QLabel* label_ = nullptr;
  QWidget* editor_ = nullptr;
  QSlider* slider_ = nullptr;
  QSpinBox* box_ = nullptr;
  QLineEdit* text_ = nullptr;
  QComboBox* list_ = nullptr;
  QToolButton* reset_ = nullptr;
};

}  // namespace fsdp::gui
