#pragma once

// The answer, above everything else: whether it fits, peak of budget, headroom, step time, exposed communication, the
// binding moment, and remedies.

#include <QHBoxLayout>
#include <QLabel>
#include <QProgressBar>
#include <QPushButton>
#include <QToolButton>
#include <QWidget>
#include <array>

#include "gui/panels/budget_bar.h"
#include "gui/panels/suggestion_row.h"
#include "gui/state/app_state.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

class VerdictBar : public QWidget {
  Q_OBJECT

 public:
  explicit VerdictBar(AppState& state, QWidget* parent = nullptr);
  void set_theme(const Theme& theme);

  QString verdict() const { return verdict_->text(); }

 signals:
  /// The user wants to see the moment of the peak.
  void peak_clicked();
  /// The user wants to see the assumptions of the figures.
  void assumptions_wanted();

 protected:
  void resizeEvent(QResizeEvent* event) override;

 private:
  struct Figure {
    QLabel* title = nullptr;
    QLabel* value = nullptr;
    QLabel* delta = nullptr;
  };

  QLayout* make_figures();
  QLayout* make_moment();
  QLayout* make_suggestions();
  Figure add_figure(QHBoxLayout& row, const QString& title, const QString& help);
  void show_state();
  std::array<Figure, 5> figures() const;
  void show_figures(const Snapshot& shown);
  void show_host(const MemoryReport& memory);
  void show_delta(QLabel& label, const QString& text, double change);
  void show_assumptions(const Snapshot& shown);
  void show_busy();
  void show_moment();         ///< Shows as much of it as fits.
  void show_what_has_room();  ///< In the row of figures.

  AppState& state_;
  Theme theme_ = light_theme();
  QLabel* verdict_;
  BudgetBar* bar_;
  Figure peak_, headroom_, step_, exposed_, host_;
  bool has_host_ = false;  ///< The plan needs memory of the host.
  QString peak_text_;
  QString peak_short_;  ///< The short text, if the long one does not fit.
  QPushButton* moment_;
  QString moment_text_;
  QToolButton* assumes_;
  SuggestionRow* suggestions_;
  QPushButton* search_;  ///< For a plan that is kept.
  QProgressBar* progress_;
  QLabel* progress_text_;
  QToolButton* stop_;
};

}  // namespace fsdp::gui
