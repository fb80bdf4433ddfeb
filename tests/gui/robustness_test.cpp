// What goes wrong around the window: it ended without a goodbye, files that are broken or far too large, an engine that
// fails. Each time there is a clear message, and nothing that was there is lost.

#include <gtest/gtest.h>

#include <QAbstractButton>
#include <QApplication>
#include <QFile>
#include <QListWidget>
#include <QMessageBox>
#include <QTemporaryDir>
#include <QTimer>

#include "gui/overlay/overlay_reader.h"
#include "gui/state/project_file.h"
#include "gui/window/main_window.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;
using test::small_inputs;
using test::wait_until_idle;

/// What this process has read from files so far.
qint64 bytes_read() {
  QFile file("/proc/self/io");
  if (!file.open(QFile::ReadOnly)) return 0;
  return file.readLine().trimmed().split(' ').last().toLongLong();
}

TEST(Robustness, ClosingAsksBeforeDiscardingChanges) {
  MainWindow window(test::library());
  window.show();
  window.open_example(5);
  ASSERT_TRUE(wait_until_idle(window.state()));
  window.state().change(test::with(window.state().inputs(), PlanChoice::Batch, "5"), "batch");
  QString asked;
  test::answer_next(QMessageBox::Cancel, asked);
  EXPECT_FALSE(window.close());
  EXPECT_TRUE(asked.contains("Save your changes?")) << asked.toStdString();
  EXPECT_TRUE(window.isVisible());
  test::answer_next(QMessageBox::Discard, asked);
  EXPECT_TRUE(window.close());
}

TEST(Robustness, BrokenFilesOfEveryKindAreRefusedByName) {
  QTemporaryDir folder;
  MainWindow window(test::library());
  window.show();
  window.open_example(5);
  ASSERT_TRUE(wait_until_idle(window.state()));
  const SnapshotPtr before = window.state().snapshot();
  const std::vector<std::pair<QString, QByteArray>> files = {
      {"empty.json", ""},
      {"cut.json", "{\"kind\": \"fsdp-plan-project\", \"model\""},
      {"other.json", "[1, 2, 3]"},
      {"binary.json", QByteArray("\x00\xff\x80\x02}q", 6)},
      {"newer.json", "{\"kind\": \"fsdp-plan-project\", \"format_version\": \"9.0\", \"model\": \"mlp\"}"},
  };
  for (const auto& [name, content] : files) {
    QFile file(folder.filePath(name));
    ASSERT_TRUE(file.open(QFile::WriteOnly));
    file.write(content);
    file.close();
    EXPECT_FALSE(window.open_file(file.fileName())) << name.toStdString();
    ASSERT_FALSE(window.state().errors().empty()) << name.toStdString();
    EXPECT_TRUE(window.findChild<QLabel*>("problem")->text().contains(name)) << name.toStdString();
    EXPECT_EQ(window.state().snapshot(), before) << "the picture stays";
  }
  EXPECT_FALSE(window.open_file(folder.filePath("nowhere.json")));
}

// A gigabyte is told by the size of the file: nothing of it is read.
TEST(Robustness, ASnapshotOfMoreThanAGigabyteIsRefusedAtOnce) {
  QTemporaryDir folder;
  const QString path = folder.filePath("huge.pickle");
  QFile file(path);
  ASSERT_TRUE(file.open(QFile::WriteOnly));
  file.write(QByteArray("\x80\x02}", 3));
  ASSERT_TRUE(file.resize((qint64{1} << 30) + 1)) << "a sparse file";
  file.close();
  MainWindow window(test::library());
  window.show();
  window.open_example(5);
  ASSERT_TRUE(wait_until_idle(window.state()));
  const qint64 before = bytes_read();
  window.load_measured(path);
  ASSERT_TRUE(QTest::qWaitFor([&] { return !window.state().errors().empty(); }, test::kPatience));
  EXPECT_LT(bytes_read() - before, qint64{1} << 26) << "it was read";
  const QString text = window.findChild<QLabel*>("problem")->text();
  EXPECT_TRUE(text.contains("The snapshot is too large: 1.00 GiB")) << text.toStdString();
  EXPECT_TRUE(text.contains("max_entries")) << text.toStdString();
  EXPECT_EQ(window.state().measured(), nullptr);
}

// A search of many seconds says how far it is, leaves the window alone, and ends when it is told to.
TEST(Robustness, SlowSearchShowsProgressAndStopsAtOnce) {
  MainWindow window(test::library());
  window.show();
  AppState& state = window.state();
  QStringList told;
  QObject::connect(&state, &AppState::progressed, [&](const QString& text) { told << text; });
  Inputs inputs;
  inputs.model = "qwen3_30b_a3b";
  inputs = test::with(inputs, PlanChoice::GpuName, "A100 80GB SXM");
  state.open(test::with(inputs, PlanChoice::Gpus, "8"));
  // The window turns while the search runs, or it would no longer be busy when it first gets its turn.
  while (told.isEmpty() && state.is_busy()) QCoreApplication::processEvents(QEventLoop::AllEvents, 5);
  ASSERT_FALSE(told.isEmpty());
  EXPECT_TRUE(told.first().contains("plans")) << told.first().toStdString();
  ASSERT_TRUE(state.is_busy()) << "this search is no longer slow: choose another";
  auto* stop = window.findChild<QAbstractButton*>("stop_search");
  ASSERT_TRUE(stop->isVisible());
  QTest::mouseClick(stop, Qt::LeftButton);
  ASSERT_TRUE(wait_until_idle(state));
  // A search that had gone on to its end would have explained its answer.
  EXPECT_TRUE(state.snapshot() == nullptr || state.snapshot()->stage != Stage::Explained);
  EXPECT_FALSE(stop->isVisible());
}

TEST(Robustness, MissingModelFileIsReportedAndKeepsTheAnswer) {
  QTemporaryDir folder;
  const QString path = folder.filePath("own.json");
  ASSERT_TRUE(QFile::copy("model_specs/mlp.json", path));
  MainWindow window(test::library());
  window.show();
  ASSERT_TRUE(window.open_file(path));
  ASSERT_TRUE(wait_until_idle(window.state()));
  const SnapshotPtr before = window.state().snapshot();
  ASSERT_NE(before, nullptr);
  ASSERT_TRUE(QFile::remove(path));
  window.state().change(test::with(window.state().inputs(), PlanChoice::Gpus, "2"), "GPUs");
  ASSERT_TRUE(wait_until_idle(window.state()));
  ASSERT_FALSE(window.state().errors().empty());
  EXPECT_TRUE(window.findChild<QLabel*>("problem")->isVisible());
  EXPECT_EQ(window.state().snapshot()->report.plan, before->report.plan);
  // Undo leads out of it where the file is back.
  ASSERT_TRUE(QFile::copy("model_specs/mlp.json", path));
  window.state().undo_stack().undo();
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_TRUE(window.state().errors().empty());
}

}  // namespace
}  // namespace fsdp::gui
