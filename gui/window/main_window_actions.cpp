// The menus: every action has a name, a text, and a shortcut or a tool tip.

#include <QActionGroup>
#include <QApplication>
#include <QClipboard>
#include <QDesktopServices>
#include <QDir>
#include <QDockWidget>
#include <QFileDialog>
#include <QFileInfo>
#include <QMenuBar>
#include <QMessageBox>
#include <QUrl>

#include "core/version.h"
#include "gui/panels/key_sheet.h"
#include "gui/window/main_window.h"
#include "render/plan_code.h"
#include "render/trainer_config.h"

namespace fsdp::gui {

namespace {

/// Alt+1 to Alt+9, and Alt+0.
constexpr const char* kViewsInOrder[] = {"controls", "modules", "pareto", "peak",     "differences",
                                         "teaching", "tables",  "runs",   "messages", "answer"};

/// A page of the documentation: next to the model library of a checkout, or where it is installed. Empty if it is in
/// neither place.
QString page_of(const std::string& library, const QString& file) {
  const QDir program(QApplication::applicationDirPath());
  for (const QString& folder :
       {QString::fromStdString(library) + "/../docs", program.filePath("../share/doc/fsdp-plan")}) {
    if (const QFileInfo page(folder + "/" + file); page.exists()) return page.canonicalFilePath();
  }
  return {};
}

/// The origin of the plan in a text.
constexpr const char* kPlanOfWindow = "the plan of the window";

}  // namespace

QAction* MainWindow::add_action(QMenu& menu, const QString& name, const QString& text, const QKeySequence& shortcut,
                                const QString& tip, const std::function<void()>& act) {
  auto* action = new QAction(text, this);
  action->setObjectName("action_" + name);
  action->setShortcut(shortcut);
  action->setToolTip(tip);
  action->setStatusTip(tip);
  connect(action, &QAction::triggered, this, act);
  menu.addAction(action);
  actions_[name] = action;
  return action;
}

void MainWindow::build_actions() {
  build_file_menu();
  build_edit_menu();
  build_view_menu();
  build_plan_menu();
  build_run_menu();
  build_help_menu();
}

void MainWindow::build_file_menu() {
  QMenu& menu = *menuBar()->addMenu(tr("&File"));
  menu.setToolTipsVisible(true);
  add_action(menu, "new", tr("&Start page"), QKeySequence::New, tr("Start over with an example or a file"), [this] {
    if (may_discard()) {
      set_current_file({});
      saved_ = {};
      opened_.clear();
      shows_recording_ = false;
      state_.open({});
      state_.set_baseline(nullptr);
    }
  });
  add_action(menu, "open", tr("&Open …"), QKeySequence::Open, tr("Open a model, a plan or a project"),
             [this] { ask_for_file(); });
  add_action(menu, "compare_with", tr("&Compare with …"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_O),
             tr("Pin the answer of another file as the baseline"), [this] {
               const QString path = QFileDialog::getOpenFileName(
                   this, tr("Compare with"), {}, tr("Models, plans and projects (*.json);;All files (*)"));
               if (!path.isEmpty()) compare_with(path);
             });
  recent_menu_ = menu.addMenu(tr("Open &recent"));
  connect(recent_menu_, &QMenu::aboutToShow, this, &MainWindow::show_recent);
  menu.addSeparator();
  add_action(menu, "save", tr("&Save project"), QKeySequence::Save, tr("Save all settings to a file"),
             [this] { save_project(); });
  add_action(menu, "save_as", tr("Save project &as …"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_S),
             tr("Save all settings to another file"), [this] { ask_and_save_project(); });
  add_action(menu, "save_plan", tr("Save &plan …"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_P),
             tr("Write the plan that is shown, for fsdp-plan simulate, rehearse and execute"), [this] { save_plan(); });
  build_export_menu(menu);
  menu.addSeparator();
  add_action(menu, "quit", tr("&Quit"), QKeySequence(Qt::CTRL | Qt::Key_Q), tr("Close the window"),
             [this] { close(); });
}

void MainWindow::build_edit_menu() {
  QMenu& menu = *menuBar()->addMenu(tr("&Edit"));
  QAction* undo = state_.undo_stack().createUndoAction(this, tr("&Undo"));
  undo->setShortcut(QKeySequence::Undo);
  undo->setObjectName("action_undo");
  QAction* redo = state_.undo_stack().createRedoAction(this, tr("&Redo"));
  redo->setShortcut(QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_Z));
  redo->setObjectName("action_redo");
  menu.addAction(undo);
  menu.addAction(redo);
  actions_["undo"] = undo;
  actions_["redo"] = redo;
  menu.addSeparator();
  add_action(menu, "copy_command", tr("&Copy as command"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_C),
             tr("The fsdp-plan command that answers the same"), [this] { copy_command(); });
  add_action(menu, "copy_python", tr("Copy as &Python"), {},
             tr("A function that shards a model with PyTorch's FSDP2 as the plan says"), [this] { copy_python(); });
  add_action(menu, "copy_accelerate", tr("Copy as &accelerate YAML"), {},
             tr("For accelerate launch: the plan, or the closest one that it can express"),
             [this] { copy_for(planner::Trainer::Accelerate); });
  add_action(menu, "copy_trainer", tr("Copy as &Trainer arguments"), {},
             tr("For the Trainer of transformers: the plan, or the closest one that it can express"),
             [this] { copy_for(planner::Trainer::Transformers); });
  add_action(menu, "copy_torchtitan", tr("Copy as t&orchtitan TOML"), {},
             tr("For torchtitan's own models: the plan, or the closest one that it can express"),
             [this] { copy_for(planner::Trainer::Torchtitan); });
  add_action(menu, "copy_deepspeed", tr("Copy as &DeepSpeed configuration"), {}, tr("ds_config.json of a plan of ZeRO"),
             [this] { copy_for(planner::Trainer::DeepSpeed); });
  add_action(menu, "find", tr("&Find a module"), QKeySequence::Find, tr("Search in the tree of modules"), [this] {
    show_view("modules");
    modules_->search().setFocus();
    modules_->search().selectAll();
  });
}

