// Suggestions by what they ask for: nothing, another training, or another machine.

#include <gtest/gtest.h>

#include <QLabel>
#include <QLayout>
#include <QProcess>
#include <QPushButton>
#include <QToolButton>
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/report/device_verdict.h"
#include "gui/window/main_window.h"
#include "planner/advice/remedy_kind.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;
using planner::RemedyKind;
using test::wait_until_idle;

const std::map<RemedyKind, QString> kTitles = {{RemedyKind::Free, "Free"},
                                               {RemedyKind::ChangesTraining, "Changes training"},
                                               {RemedyKind::OtherMachine, "Other machine"}};

/// What stands in the row, one after the other: titles as they are, buttons by the number of their suggestion.
std::vector<QWidget*> row_of(MainWindow& window) {
  std::vector<QWidget*> row;
  const QLayout* layout = window.findChild<QWidget*>("remedies")->layout();
  for (int i = 0; i < layout->count(); ++i) row.push_back(layout->itemAt(i)->widget());
  return row;
}

class SuggestionRows : public testing::TestWithParam<Inputs> {};

TEST_P(SuggestionRows, AreGroupedByKindInAFixedOrder) {
  MainWindow window(test::library());
  window.resize(1600, 900);
  window.show();
  window.state().open(GetParam());
  ASSERT_TRUE(wait_until_idle(window.state()));
  const std::vector<planner::Remedy>& remedies = window.state().snapshot()->explanation.remedies;
  ASSERT_FALSE(remedies.empty());
  std::vector<QString> titles;
  std::size_t buttons = 0;
  for (const QWidget* each : row_of(window)) {
    if (const auto* title = qobject_cast<const QLabel*>(each)) {
      titles.push_back(title->text());
      continue;
    }
    ++buttons;
    const auto number = each->objectName().section('_', 1).toUInt();
    ASSERT_FALSE(titles.empty());
    EXPECT_EQ(titles.back(), kTitles.at(kind_of(remedies[number - 1]))) << remedies[number - 1].what;
  }
  const auto titles_of = [](const std::vector<planner::Remedy>& all) {
    std::vector<QString> wanted;
    for (const auto& [kind, title] : kTitles) {
      const auto is_of = [kind = kind](const planner::Remedy& remedy) { return kind_of(remedy) == kind; };
      if (std::any_of(all.begin(), all.end(), is_of)) wanted.push_back(title);
    }
    return wanted;
  };
  // For a plan that does not fit, what makes it fit.
  std::vector<planner::Remedy> told = remedies;
  if (!has_room(window.state().snapshot()->report)) {
    std::erase_if(told, [](const planner::Remedy& remedy) { return !remedy.has_room(); });
  }
  EXPECT_EQ(buttons, std::min<std::size_t>(5, told.size()));
  EXPECT_EQ(titles, titles_of(told)) << "each kind has its title once";
  // The best one of all is in sight, and all are in the menu, below the same titles.
  EXPECT_NE(window.findChild<QPushButton*>("remedy_1"), nullptr);
  const QMenu& menu = *window.findChild<QToolButton*>("all_remedies")->menu();
  EXPECT_EQ(test::num_entries(menu), remedies.size());
  std::vector<QString> sections;
  for (const QAction* action : menu.actions()) {
    if (action->isSeparator()) sections.push_back(action->text());
  }
  EXPECT_EQ(sections, titles_of(remedies));
}

TEST_P(SuggestionRows, CostWhatTheCommandPrints) {
  MainWindow window(test::library());
  window.state().open(GetParam());
  ASSERT_TRUE(wait_until_idle(window.state()));
  QProcess process;
  QString command = text_of(command_of(window.state().inputs(), plan_file_of(*window.state().snapshot())));
  command.replace("fsdp-plan", qEnvironmentVariable("FSDP_PLAN_BINARY") + " --json");
  process.start("/bin/sh", {"-c", command});
  ASSERT_TRUE(process.waitForFinished(test::kPatience));
  const auto printed = nlohmann::json::parse(process.readAllStandardOutput().toStdString());
  const auto& told = printed.at("explain").at("remedies");
  int compared = 0;
  for (const QWidget* each : row_of(window)) {
    const auto* chip = qobject_cast<const QPushButton*>(each);
    if (chip == nullptr) continue;
    const auto& remedy = told.at(chip->objectName().section('_', 1).toUInt() - 1);
    const Bytes bytes(remedy.at("delta_bytes").get<std::int64_t>());
    const Seconds time(remedy.at("delta_seconds").get<double>());
    QString what = QString::fromStdString(remedy.at("what").get<std::string>());
    what[0] = what[0].toUpper();
    EXPECT_TRUE(chip->text().trimmed().startsWith(what + ":")) << chip->text().toStdString();
    const QString cost_of_bytes = bytes == Bytes(0) ? QString() : signed_text_of(bytes);
    const QString cost_of_time = std::abs(time.count()) < 1e-9 ? QString() : signed_text_of(time);
    EXPECT_TRUE(chip->text().contains(cost_of_bytes)) << chip->text().toStdString();
    EXPECT_TRUE(chip->text().contains(cost_of_time)) << chip->text().toStdString();
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST_P(SuggestionRows, TitlesAreSkippedByKeysAndNeverAlone) {
  for (const int width : {672, 800, 1100, 1600}) {
    MainWindow window(test::library());
    window.resize(width, 700);
    window.show();
    window.state().open(GetParam());
    ASSERT_TRUE(wait_until_idle(window.state()));
    QTest::qWait(20);
    const QWidget* title = nullptr;
    for (const QWidget* each : row_of(window)) {
      if (each->size().isEmpty()) break;
      EXPECT_TRUE(title == nullptr || title->y() == each->y()) << width;
      title = qobject_cast<const QLabel*>(each);
      EXPECT_TRUE(title == nullptr || title->focusPolicy() == Qt::NoFocus);
    }
    EXPECT_EQ(title, nullptr) << "a title ends the row of " << width;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, SuggestionRows,
                         testing::Values(test::quick_inputs("gpt2"),
                                         test::with(test::quick_inputs("llama3_1_8b"), PlanChoice::Gpus, "2")),
                         [](const auto& info) { return info.index == 0 ? "ThatFit" : "ThatDoNotFit"; });

}  // namespace
}  // namespace fsdp::gui
