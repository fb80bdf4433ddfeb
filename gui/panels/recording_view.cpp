#include "gui/panels/recording_view.h"

#include <QCompleter>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QSplitter>
#include <QVBoxLayout>
#include <QtConcurrentRun>
#include <utility>

#include "gui/charts/plot_paint.h"
#include "gui/charts/table_twin.h"
#include "gui/theme/figure_text.h"
#include "text/python_text.h"

namespace fsdp::gui {

namespace {

/// The remaining sites become one row.
constexpr std::size_t kMostSites = 400;

QString lines_of(const text::Entry& entry) {
  QStringList lines;
  for (const std::string& line : entry.lines) lines << text_of(line);
  return text_of(entry.label) + ": " + lines.join(QStringLiteral("; "));
}

QTreeWidgetItem* row_of(Bytes bytes, std::int64_t count, const QString& what) {
  auto* row = new QTreeWidgetItem({text_of(bytes), QString::number(count), what});
  row->setData(0, TableTwin::kExact, static_cast<qlonglong>(bytes.count()));
  for (const int column : {0, 1}) row->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
  return row;
}

}  // namespace

RecordingView::RecordingView(QWidget* parent)
    : QWidget(parent),
      heading_(new QLabel(this)),
      where_(new QLabel(this)),
      chart_(new RecordedChart(this)),
      sites_(new QTreeWidget(this)),
      bars_(new CostDelegate(0, this)) {
  setObjectName("recording_view");
  QFont strong = font();
  strong.setBold(true);
  heading_->setFont(strong);
  heading_->setWordWrap(true);
  heading_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  auto* back = new QPushButton(tr("Back"), this);
  back->setObjectName("close_recording");
  back->setToolTip(tr("Back to the plan, or to the start page"));
  connect(back, &QPushButton::clicked, this, &RecordingView::closed);
  auto* top = new QHBoxLayout;
  top->addWidget(heading_, 1);
  top->addWidget(back, 0, Qt::AlignTop);
  where_->setWordWrap(true);
  sites_->setObjectName("recorded_sites");
  sites_->setAccessibleName(tr("Lines of Python that hold memory at this moment"));
  sites_->setHeaderLabels({tr("bytes"), tr("blocks"), tr("asked for by")});
  sites_->setUniformRowHeights(true);
  sites_->setAlternatingRowColors(true);
  sites_->setItemDelegate(bars_);
  connect(chart_, &RecordedChart::moment_chosen, this, &RecordingView::show_moment);
  auto* lower = new QWidget(this);
  auto* below = new QHBoxLayout(lower);
  below->setContentsMargins(0, 0, 0, 0);
  auto* left = new QVBoxLayout;
  left->addWidget(where_);
  left->addWidget(sites_, 1);
  auto* right = new QVBoxLayout;
  build_replay(*right);
  below->addLayout(left, 3);
  below->addLayout(right, 2);
  auto* parts = new QSplitter(Qt::Vertical, this);
  parts->addWidget(chart_);
  parts->addWidget(lower);
  parts->setChildrenCollapsible(false);
  auto* column = new QVBoxLayout(this);
  column->addLayout(top);
  column->addWidget(parts, 1);
  connect(&watcher_, &QFutureWatcher<Loaded>::finished, this, &RecordingView::take);
}

RecordingView::~RecordingView() {
  watcher_.waitForFinished();
}

void RecordingView::build_replay(QVBoxLayout& column) {
  auto* title = new QLabel(tr("Replay with other allocator settings (PYTORCH_ALLOC_CONF)"), this);
  title->setWordWrap(true);
  settings_ = new QComboBox(this);
  settings_->setObjectName("replay_settings");
  settings_->setAccessibleName(tr("Allocator settings"));
  settings_->setToolTip(tr("As PYTORCH_ALLOC_CONF has them; empty: the defaults"));
  settings_->setEditable(true);
  settings_->setInsertPolicy(QComboBox::NoInsert);
  settings_->setCompleter(nullptr);
  settings_->addItems({"expandable_segments:True", "max_split_size_mb:128", "garbage_collection_threshold:0.8",
                       "roundup_power2_divisions:4"});
  device_ = new QLineEdit(this);
  device_->setObjectName("replay_memory");
  device_->setAccessibleName(tr("GPU memory"));
  device_->setToolTip(tr("Memory of the GPU, such as 24GiB; empty: as recorded"));
  device_->setPlaceholderText(tr("as recorded"));
  device_->setMaximumWidth(130);
  auto* start = new QPushButton(tr("Replay"), this);
  start->setObjectName("replay");
  start->setToolTip(tr("The memory that the allocator would have reserved (fsdp-plan replay)"));
  connect(start, &QPushButton::clicked, this, &RecordingView::replay);
  connect(settings_->lineEdit(), &QLineEdit::returnPressed, this, &RecordingView::replay);
  connect(device_, &QLineEdit::returnPressed, this, &RecordingView::replay);
  auto* row = new QHBoxLayout;
  row->addWidget(settings_, 1);
  row->addWidget(device_);
  row->addWidget(start);
  verdict_ = new QLabel(this);
  verdict_->setObjectName("replay_verdict");
  verdict_->setWordWrap(true);
  verdict_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  peaks_ = new QTableWidget(this);
  peaks_->setObjectName("replay_peaks");
  peaks_->setAccessibleName(tr("Peaks as recorded and replayed"));
  peaks_->setEditTriggers(QAbstractItemView::NoEditTriggers);
  peaks_->horizontalHeader()->setSectionResizeMode(QHeaderView::Stretch);
  column.addWidget(title);
  column.addLayout(row);
  column.addWidget(verdict_);
  column.addWidget(peaks_, 1);
}

void RecordingView::open(const QString& path) {
  // One at a time: a second file waits for the first, whose answer is dropped.
  if (is_busy_) watcher_.waitForFinished();
  is_busy_ = true;
  path_ = path;
  memory_.reset();
  heading_->setText(tr("Reading %1 …").arg(path));
  sites_->clear();
  chart_->show_memory(nullptr);
  watcher_.setFuture(QtConcurrent::run([path = path.toStdString()]() -> Loaded {
    return std::make_shared<const Result<RecordedMemory>>(read_recorded_memory(path, {}, {}));
  }));
}

void RecordingView::take() {
  is_busy_ = false;
  const Loaded loaded = watcher_.result();
  if (!*loaded) {
    emit failed(loaded->error());
    return;
  }
  memory_ = std::shared_ptr<const RecordedMemory>(loaded, &**loaded);
  show_memory();
  emit opened();
}

void RecordingView::show_memory() {
  const render::ReplayAnswer answer{.recording = memory_->recording,
                                    .as_was = memory_->as_was,
                                    .recorded = memory_->recorded,
                                    .request = std::nullopt,
                                    .replayed = std::nullopt,
                                    .knows_device = memory_->recording.knows_device};
  QStringList lines = {text_of(memory_->name), lines_of(render::replay_verdict(answer))};
  for (const std::string& note : memory_->recording.notes) lines << text_of(note);
  heading_->setText(lines.join('\n'));
  chart_->show_memory(memory_);
  verdict_->clear();
  show_answer(memory_->recorded, nullptr);
  show_moment(memory_->peak);
}

void RecordingView::show_moment(std::size_t step) {
  if (!memory_) return;
  const std::vector<RecordedSite> sites = step == memory_->peak ? memory_->at_peak : sites_at(*memory_, step);
  where_->setText((step == memory_->peak ? tr("Alive at the peak: %1, by the line of Python that asked")
                                         : tr("Alive at the chosen moment: %1, by the line of Python that asked"))
                      .arg(text_of(Bytes(memory_->live[step]))));
  sites_->clear();
  Bytes rest;
  std::int64_t num_rest = 0;
  QList<QTreeWidgetItem*> rows;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (i >= kMostSites) {
      rest += sites[i].bytes;
      num_rest += sites[i].count;
      continue;
    }
    QTreeWidgetItem* row = row_of(sites[i].bytes, sites[i].count, text_of(line_of(sites[i])));
    for (const PythonFrame& frame : sites[i].stack) {
      auto* child = new QTreeWidgetItem(row, {QString(), QString(), text_of(text::frame_text(frame, ""))});
      child->setToolTip(2, text_of(frame.file));
    }
    rows << row;
  }
  if (num_rest > 0) rows << row_of(rest, num_rest, tr("all smaller ones"));
  sites_->addTopLevelItems(rows);
  bars_->set_largest(sites.empty() ? 0 : static_cast<double>(sites.front().bytes.count()));
  sites_->setColumnWidth(0, 150);
  sites_->resizeColumnToContents(1);
}