void MainWindow::build_view_menu() {
  view_menu_ = menuBar()->addMenu(tr("&View"));
  int number = 1;
  for (const char* name : kViewsInOrder) {
    const QString title = docks_.at(name)->windowTitle();
    add_action(*view_menu_, QString("front_") + name, title,
               QKeySequence(static_cast<int>(Qt::ALT) | (static_cast<int>(Qt::Key_0) + number++ % 10)),
               tr("Bring this view to the front"), [this, view = QString(name)] { bring_to_front(view); });
  }
  view_menu_->addSeparator();
  QMenu& shown = *view_menu_->addMenu(tr("&Hide and show"));
  for (const char* name : kViewsInOrder) {
    QAction* toggle = docks_.at(name)->toggleViewAction();
    toggle->setObjectName(QString("action_show_") + name);
    shown.addAction(toggle);
  }
  QMenu& themes = *view_menu_->addMenu(tr("&Theme"));
  auto* group = new QActionGroup(this);
  const auto add_theme = [&](const QString& name, const QString& text, ThemeChoice choice) {
    QAction* action = add_action(themes, name, text, {}, tr("Colors of the window"), [this, choice] {
      settings_.set_theme(choice);
      set_theme(choice);
    });
    action->setCheckable(true);
    action->setChecked(settings_.theme() == choice);
    group->addAction(action);
  };
  add_theme("theme_system", tr("&System"), ThemeChoice::System);
  add_theme("theme_light", tr("&Light"), ThemeChoice::Light);
  add_theme("theme_dark", tr("&Dark"), ThemeChoice::Dark);
  add_action(*view_menu_, "restore_layout", tr("&Restore default layout"), {}, tr("Put all docks back where they were"),
             [this] {
               restoreState(default_layout_);
               for (const auto& [name, dock] : docks_) dock->show();
               has_own_sizes_ = false;
               fit_docks();
             });
}

