// Work that was not saved when a program ended, and that of windows that are still open.

#include <gtest/gtest.h>

#include <QApplication>
#include <QDir>
#include <QFile>
#include <QListWidget>
#include <QMessageBox>
#include <QStandardPaths>
#include <QTimer>

#include "gui/state/project_file.h"
#include "gui/state/recovery.h"
#include "gui/window/main_window.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;
using test::small_inputs;
using test::wait_until_idle;

class RecoveryTest : public testing::Test {
 protected:
  void SetUp() override {
    // For this process alone: tests run beside each other.
    QApplication::setApplicationName("fsdp-plan-gui-recovery-" + QString::number(QCoreApplication::applicationPid()));
    left_ = test::with(small_inputs(), PlanChoice::Batch, "7");
  }
  void TearDown() override {
    QDir(folder()).removeRecursively();
    QApplication::setApplicationName("fsdp-plan-gui-test");
  }
  static QString folder() { return QStandardPaths::writableLocation(QStandardPaths::AppDataLocation); }
  /// As a process that was killed leaves it: the lock names a process that is gone.
  QString leave_behind() const {
    QDir().mkpath(folder());
    const QString path = folder() + "/autosave-999999999-0.fsdp-project.json";
    EXPECT_TRUE(write_project(path.toStdString(), left_).has_value());
    QFile lock(path + ".lock");
    EXPECT_TRUE(lock.open(QFile::WriteOnly));
    lock.write("999999999\nfsdp-plan-gui\n" + QSysInfo::machineHostName().toUtf8() + "\n");
    return path;
  }
  Inputs left_;
};

TEST_F(RecoveryTest, WorkOfACrashedProgramIsRestored) {
  const QString path = leave_behind();
  MainWindow window(test::library());
  window.show();
  QString asked;
  test::answer_next(QMessageBox::Yes, asked);
  window.offer_recovery();
  EXPECT_TRUE(asked.contains("unsaved changes of mlp")) << asked.toStdString();
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_TRUE(window.state().inputs() == left_);
  EXPECT_TRUE(window.isWindowModified()) << "it is still saved nowhere";
  EXPECT_FALSE(QFile::exists(path));
  EXPECT_TRUE(QFile::exists(window.recovery().path())) << "it is kept again before the other file is gone";
  ASSERT_NE(window.state().snapshot(), nullptr);
}

TEST_F(RecoveryTest, DeclinedWorkIsDeleted) {
  const QString path = leave_behind();
  MainWindow window(test::library());
  window.show();
  QString asked;
  test::answer_next(QMessageBox::No, asked);
  window.offer_recovery();
  EXPECT_FALSE(asked.isEmpty());
  EXPECT_FALSE(window.state().has_model());
  EXPECT_FALSE(QFile::exists(path));
  asked.clear();
  window.offer_recovery();
  EXPECT_TRUE(asked.isEmpty()) << "asked again";
}

TEST_F(RecoveryTest, PostponedWorkStays) {
  const QString path = leave_behind();
  MainWindow window(test::library());
  window.show();
  QString asked;
  test::answer_next(QMessageBox::Cancel, asked);
  window.offer_recovery();
  EXPECT_FALSE(asked.isEmpty());
  EXPECT_TRUE(QFile::exists(path));
  EXPECT_EQ(left_behind().size(), 1U);
}

TEST_F(RecoveryTest, IsOfferedAlsoWhenStartedWithAFile) {
  leave_behind();
  MainWindow window(test::library());
  window.show();
  QString asked;
  test::answer_next(QMessageBox::Yes, asked);
  window.offer_recovery();
  window.open_at_start("qwen3_tts");
  EXPECT_TRUE(window.state().inputs() == left_) << "the file does not take the place of what was recovered";
  const auto* messages = window.findChild<QListWidget*>("messages");
  ASSERT_GT(messages->count(), 0);
  EXPECT_TRUE(messages->item(messages->count() - 1)->text().contains("qwen3_tts was not opened"));
}

TEST_F(RecoveryTest, AnotherOpenWindowKeepsItsOwn) {
  MainWindow first(test::library());
  first.show();
  first.open_example(test::kSmallExample);
  ASSERT_TRUE(wait_until_idle(first.state()));
  first.state().change(test::with(first.state().inputs(), PlanChoice::Batch, "5"), "batch");
  ASSERT_TRUE(QTest::qWaitFor([&] { return QFile::exists(first.recovery().path()); }, test::kPatience));
  MainWindow second(test::library());
  second.show();
  EXPECT_NE(first.recovery().path(), second.recovery().path());
  EXPECT_TRUE(left_behind().empty()) << "the first window is still there";
  second.open_example(test::kSmallExample);
  second.state().change(test::with(second.state().inputs(), PlanChoice::Batch, "9"), "batch");
  ASSERT_TRUE(QTest::qWaitFor([&] { return QFile::exists(second.recovery().path()); }, test::kPatience));
  const auto kept = read_project(first.recovery().path().toStdString());
  ASSERT_TRUE(kept.has_value());
  EXPECT_TRUE(*kept == first.state().inputs());
}

TEST_F(RecoveryTest, UndoToTheSavedStateLeavesNothingToRecover) {
  MainWindow window(test::library());
  window.open_example(test::kSmallExample);
  ASSERT_TRUE(wait_until_idle(window.state()));
  window.state().change(test::with(window.state().inputs(), PlanChoice::Gpus, "3"), "gpus");
  EXPECT_TRUE(window.isWindowModified());
  ASSERT_TRUE(QTest::qWaitFor([&] { return QFile::exists(window.recovery().path()); }, test::kPatience));
  const auto kept = read_project(window.recovery().path().toStdString());
  ASSERT_TRUE(kept.has_value());
  EXPECT_TRUE(*kept == window.state().inputs());
  window.state().undo_stack().undo();
  EXPECT_FALSE(window.isWindowModified());
  EXPECT_FALSE(QFile::exists(window.recovery().path()));
}

TEST_F(RecoveryTest, BrokenAutosaveDoesNotPreventTheStart) {
  const QString path = leave_behind();
  QFile file(path);
  ASSERT_TRUE(file.open(QFile::WriteOnly | QFile::Truncate));
  file.write("{\"kind\": \"fsdp-pl");
  file.close();
  MainWindow window(test::library());
  window.show();
  window.offer_recovery();
  EXPECT_FALSE(window.state().has_model());
  // It may be all that is left of somebody's work.
  EXPECT_FALSE(QFile::exists(path));
  EXPECT_TRUE(QFile::exists(path + ".broken"));
  const auto* messages = window.findChild<QListWidget*>("messages");
  ASSERT_GT(messages->count(), 0);
  EXPECT_TRUE(messages->item(0)->text().contains(".broken")) << messages->item(0)->text().toStdString();
}

}  // namespace
}  // namespace fsdp::gui