void RecordingView::replay() {
  if (!memory_) return;
  const auto answer =
      replay_with(*memory_, settings_->currentText().trimmed().toStdString(), device_->text().trimmed().toStdString());
  if (!answer) {
    QStringList lines;
    for (const Error& error : answer.error()) lines << text_of(to_string(error));
    verdict_->setText(lines.join('\n'));
    chart_->show_replayed({});
    show_answer(memory_->recorded, nullptr);
    return;
  }
  verdict_->setText(lines_of(render::replay_verdict(*answer)));
  chart_->show_replayed(answer->replayed->reserved);
  show_answer(memory_->recorded, &*answer->replayed);
}

void RecordingView::show_answer(const replay::ReplayResult& recorded, const replay::ReplayResult* replayed) {
  using replay::ReplayResult;
  struct Row {
    QString title;
    Bytes ReplayResult::*bytes;
  };
  const Row rows[] = {{tr("requested"), &ReplayResult::requested_peak},
                      {tr("allocated"), &ReplayResult::allocated_peak},
                      {tr("reserved"), &ReplayResult::reserved_peak},
                      {tr("reserved, not in use"), &ReplayResult::unused_at_peak}};
  const int count = static_cast<int>(std::size(rows)) + 1;
  peaks_->clear();
  peaks_->setRowCount(count);
  peaks_->setColumnCount(replayed != nullptr ? 3 : 1);
  peaks_->setHorizontalHeaderLabels({tr("recorded"), tr("replayed"), tr("difference")});
  QStringList titles;
  const auto put = [&](int row, int column, const QString& text) {
    auto* item = new QTableWidgetItem(text);
    item->setTextAlignment(Qt::AlignRight | Qt::AlignVCenter);
    peaks_->setItem(row, column, item);
  };
  for (int i = 0; i + 1 < count; ++i) {
    const Row& row = rows[i];
    titles << row.title;
    put(i, 0, text_of(recorded.*row.bytes));
    if (replayed == nullptr) continue;
    put(i, 1, text_of(replayed->*row.bytes));
    put(i, 2, signed_text_of(replayed->*row.bytes - recorded.*row.bytes));
  }
  titles << tr("requests refused");
  put(count - 1, 0, QString::number(recorded.num_refused));
  if (replayed != nullptr) {
    put(count - 1, 1, QString::number(replayed->num_refused));
    put(count - 1, 2, QString::number(replayed->num_refused - recorded.num_refused));
  }
  peaks_->setVerticalHeaderLabels(titles);
}

void RecordingView::set_theme(const Theme& theme) {
  chart_->set_theme(theme);
  bars_->set_theme(theme);
  sites_->viewport()->update();
}

}  // namespace fsdp::gui
