#pragma once

// A memory snapshot by itself: its curve, the lines of Python that allocated the memory live at a moment, and a replay
// under other settings of the allocator.

#include <QComboBox>
#include <QFutureWatcher>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QTableWidget>
#include <QTreeWidget>
#include <QVBoxLayout>
#include <QWidget>
#include <memory>

#include "gui/charts/recorded_chart.h"
#include "gui/panels/cost_delegate.h"

namespace fsdp::gui {

class RecordingView : public QWidget {
  Q_OBJECT

 public:
  explicit RecordingView(QWidget* parent = nullptr);
  ~RecordingView() override;

  /// Starts to read a snapshot; `opened` or `failed` follows.
  void open(const QString& path);
  bool is_busy() const { return is_busy_; }
  std::shared_ptr<const RecordedMemory> memory() const { return memory_; }
  QString path() const { return path_; }
  void set_theme(const Theme& theme);
  /// Replays at once under the settings in the fields.
  void replay();

 signals:
  void opened();
  void failed(Errors errors);
  /// The user wants to go back to the previous view.
  void closed();

 private:
  using Loaded = std::shared_ptr<const Result<RecordedMemory>>;

  void build_replay(QVBoxLayout& column);
  void take();
  void show_memory();
  void show_moment(std::size_t step);
  void show_answer(const replay::ReplayResult& recorded, const replay::ReplayResult* replayed);

  QFutureWatcher<Loaded> watcher_;
  bool is_busy_ = false;
  QString path_;
  std::shared_ptr<const RecordedMemory> memory_;
  QLabel* heading_;
  QLabel* where_;
  RecordedChart* chart_;
  QTreeWidget* sites_;
  CostDelegate* bars_;
  QComboBox* settings_ = nullptr;
  QLineEdit* device_ = nullptr;
  QLabel* verdict_ = nullptr;
  QTableWidget* peaks_ = nullptr;
};

}  // namespace fsdp::gui
