#include "gui/panels/start_page.h"

#include <QComboBox>
#include <QFileInfo>
#include <QGridLayout>
#include <QHBoxLayout>
#include <QIcon>
#include <QKeyEvent>
#include <QLineEdit>
#include <QPushButton>
#include <QScrollArea>
#include <algorithm>
#include <utility>

#include "core/base/parse_units.h"
#include "core/cluster/cluster_library.h"
#include "core/library/model_library.h"
#include "gui/panels/example_card.h"
#include "gui/state/machine.h"
#include "gui/theme/theme.h"

namespace fsdp::gui {

namespace {

constexpr int kWidest = 960;  // Wider lines are hard to read.

constexpr Bytes gib(std::int64_t count) {
  return Bytes(count << 30);
}

Inputs on(const char* model, planner::PlanChoices choices) {
  Inputs inputs;
  inputs.model = model;
  inputs.choices = std::move(choices);
  return inputs;
}

/// The text of the GPU's field: its name, its memory if any GPU will do, or the cluster.
QString shown_gpu(const Inputs& machine) {
  const planner::PlanChoices& choices = machine.choices;
  if (choices.cluster_file) return QString::fromStdString(*choices.cluster_file);
  const QString memory = choices.memory ? QString::fromStdString(format_bytes(*choices.memory)) : QString();
  if (!choices.gpu_name) return memory;
  const QString name = QString::fromStdString(*choices.gpu_name);
  return memory.isEmpty() ? name : StartPage::tr("%1 with %2").arg(name, memory);
}

QLabel* heading(const QString& text, QWidget* parent) {
  auto* label = new QLabel(text, parent);
  QFont font = label->font();
  font.setBold(true);
  font.setPointSizeF(font.pointSizeF() * 1.15);
  label->setFont(font);
  return label;
}

}  // namespace

std::vector<Example> examples() {
  return {
      {"Qwen3-TTS 1.7B on 4 GPUs of 16 GB", "Fine-tuning a text-to-speech model; tight, and it just fits",
       on("qwen3_tts", {.gpus = 4, .memory = gib(16)})},
      {"Llama 3.1 8B on 8 H100", "Mixed precision, sequences of 8192",
       on("llama3_1_8b",
          {.gpus = 8, .gpu_name = "H100 SXM", .sequence = 8192, .precision = planner::Precision::Mixed})},
      {"Llama 3.1 70B on 4 nodes of 8 H100", "Sharded over the network",
       on("llama3_1_70b", {.gpus = 8, .nodes = 4, .gpu_name = "H100 SXM"})},
      {"Llama 3.1 8B on 2 GPUs of 24 GB", "Does not fit: see by how much, and what would help",
       on("llama3_1_8b", {.gpus = 2, .memory = gib(24), .cpu_offload = false})},
      {"Gemma 2 9B on 8 A100", "Sliding windows in every second layer",
       on("gemma2_9b", {.gpus = 8, .gpu_name = "A100 80GB SXM"})},
      {"A small MLP on 4 GPUs", "Quick to read: few units, few lanes", on("mlp", {.gpus = 4, .memory = gib(16)})},
  };
}

StartPage::StartPage(const std::string& library, QWidget* parent) : QWidget(parent) {
  setObjectName("start_page");
  auto* outer = new QVBoxLayout(this);
  outer->setContentsMargins(0, 0, 0, 0);
  auto* scroll = new QScrollArea(this);
  scroll->setWidgetResizable(true);
  scroll->setFrameShape(QFrame::NoFrame);
  auto* page = new QWidget(scroll);
  auto* middle = new QHBoxLayout(page);
  middle->setContentsMargins(24, 0, 24, 0);
  auto* body = new QWidget(page);
  body->setMaximumWidth(kWidest);
  middle->addStretch(1);
  middle->addWidget(body, 100);
  middle->addStretch(1);
  auto* column = new QVBoxLayout(body);
  column->setContentsMargins(0, 28, 0, 20);
  column->setSpacing(10);
  add_title(*column);
  errors_ = new QLabel(body);
  errors_->setObjectName("start_errors");
  errors_->setWordWrap(true);
  errors_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  errors_->setAutoFillBackground(true);
  errors_->setMargin(10);
  errors_->hide();
  column->addWidget(errors_);
  column->addSpacing(14);
  add_machine(*column, library);
  column->addSpacing(14);
  add_start(*column, library);
  column->addSpacing(14);
  add_examples(*column);
  recent_title_ = heading(tr("Recent"), body);
  column->addSpacing(14);
  column->addWidget(recent_title_);
  recent_ = new QListWidget(body);
  recent_->setObjectName("recent_files");
  recent_->setAccessibleName(tr("Recent files"));
  recent_->setTextElideMode(Qt::ElideMiddle);
  recent_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  connect(recent_, &QListWidget::itemActivated, this,
          [this](QListWidgetItem* item) { emit file_chosen(item->data(Qt::UserRole).toString()); });
  column->addWidget(recent_);
  column->addStretch(1);
  auto* hint = new QLabel(tr("The same on the command line:  fsdp-plan qwen3_tts --gpus 4 --mem 16G        "
                             "All shortcuts:  ?"),
                          body);
  hint->setForegroundRole(QPalette::PlaceholderText);
  hint->setWordWrap(true);
  column->addWidget(hint);
  scroll->setWidget(page);
  outer->addWidget(scroll);
  // The scroll area scrolls to the focused widget by itself.
  scroll->setFocusPolicy(Qt::NoFocus);
  show_recent({});
  QStringList first;
  for (const char* option : kFirstMachine) first << option;
  set_machine(first);
}

void StartPage::add_title(QVBoxLayout& column) {
  auto* row = new QHBoxLayout;
  row->setSpacing(16);
  auto* icon = new QLabel(this);
  icon->setPixmap(QIcon(":/icons/fsdp-plan-gui.svg").pixmap(QSize(60, 60), devicePixelRatioF()));
  row->addWidget(icon, 0, Qt::AlignTop);
  auto* words = new QVBoxLayout;
  words->setSpacing(4);
  auto* title = new QLabel(tr("fsdp-plan explorer"), this);
  QFont font = title->font();
  font.setPointSizeF(font.pointSizeF() * 2);
  font.setBold(true);
  title->setFont(font);
  words->addWidget(title);
  auto* what = new QLabel(tr("See what FSDP training of a model costs on your GPUs (memory, traffic, time), before "
                             "anything runs. Change anything, and see what it changes."),
                          this);
  what->setWordWrap(true);
  words->addWidget(what);
  row->addLayout(words, 1);
  column.addLayout(row);
}

void StartPage::add_start(QVBoxLayout& column, const std::string& library) {
  column.addWidget(heading(tr("Start"), this));
  auto* row = new QHBoxLayout;
  row->setSpacing(10);
  auto* open = new QPushButton(tr("  Open a model, plan or project …  "), this);
  open->setObjectName("open_file");
  open->setToolTip(tr("Or drop a file on this window"));
  open->setMinimumHeight(30);
  connect(open, &QPushButton::clicked, this, &StartPage::open_wanted);
  row->addWidget(open);
  auto* models = new QComboBox(this);
  models->setObjectName("shipped_models");
  models->setAccessibleName(tr("Shipped models"));
  models->addItem(tr("A shipped model …"));
  models->setMinimumHeight(30);
  for (const std::string& name : model_names(library)) models->addItem(QString::fromStdString(name));
  connect(models, &QComboBox::activated, this, [this, models](int index) {
    if (index > 0) emit model_chosen(models->itemText(index));
  });
  row->addWidget(models);
  auto* hint = new QLabel(tr("or drop a file on this window"), this);
  hint->setForegroundRole(QPalette::PlaceholderText);
  row->addWidget(hint, 1);
  column.addLayout(row);
}

void StartPage::add_machine(QVBoxLayout& column, const std::string& library) {
  column.addWidget(heading(tr("Your GPUs"), this));
  auto* row = new QHBoxLayout;
  row->setSpacing(10);
  const auto number = [&](const char* name, const QString& label) {
    auto* box = new QSpinBox(this);
    box->setObjectName(name);
    box->setAccessibleName(label);
    box->setToolTip(label);
    box->setRange(1, 4096);
    box->setMinimumHeight(30);
    return box;
  };
  gpus_ = number("start_gpus", tr("GPUs of a node"));
  nodes_ = number("start_nodes", tr("Nodes"));
  gpu_ = new QComboBox(this);
  gpu_->setObjectName("start_gpu");
  gpu_->setAccessibleName(tr("GPU"));
  gpu_->setToolTip(tr("A GPU by its name, or how much memory one has, such as 24G"));
  gpu_->setEditable(true);
  gpu_->setInsertPolicy(QComboBox::NoInsert);
  gpu_->setMinimumHeight(30);
  gpu_->setMinimumContentsLength(24);
  if (const auto machines = read_cluster_library(library + "/clusters")) {
    for (const Gpu& gpu : machines->gpus) gpu_->addItem(QString::fromStdString(gpu.name));
  }
  connect(gpu_->lineEdit(), &QLineEdit::editingFinished, this, [this] { take_gpu(gpu_->currentText().trimmed()); });
  connect(gpu_, &QComboBox::activated, this, [this](int index) { take_gpu(gpu_->itemText(index)); });
  connect(gpus_, &QSpinBox::valueChanged, this,
          [this](int count) { machine_ = with_choices(std::move(machine_), {.gpus = count}); });
  connect(nodes_, &QSpinBox::valueChanged, this,
          [this](int count) { machine_ = with_choices(std::move(machine_), {.nodes = count}); });
  row->addWidget(gpus_);
  row->addWidget(new QLabel(QStringLiteral("×"), this));
  row->addWidget(gpu_);
  row->addWidget(new QLabel(tr("in each of"), this));
  row->addWidget(nodes_);
  row->addWidget(new QLabel(tr("nodes"), this));
  auto* hint = new QLabel(tr("for every model that is opened below"), this);
  hint->setForegroundRole(QPalette::PlaceholderText);
  row->addWidget(hint, 1);
  column.addLayout(row);
}

void StartPage::take_gpu(const QString& text) {
  const bool is_shown = text.isEmpty() || text == shown_gpu(machine_);
  if (!is_shown) {
    const bool is_size = parse_size(text.toStdString(), "").has_value();
    const planner::PlanChoice choice = is_size ? planner::PlanChoice::Memory : planner::PlanChoice::GpuName;
    // Links and similar choices belonged to another machine.
    Inputs next;
    next.choices = {.gpus = gpus_->value(), .nodes = nodes_->value()};
    machine_ = with_typed(std::move(next), choice, text.toStdString());
  }
  show_machine();
}

QStringList StartPage::machine() const {
  return machine_of(machine_);
}

void StartPage::set_machine(const QStringList& options) {
  const Inputs read = on_machine({}, options);
  if (names_machines(read)) machine_ = read;
  show_machine();
}

void StartPage::show_machine() {
  const Inputs shown = machine_;
  gpu_->setEditText(shown_gpu(shown));
  gpus_->setValue(shown.choices.gpus.value_or(1));
  nodes_->setValue(shown.choices.nodes.value_or(1));
  machine_ = shown;  // A box that shows a number has not decided it.
}

void StartPage::keyPressEvent(QKeyEvent* event) {
  auto* button = qobject_cast<QAbstractButton*>(focusWidget());
  const bool is_return = event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter;
  if (!is_return || button == nullptr) return QWidget::keyPressEvent(event);
  button->click();
}

void StartPage::add_examples(QVBoxLayout& column) {
  column.addWidget(heading(tr("Examples"), this));
  auto* grid = new QGridLayout;
  grid->setSpacing(10);
  int number = 0;
  for (const Example& example : examples()) {
    auto* card = new ExampleCard(example.title, example.text, this);
    card->setObjectName("example_" + QString::number(number));
    connect(card, &ExampleCard::clicked, this, [this, number] { emit example_chosen(number); });
    grid->addWidget(card, number / 2, number % 2);
    ++number;
  }
  column.addLayout(grid);
}

void StartPage::show_recent(const QStringList& files) {
  recent_->clear();
  for (const QString& path : files) {
    auto* item = new QListWidgetItem(QFileInfo(path).fileName() + "   " + QFileInfo(path).absolutePath(), recent_);
    item->setData(Qt::UserRole, path);
    item->setToolTip(path);
  }
  // As high as its rows: one file needs no empty box.
  const int row = recent_->sizeHintForRow(0);
  recent_->setFixedHeight(std::clamp<int>(static_cast<int>(files.size()), 1, 6) * std::max(row, 18) + 6);
  recent_->setVisible(!files.isEmpty());
  recent_title_->setVisible(!files.isEmpty());
}

void StartPage::show_errors(const QString& text) {
  QPalette colors = palette();
  colors.setColor(QPalette::Window, problem_ground(colors));
  errors_->setPalette(colors);
  errors_->setText(text);
  errors_->setVisible(!text.isEmpty());
}

}  // namespace fsdp::gui