void MainWindow::build_plan_menu() {
  QMenu& menu = *menuBar()->addMenu(tr("&Plan"));
  QAction* keep = add_action(menu, "keep", tr("&Keep this plan"), QKeySequence(Qt::CTRL | Qt::Key_L),
                             tr("Predict exactly this plan instead of searching the best one"),
                             [this] { state_.set_kept(!state_.inputs().kept.has_value()); });
  keep->setCheckable(true);
  connect(&state_, &AppState::inputs_changed, keep,
          [this, keep] { keep->setChecked(state_.inputs().kept.has_value()); });
  add_action(menu, "stop_search", tr("&Stop the search"), QKeySequence(Qt::CTRL | Qt::Key_Period),
             tr("Stop the search and keep what was found so far"), [this] { state_.cancel_search(); });
  menu.addSeparator();
  add_action(menu, "pin", tr("&Pin as baseline"), QKeySequence(Qt::CTRL | Qt::Key_B),
             tr("Compare all later answers with the current one"), [this] { state_.pin_baseline(); });
  add_action(menu, "unpin", tr("&Remove baseline"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_B),
             tr("Compare with nothing"), [this] { state_.set_baseline(nullptr); });
}

void MainWindow::build_run_menu() {
  QMenu& menu = *menuBar()->addMenu(tr("&Run"));
  add_action(menu, "rehearse", tr("&Rehearse"), QKeySequence(Qt::CTRL | Qt::Key_F5),
             tr("Run this plan with the real PyTorch on a stub GPU"),
             [this] { runs_->start(ProcessRun::Kind::Rehearse); });
  add_action(menu, "execute", tr("&Execute"), QKeySequence(Qt::CTRL | Qt::Key_F6),
             tr("Train this plan for real on this machine"), [this] { runs_->start(ProcessRun::Kind::Execute); });
  add_action(menu, "stop_run", tr("&Stop the run"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_F5),
             tr("End the run and all its processes"), [this] { runs_->stop(); });
  menu.addSeparator();
  add_action(menu, "load_measured", tr("&Load what was measured …"), QKeySequence(Qt::CTRL | Qt::Key_M),
             tr("A report of a run, a trace of PyTorch's profiler or a memory snapshot"), [this] {
               const QString path = QFileDialog::getOpenFileName(
                   this, tr("Load"), {}, tr("Reports, traces and snapshots (*.json *.pickle *.pkl);;All files (*)"));
               if (!path.isEmpty()) load_measured(path);
             });
  QAction* alone =
      add_action(menu, "show_recording", tr("Show the &snapshot by itself"), {},
                 tr("The lines of Python that hold the memory, and a replay with other settings of the allocator"),
                 [this] { open_recording(measured_path_); });
  alone->setEnabled(false);
  connect(&state_, &AppState::measured_changed, alone,
          [this, alone] { alone->setEnabled(state_.measured() && state_.measured()->source == "memory snapshot"); });
  add_action(menu, "drop_measured", tr("Remove &measurement"), {}, tr("Show the prediction alone"),
             [this] { state_.set_measured(nullptr); });
}

void MainWindow::build_help_menu() {
  QMenu& menu = *menuBar()->addMenu(tr("&Help"));
  add_action(menu, "keys", tr("&Keyboard"), QKeySequence(Qt::Key_Question), tr("All shortcuts on one sheet"),
             [this] { show_keys(); });
  menu.addSeparator();
  const auto add_page = [&](const QString& name, const QString& title, const QString& file) {
    const QString path = page_of(state_.library(), file);
    QAction* page = add_action(menu, "page_" + name, title, {}, tr("Open this page of the documentation"),
                               [path] { QDesktopServices::openUrl(QUrl::fromLocalFile(path)); });
    page->setEnabled(!path.isEmpty());
  };
  add_page("tutorial", tr("&Tutorial"), "tutorial.md");
  add_page("window", tr("This &window"), "explorer.md");
  add_page("glossary", tr("&Glossary"), "glossary.md");
  add_page("command", tr("The &command"), "cli.md");
  menu.addSeparator();
  add_action(menu, "about", tr("&About"), {}, tr("The version of this program"), [this] { show_about(); });
}

