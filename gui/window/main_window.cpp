#include "gui/window/main_window.h"

#include <QApplication>
#include <QCloseEvent>
#include <QDockWidget>
#include <QEvent>
#include <QStatusBar>
#include <QTabBar>
#include <QVBoxLayout>
#include <algorithm>

namespace fsdp::gui {

namespace {

constexpr int kAutosaveMilliseconds = 2000;
constexpr int kMostMessages = 500;

/// "step-by-step": the title of a view as a word of the command line.
QString word_of(const QString& title) {
  return title.toLower().replace(' ', '-');
}

}  // namespace

MainWindow::MainWindow(const std::string& library, QWidget* parent)
    : QMainWindow(parent), platform_palette_(QApplication::palette()), state_(library), baselines_(library) {
  setObjectName("main_window");
  setAcceptDrops(true);
  setDockOptions(AllowNestedDocks | AllowTabbedDocks | AnimatedDocks | GroupedDragging);
  setTabPosition(Qt::AllDockWidgetAreas, QTabWidget::North);
  setCorner(Qt::BottomLeftCorner, Qt::LeftDockWidgetArea);
  titles_timer_.setSingleShot(true);
  connect(&titles_timer_, &QTimer::timeout, this, &MainWindow::show_dock_titles);
  build_center();
  build_docks();
  build_actions();
  resize(1360, 860);
  setMinimumSize(672, 460);
  arrange_docks();
  default_layout_ = saveState();
  layout_ = default_layout_;
  if (!settings_.geometry().isEmpty()) restoreGeometry(settings_.geometry());
  if (!settings_.layout().isEmpty() && restoreState(settings_.layout())) layout_ = saveState();
  has_own_sizes_ = settings_.has_own_sizes();
  for (const auto& [name, dock] : docks_) dock->hide();
  connect_state();
  connect_recordings();
  start_->set_machine(settings_.machine());
  set_theme(settings_.theme());
  show_snapshot();
  show_title();
}

MainWindow::~MainWindow() = default;

void MainWindow::build_center() {
  pages_ = new QStackedWidget(this);
  // Docks would else be drawn below a verdict that has more to say.
  pages_->setMinimumWidth(290);
  start_ = new StartPage(state_.library(), pages_);
  pages_->addWidget(start_);
  auto* work = new QWidget(pages_);
  auto* column = new QVBoxLayout(work);
  column->setContentsMargins(0, 0, 0, 0);
  column->setSpacing(0);
  verdict_ = new VerdictBar(state_, work);
  column->addWidget(verdict_);
  problem_ = new QLabel(work);
  problem_->setObjectName("problem");
  problem_->setWordWrap(true);
  problem_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  problem_->setContentsMargins(12, 6, 12, 6);
  problem_->setAutoFillBackground(true);
  problem_->hide();
  column->addWidget(problem_);
  charts_ = new QSplitter(Qt::Vertical, work);
  charts_->setObjectName("charts");
  charts_->setChildrenCollapsible(false);
  build_charts();
  column->addWidget(charts_, 1);
  pages_->addWidget(work);
  recording_ = new RecordingView(pages_);
  pages_->addWidget(recording_);
  setCentralWidget(pages_);
}

QDockWidget* MainWindow::add_dock(const QString& name, const QString& title, QWidget* content,
                                  Qt::DockWidgetArea area) {
  auto* dock = new QDockWidget(title, this);
  // Docks give way to the charts in a low window; their contents scroll.
  if (area == Qt::BottomDockWidgetArea) content->setMinimumSize(200, 92);
  dock->setObjectName("dock_" + name);
  dock->setWidget(content);
  addDockWidget(area, dock);
  docks_[name] = dock;
  for (const auto changed : {&QDockWidget::topLevelChanged, &QDockWidget::visibilityChanged}) {
    connect(dock, changed, &titles_timer_, qOverload<>(&QTimer::start));
  }
  connect(dock, &QDockWidget::dockLocationChanged, &titles_timer_, qOverload<>(&QTimer::start));
  return dock;
}

// A dock among tabs has its title on its tab, which can also be dragged.
void MainWindow::show_dock_titles() {
  // Tabs that do not fit are scrolled to: "P…" is no readable title.
  for (QTabBar* tabs : findChildren<QTabBar*>(QString(), Qt::FindDirectChildrenOnly)) {
    tabs->setElideMode(Qt::ElideNone);
    tabs->setUsesScrollButtons(true);
  }
  for (const auto& [name, dock] : docks_) {
    const bool has_tab = !dock->isFloating() && !tabifiedDockWidgets(dock).isEmpty();
    QWidget* empty = dock->titleBarWidget();
    if (has_tab == (empty != nullptr)) continue;
    dock->setTitleBarWidget(has_tab ? new QWidget(dock) : nullptr);
    if (empty != nullptr) empty->deleteLater();
  }
}

void MainWindow::build_docks() {
  controls_ = new ControlPanel(state_, this);
  modules_ = new ModuleTree(state_, this);
  runs_ = new RunPanel(state_, this);
  messages_ = new QListWidget(this);
  messages_->setObjectName("messages");
  messages_->setAccessibleName(tr("Messages"));
  messages_->setWordWrap(true);
  add_dock("controls", tr("Controls"), controls_, Qt::LeftDockWidgetArea);
  add_dock("modules", tr("Modules"), modules_, Qt::LeftDockWidgetArea);
  add_dock("pareto", tr("Plans"), pareto_, Qt::BottomDockWidgetArea);
  add_dock("peak", tr("Peak"), peak_, Qt::BottomDockWidgetArea);
  add_dock("differences", tr("Differences"), comparison_, Qt::BottomDockWidgetArea);
  add_dock("teaching", tr("Step by step"), teaching_, Qt::BottomDockWidgetArea);
  add_dock("tables", tr("Tables"), tables_, Qt::BottomDockWidgetArea);
  add_dock("runs", tr("Runs"), runs_, Qt::BottomDockWidgetArea);
  answer_ = new AnswerPanel(this);
  add_dock("messages", tr("Messages"), messages_, Qt::BottomDockWidgetArea);
  add_dock("answer", tr("In words"), answer_, Qt::BottomDockWidgetArea);
  connect(docks_.at("answer"), &QDockWidget::visibilityChanged, answer_, [this](bool is_in_sight) {
    if (is_in_sight) answer_->write();
  });
  connect(docks_.at("tables"), &QDockWidget::visibilityChanged, tables_, &TablePanel::set_in_sight);
  peak_->set_in_sight(false);
  connect(docks_.at("peak"), &QDockWidget::visibilityChanged, peak_, &PeakPanel::set_in_sight);
}

void MainWindow::arrange_docks() {
  tabifyDockWidget(docks_.at("controls"), docks_.at("modules"));
  QDockWidget* before = docks_.at("pareto");
  for (const char* name : {"peak", "differences", "teaching", "tables", "runs", "messages", "answer"}) {
    tabifyDockWidget(before, docks_.at(name));
    before = docks_.at(name);
  }
  docks_.at("controls")->raise();
  docks_.at("pareto")->raise();
  fit_docks();
  show_dock_titles();
}

QSize MainWindow::dock_sizes() const {
  const auto shown = [&](const char* first, Qt::DockWidgetArea area) {
    for (const auto& [name, dock] : docks_) {
      const bool is_there = !dock->isFloating() && dockWidgetArea(dock) == area;
      if (is_there && !dock->visibleRegion().isEmpty()) return dock;
    }
    return docks_.at(first);
  };
  return {shown("controls", Qt::LeftDockWidgetArea)->width(), shown("pareto", Qt::BottomDockWidgetArea)->height()};
}

QSize MainWindow::wanted_dock_sizes() const {
  // A third of a large screen; in a small window the charts come first.
  constexpr int kLeastViews = 124;
  constexpr int kLeastControls = 361;
  constexpr int kMostControls = 440;
  int views = std::max(kLeastViews, height() * 27 / 100);
  if (!docks_.at("teaching")->visibleRegion().isEmpty()) views = std::max(views, lesson_height());
  return {std::clamp(width() * 32 / 100, kLeastControls, kMostControls), views};
}

// A few rows of units are not enough to read.
int MainWindow::lesson_height() const {
  return height() > 660 ? 330 : std::min(230, height() * 40 / 100);
}

void MainWindow::fit_docks() {
  const QSize wanted = wanted_dock_sizes();
  resizeDocks({docks_.at("controls")}, {wanted.width()}, Qt::Horizontal);
  resizeDocks({docks_.at("pareto")}, {wanted.height()}, Qt::Vertical);
}

void MainWindow::resizeEvent(QResizeEvent* event) {
  QMainWindow::resizeEvent(event);
  // Qt gives all new room to the charts, and does not resize the docks.
  if (is_working_ && !has_own_sizes_) fit_docks();
}

bool MainWindow::event(QEvent* event) {
  if (event->type() == QEvent::MouseButtonPress) pressed_sizes_ = dock_sizes();
  const bool is_taken = QMainWindow::event(event);
  // The edges of docks belong to this window; a press elsewhere goes to its own widget.
  if (event->type() == QEvent::MouseButtonRelease && pressed_sizes_.isValid() && dock_sizes() != pressed_sizes_) {
    has_own_sizes_ = true;
  }
  return is_taken;
}

void MainWindow::connect_state() {
  connect(&state_, &AppState::snapshot_changed, this, &MainWindow::show_snapshot);
  connect(&state_, &AppState::errors_changed, this, &MainWindow::show_errors);
  connect(&state_, &AppState::inputs_changed, this, [this] {
    show_waiting();
    show_title();
    show_pages();
    keep_for_recovery();
  });
  connect(start_, &StartPage::example_chosen, this, &MainWindow::open_example);
  connect(start_, &StartPage::model_chosen, this, &MainWindow::open_model);
  connect(start_, &StartPage::file_chosen, this, [this](const QString& path) { open_file(path); });
  connect(start_, &StartPage::open_wanted, this, &MainWindow::ask_for_file);
  connect(verdict_, &VerdictBar::assumptions_wanted, this, [this] {
    show_view("answer");
    answer_->show_entry("assume");
  });
  connect(runs_, &RunPanel::traced, this,
          [this](const QString& path, const OverlayPtr& run) { overlays_.load(path, run); });
  connect(runs_, &RunPanel::shown_wanted, this, [this] { show_view("runs"); });
  autosave_timer_.setSingleShot(true);
  autosave_timer_.setInterval(kAutosaveMilliseconds);
  connect(&autosave_timer_, &QTimer::timeout, this, &MainWindow::autosave);
}

void MainWindow::show_pages() {
  const bool is_working = state_.has_model() && !shows_recording_;
  pages_->setCurrentIndex(shows_recording_ ? 2 : is_working ? 1 : 0);
  // An invisible page needs no room.
  for (int i = 0; i < pages_->count(); ++i) {
    const auto policy = i == pages_->currentIndex() ? QSizePolicy::Preferred : QSizePolicy::Ignored;
    pages_->widget(i)->setSizePolicy(policy, policy);
  }
  if (is_working != is_working_) {
    is_working_ = is_working;
    // The start page and a recording stand alone; the arrangement of the docks returns with the first model.
    if (is_working) {
      restoreState(layout_);
      if (!has_own_sizes_) fit_docks();
    } else {
      layout_ = saveState();
      for (const auto& [name, dock] : docks_) dock->hide();
    }
  }
  if (!is_working) show_recent();
}

void MainWindow::show_snapshot() {
  show_pages();
  for (const char* name : {"copy_command", "save_plan", "pin", "rehearse", "execute"}) {
    actions_.at(name)->setEnabled(state_.snapshot() != nullptr);
  }
  show_charts();
  const SnapshotPtr shown = state_.snapshot();
  answer_->set_snapshot(shown);
  if (!shown || shown->stage != Stage::Explained) return;
  for (const std::string& note : shown->notes) log(text_of(note));
  remember_machine();
}

void MainWindow::show_errors() {
  const Errors& errors = state_.errors();
  show_waiting();
  QStringList lines;
  for (Error error : errors) {
    // The window has fields, not options.
    if (const QString field = controls_->label_of(error.where); !field.isEmpty()) error.where = field.toStdString();
    lines << text_of(to_string(error));
  }
  problem_->setText(lines.join('\n'));
  problem_->setVisible(!errors.empty());
  // The messages stand above the charts; the status bar would only repeat them in one line.
  for (const QString& line : lines) messages_->addItem(line);
  trim_messages();
  statusBar()->clearMessage();
}

void MainWindow::log(const QString& text) {
  messages_->addItem(text);
  trim_messages();
  statusBar()->showMessage(text, 8000);
}

void MainWindow::trim_messages() {
  while (messages_->count() > kMostMessages) delete messages_->takeItem(0);
  messages_->scrollToBottom();
}

void MainWindow::set_theme(ThemeChoice choice) {
  theme_choice_ = choice;
  apply_theme();
}

void MainWindow::apply_theme() {
  theme_ = theme_of(theme_choice_, platform_palette_);
  QApplication::setPalette(palette_of(theme_));
  QPalette problem = palette_of(theme_);
  problem.setColor(QPalette::Window, problem_ground(problem));
  problem_->setPalette(problem);
  verdict_->set_theme(theme_);
  modules_->set_theme(theme_);
  recording_->set_theme(theme_);
  theme_charts();
}

void MainWindow::changeEvent(QEvent* event) {
  QMainWindow::changeEvent(event);
  if (event->type() == QEvent::ThemeChange && theme_choice_ == ThemeChoice::System) apply_theme();
}

QStringList MainWindow::views() const {
  QStringList names;
  for (const auto& [name, dock] : docks_) names << word_of(dock->windowTitle());
  return names;
}

bool MainWindow::show_view(const QString& name) {
  const auto found = std::find_if(docks_.begin(), docks_.end(), [&](const auto& each) {
    return each.first == name || word_of(each.second->windowTitle()) == word_of(name);
  });
  if (found == docks_.end()) return false;
  const auto& [own_name, dock] = *found;
  dock->show();
  dock->raise();
  if (own_name == "teaching" && dock->height() < lesson_height()) {
    resizeDocks({dock}, {lesson_height()}, Qt::Vertical);
  }
  return true;
}

void MainWindow::closeEvent(QCloseEvent* event) {
  if (!may_discard()) {
    event->ignore();
    return;
  }
  runs_->stop();
  settings_.save_window(saveGeometry(), is_working_ ? saveState() : layout_, has_own_sizes_);
  recovery_.drop();
  QMainWindow::closeEvent(event);
}

}  // namespace fsdp::gui
