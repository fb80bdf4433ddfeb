#include "gui/start_page.h"

#include <QComboBox>
#include <QCommandLinkButton>
#include <QFileInfo>
#include <QGridLayout>
#include <QHBoxLayout>
#include <QPushButton>
#include <QScrollArea>
#include <QVBoxLayout>

#include "core/model_library.h"

namespace fsdp::gui {

namespace {

using planner::Option;

Inputs on(const char* model, std::initializer_list<std::pair<Option, const char*>> options) {
  Inputs inputs;
  inputs.model = model;
  for (const auto& [option, text] : options) inputs.options[option] = {text};
  return inputs;
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
       on("qwen3_tts", {{Option::Gpus, "4"}, {Option::Memory, "16G"}})},
      {"Llama 3.1 8B on 8 H100", "Mixed precision, sequences of 8192",
       on("llama3_1_8b", {{Option::GpuName, "H100 SXM"},
                          {Option::Gpus, "8"},
                          {Option::Sequence, "8192"},
                          {Option::Precision, "mixed"}})},
      {"Llama 3.1 70B on 4 nodes of 8 H100", "Sharded over the network",
       on("llama3_1_70b", {{Option::GpuName, "H100 SXM"}, {Option::Gpus, "8"}, {Option::Nodes, "4"}})},
      {"Llama 3.1 8B on 2 GPUs of 24 GB", "Does not fit: see by how much, and what would help",
       on("llama3_1_8b", {{Option::Gpus, "2"}, {Option::Memory, "24G"}, {Option::Offload, "no"}})},
      {"Gemma 2 9B on 8 A100", "Sliding windows in every second layer",
       on("gemma2_9b", {{Option::GpuName, "A100 80GB SXM"}, {Option::Gpus, "8"}})},
      {"A small MLP on 4 GPUs", "Quick to read: few units, few lanes",
       on("mlp", {{Option::Gpus, "4"}, {Option::Memory, "16G"}})},
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
  auto* column = new QVBoxLayout(page);
  column->setContentsMargins(32, 24, 32, 24);
  column->setSpacing(10);
  auto* title = new QLabel(tr("fsdp-plan explorer"), page);
  QFont font = title->font();
  font.setPointSizeF(font.pointSizeF() * 2);
  font.setBold(true);
  title->setFont(font);
  column->addWidget(title);
  auto* what = new QLabel(tr("See what FSDP training of a model costs on your GPUs (memory, traffic, time), before "
                             "anything runs. Change anything, and see what it changes."),
                          page);
  what->setWordWrap(true);
  column->addWidget(what);
  errors_ = new QLabel(page);
  errors_->setObjectName("start_errors");
  errors_->setWordWrap(true);
  errors_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  errors_->setFrameShape(QFrame::StyledPanel);
  errors_->setMargin(8);
  errors_->hide();
  column->addWidget(errors_);
  column->addSpacing(8);
  column->addWidget(heading(tr("Start"), page));
  auto* start = new QHBoxLayout;
  auto* open = new QPushButton(tr("Open a model, plan or project …"), page);
  open->setObjectName("open_file");
  open->setToolTip(tr("Or drop a file on this window"));
  connect(open, &QPushButton::clicked, this, &StartPage::open_wanted);
  start->addWidget(open);
  auto* models = new QComboBox(page);
  models->setObjectName("shipped_models");
  models->setAccessibleName(tr("Shipped models"));
  models->addItem(tr("A shipped model …"));
  for (const std::string& name : model_names(library)) models->addItem(QString::fromStdString(name));
  connect(models, &QComboBox::activated, this, [this, models](int index) {
    if (index > 0) emit model_chosen(models->itemText(index));
  });
  start->addWidget(models);
  start->addStretch(1);
  column->addLayout(start);
  column->addSpacing(8);
  column->addWidget(heading(tr("Examples"), page));
  auto* grid = new QGridLayout;
  grid->setSpacing(8);
  int number = 0;
  for (const Example& example : examples()) {
    auto* button = new QCommandLinkButton(example.title, example.text, page);
    button->setObjectName("example_" + QString::number(number));
    button->setAccessibleName(example.title);
    connect(button, &QCommandLinkButton::clicked, this, [this, number] { emit example_chosen(number); });
    grid->addWidget(button, number / 2, number % 2);
    ++number;
  }
  column->addLayout(grid);
  recent_title_ = heading(tr("Recent"), page);
  column->addSpacing(8);
  column->addWidget(recent_title_);
  recent_ = new QListWidget(page);
  recent_->setObjectName("recent_files");
  recent_->setAccessibleName(tr("Recent files"));
  recent_->setMaximumHeight(140);
  connect(recent_, &QListWidget::itemActivated, this,
          [this](QListWidgetItem* item) { emit file_chosen(item->data(Qt::UserRole).toString()); });
  column->addWidget(recent_);
  column->addStretch(1);
  scroll->setWidget(page);
  outer->addWidget(scroll);
  show_recent({});
}

void StartPage::show_recent(const QStringList& files) {
  recent_->clear();
  for (const QString& path : files) {
    auto* item = new QListWidgetItem(QFileInfo(path).fileName() + "   " + QFileInfo(path).absolutePath(), recent_);
    item->setData(Qt::UserRole, path);
    item->setToolTip(path);
  }
  recent_->setVisible(!files.isEmpty());
  recent_title_->setVisible(!files.isEmpty());
}

void StartPage::show_errors(const QString& text) {
  errors_->setText(text);
  errors_->setVisible(!text.isEmpty());
}

}  // namespace fsdp::gui