void MainWindow::bring_to_front(const QString& name) {
  // The start page stands alone.
  if (!is_working_ || !show_view(name)) return;
  QWidget* content = docks_.at(name)->widget();
  const auto takes_keys = [](const QWidget* widget) {
    return (widget->focusPolicy() & Qt::TabFocus) != 0 && widget->isVisible() && widget->isEnabled();
  };
  QWidget* first = content;
  do {
    if (takes_keys(first)) return first->setFocus(Qt::ShortcutFocusReason);
    first = first->nextInFocusChain();
  } while (first != content && content->isAncestorOf(first));
  content->setFocus(Qt::ShortcutFocusReason);
}

void MainWindow::show_keys() {
  auto* sheet = new KeySheet(groups_of(*menuBar(), {{tr("Charts"),
                                                     pareto_,
                                                     {{tr("Left or Right"), tr("Step from moment to moment")},
                                                      {tr("Shift+Drag"), tr("Move")},
                                                      {tr("Return"), tr("Choose the item under the pointer")},
                                                      {tr("Esc"), tr("Select nothing")}}},
                                                    {tr("Memory"), memory_},
                                                    {tr("Streams"), streams_},
                                                    {tr("Step by step"), teaching_}}),
                             this);
  sheet->setAttribute(Qt::WA_DeleteOnClose);
  sheet->show();
}

void MainWindow::show_about() {
  QMessageBox::about(
      this, tr("About"),
      tr("<h3>fsdp-plan %1</h3><p>Predicts the memory, traffic and time of FSDP training, and finds the plan "
         "that fits.</p><p>Built with Qt %2 (LGPL-3.0).</p>")
          .arg(QString::fromStdString(std::string(kVersion)), qVersion()));
}

void MainWindow::copy_command() {
  const SnapshotPtr shown = state_.snapshot();
  if (!shown) return;
  QApplication::clipboard()->setText(text_of(command_of(state_.inputs(), plan_file_of(*shown))));
  log(tr("Copied. The command answers the same."));
}

void MainWindow::copy_python() {
  const SnapshotPtr shown = state_.snapshot();
  if (!shown) return;
  const Result<std::string> code = render::plan_code(shown->report.plan, *shown->model, kPlanOfWindow);
  if (!code) return state_.report_errors(code.error());
  QApplication::clipboard()->setText(text_of(*code));
  log(tr("Copied. The function wraps a model as this plan says."));
}

void MainWindow::copy_for(planner::Trainer wanted) {
  const planner::TrainerRelease trainer = wanted;
  const SnapshotPtr shown = state_.snapshot();
  if (!shown) return;
  simulator::Predictor predictor(*shown->model, shown->cluster);
  const auto said = planner::said_by(trainer, shown->report.plan, shown->report, predictor);
  if (!said) return state_.report_errors(said.error());
  QApplication::clipboard()->setText(
      text_of(render::to_text({trainer, *said, *shown->model, shown->cluster, kPlanOfWindow})));
  if (said->changes.empty()) return log(tr("Copied. It expresses this plan exactly."));
  log(tr("Copied the closest plan that %1 can express, which needs %2; this plan needs %3. Its first lines list the "
         "differences.")
          .arg(text_of(std::string(planner::name_of(trainer))), text_of(render::predicted_of(said->report)),
               text_of(render::predicted_of(shown->report))));
}

}  // namespace fsdp::gui
