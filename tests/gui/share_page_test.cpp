// What is sent to somebody who has no window.

#include <gtest/gtest.h>

#include <QAction>
#include <QDir>
#include <QFile>
#include <QTemporaryDir>

#include "gui/window/main_window.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using test::wait_until_idle;

TEST(SharedPage, HasVerdictCommandChartsAndAnswerInOneFile) {
  MainWindow window(test::library());
  window.show();
  window.state().open(test::with(test::quick_inputs("gpt2"), planner::PlanChoice::GpuName, "RTX 4090"));
  ASSERT_TRUE(wait_until_idle(window.state()));
  const QTemporaryDir folder;
  const QString before = QDir::currentPath();
  QDir::setCurrent(folder.path());
  test::name_next_file("page.html");
  window.findChild<QAction*>("action_export_page")->trigger();
  QDir::setCurrent(before);
  QFile file(folder.filePath("page.html"));
  ASSERT_TRUE(file.open(QFile::ReadOnly));
  const QString page = QString::fromUtf8(file.readAll());
  EXPECT_TRUE(page.startsWith("<!doctype html>"));
  EXPECT_TRUE(page.contains("<h1>GPT-2 on 4x RTX 4090: fits</h1>")) << page.left(900).toStdString();
  EXPECT_TRUE(page.contains("<pre>fsdp-plan gpt2 --gpu 'RTX 4090' --gpus 4 ")) << page.left(1500).toStdString();
  EXPECT_EQ(page.count("data:image/png;base64,iVBOR"), 3);
  for (const char* said : {"proof", "traffic", "all_gather"}) EXPECT_TRUE(page.contains(said)) << said;
  EXPECT_FALSE(page.contains("http")) << "it needs no other file";
}

}  // namespace
}  // namespace fsdp::gui
