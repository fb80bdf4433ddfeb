#pragma once

// The window: the answer on top, charts in the middle, controls and modules on the left, everything else in docks that
// can be moved, hidden and restored.

#include <QAction>
#include <QDockWidget>
#include <QLabel>
#include <QListWidget>
#include <QMainWindow>
#include <QSplitter>
#include <QStackedWidget>
#include <QString>
#include <QTimer>
#include <array>
#include <functional>
#include <map>

#include "gui/charts/memory_timeline_widget.h"
#include "gui/charts/pareto_widget.h"
#include "gui/charts/stream_timeline_widget.h"
#include "gui/charts/teaching_widget.h"
#include "gui/overlay/overlay_reader.h"
#include "gui/panels/answer_panel.h"
#include "gui/panels/comparison_panel.h"
#include "gui/panels/control_panel.h"
#include "gui/panels/module_tree.h"
#include "gui/panels/peak_panel.h"
#include "gui/panels/recording_view.h"
#include "gui/panels/run_panel.h"
#include "gui/panels/start_page.h"
#include "gui/panels/table_panel.h"
#include "gui/panels/verdict_bar.h"
#include "gui/state/app_state.h"
#include "gui/state/baseline_loader.h"
#include "gui/state/recovery.h"
#include "gui/state/settings.h"
#include "gui/theme/theme.h"
#include "planner/trainers/trainers.h"

namespace fsdp::gui {

class MainWindow : public QMainWindow {
  Q_OBJECT

 public:
  /// `library`: the folder of the shipped models.
  explicit MainWindow(const std::string& library, QWidget* parent = nullptr);
  ~MainWindow() override;

  AppState& state() { return state_; }
  ControlPanel& controls() { return *controls_; }
  RunPanel& runs() { return *runs_; }

  /// Opens a model, a plan, a project or a report. Errors in it are shown, and nothing else changes. `options` override
  /// the contents of a model, a plan or a project; a model without machines opens on the machine of the start page.
  bool open_file(const QString& path, const GivenOptions& options = {});
  void open_model(const QString& name);
  void open_example(int example);
  bool save_project_as(const QString& path);
  /// Offers to restore the unsaved work of programs that have ended, if there is any.
  void offer_recovery();
  /// Opens the file of the command line, unless recovered work is there already. Empty opens none.
  void open_at_start(const QString& file, const GivenOptions& options = {});
  const Recovery& recovery() const { return recovery_; }

  /// Starts to read the output of a run, to lay it over the prediction. Without a plan a memory snapshot is shown by
  /// itself.
  void load_measured(const QString& path);
  /// Starts to answer another file, to pin it as the baseline.
  void compare_with(const QString& path);
  bool is_comparing() const { return baselines_.is_busy(); }
  bool is_loading() const { return overlays_.is_busy() || recording_->is_busy(); }

  void set_theme(ThemeChoice choice);
  const Theme& theme() const { return theme_; }
  /// Brings one view to the front, by the title of its tab: "plans", "peak", "Step by step", "in-words". False if there
  /// is none.
  bool show_view(const QString& name);
  QStringList views() const;

 protected:
  void closeEvent(QCloseEvent* event) override;
  void dragEnterEvent(QDragEnterEvent* event) override;
  void dropEvent(QDropEvent* event) override;
  void changeEvent(QEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  bool event(QEvent* event) override;

 private:
  void build_center();
  void connect_recordings();
  void open_recording(const QString& path);
  void close_recording();
  Result<Inputs> inputs_of(const QString& path, const GivenOptions& options) const;
  void build_charts();
  void connect_charts();
  void show_charts();
  void show_waiting();
  void theme_charts();
  std::array<PlotWidget*, 3> plots() const;
  void place_overlay();
  void build_export_menu(QMenu& file);
  void share_page();
  void finish_export(const QString& path, const Result<void>& written);
  void build_docks();
  void build_actions();
  void build_file_menu();
  void build_edit_menu();
  void build_view_menu();
  void build_plan_menu();
  void build_run_menu();
  void build_help_menu();
  QDockWidget* add_dock(const QString& name, const QString& title, QWidget* content, Qt::DockWidgetArea area);
  QAction* add_action(QMenu& menu, const QString& name, const QString& text, const QKeySequence& shortcut,
                      const QString& tip, const std::function<void()>& act);
  void arrange_docks();
  void fit_docks();
  int lesson_height() const;        ///< The height that the view "Step by step" needs.
  QSize dock_sizes() const;         ///< The width of the controls and the height of the views.
  QSize wanted_dock_sizes() const;  ///< The sizes for the current size of the window.
  void show_dock_titles();
  void connect_state();
  void apply_theme();
  void show_errors();
  void show_title();
  void show_pages();
  void show_snapshot();
  void remember_machine();
  void show_recent();
  void show_keys();
  void bring_to_front(const QString& name);
  void show_about();
  void log(const QString& text);
  void trim_messages();

  void ask_for_file();
  bool save_project();
  bool ask_and_save_project();
  void save_plan();
  void copy_command();
  void copy_python();
  void copy_for(planner::Trainer wanted);
  bool may_discard();
  void autosave();
  void keep_for_recovery();
  void set_current_file(const QString& path);

  Settings settings_;
  Recovery recovery_;
  Theme theme_;
  ThemeChoice theme_choice_ = ThemeChoice::System;
  QPalette platform_palette_;
  AppState state_;
  QStackedWidget* pages_ = nullptr;
  StartPage* start_ = nullptr;
  VerdictBar* verdict_ = nullptr;
  QLabel* problem_ = nullptr;
  RecordingView* recording_ = nullptr;
  bool shows_recording_ = false;
  QString measured_path_;  ///< Path of the file that is laid over the prediction.
  AnswerPanel* answer_ = nullptr;
  BaselineLoader baselines_;
  QSplitter* charts_ = nullptr;
  TimeRange* range_ = nullptr;  ///< Range of all charts over time.
  MemoryTimelineWidget* memory_ = nullptr;
  StreamTimelineWidget* streams_ = nullptr;
  ParetoWidget* pareto_ = nullptr;
  PeakPanel* peak_ = nullptr;
  ComparisonPanel* comparison_ = nullptr;
  TeachingWidget* teaching_ = nullptr;
  TablePanel* tables_ = nullptr;
  OverlayLoader overlays_;
  ControlPanel* controls_ = nullptr;
  ModuleTree* modules_ = nullptr;
  RunPanel* runs_ = nullptr;
  QListWidget* messages_ = nullptr;
  QMenu* recent_menu_ = nullptr;
  QMenu* view_menu_ = nullptr;
  QByteArray default_layout_;
  QByteArray layout_;           ///< Layout of the docks while the start page hides them.
  bool has_own_sizes_ = false;  ///< The user moved an edge of the docks; their sizes then stay as they are.
  QSize pressed_sizes_;         ///< Sizes of the docks when a mouse button went down.
  bool is_working_ = false;     ///< A model is open.
  std::map<QString, QDockWidget*> docks_;
  std::map<QString, QAction*> actions_;
  QString file_;    ///< The file of the project. Empty if it was not saved yet.
  QString opened_;  ///< The file that the state was opened from. Empty if there is none.
  Inputs saved_;    ///< The contents of the file.
  QTimer autosave_timer_;
  QTimer titles_timer_;
};

}  // namespace fsdp::gui
