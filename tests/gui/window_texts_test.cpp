// What the window says while it looks, beside a selection, on paper, and about its own controls.

#include <gtest/gtest.h>

#include <QComboBox>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QPainter>
#include <QPushButton>
#include <QSpinBox>
#include <QStatusBar>
#include <QTemporaryDir>
#include <algorithm>
#include <fstream>

#include "core/base/parse_units.h"
#include "gui/charts/export_chart.h"
#include "gui/charts/memory_timeline_widget.h"
#include "gui/charts/plot_paint.h"
#include "gui/charts/stream_timeline_widget.h"
#include "gui/panels/answer_panel.h"
#include "gui/panels/comparison_panel.h"
#include "gui/panels/start_page.h"
#include "gui/state/plan_edit.h"
#include "gui/window/main_window.h"
#include "render/choice_text.h"
#include "tests/gui/chart_fixture.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;
using test::wait_until_idle;

QImage drawn(PlotWidget& chart, const QSize& size) {
  QImage image(size, QImage::Format_RGB32);
  QPainter painter(&image);
  chart.draw(painter, QRectF(QPointF(0, 0), QSizeF(size)));
  return image;
}

TEST(FirstSearch, ShowsThatItRunsAndLeavesControlsEmpty) {
  MainWindow window(test::library());
  window.show();
  window.state().open(test::quick_inputs("gpt2"));
  ASSERT_TRUE(window.state().is_busy());
  ASSERT_EQ(window.state().snapshot(), nullptr);
  EXPECT_EQ(window.findChild<QLabel*>("verdict_word")->text(), "Looking …");
  auto* chart = window.findChild<MemoryTimelineWidget*>("memory");
  TimeRange range;
  MemoryTimelineWidget other(&range);
  other.set_theme(chart->theme());
  other.setFont(chart->font());
  const QSize size(500, 200);
  EXPECT_NE(drawn(*chart, size), drawn(other, size)) << "it asks to choose a model, which is chosen";
  other.set_is_waiting(true);
  EXPECT_EQ(drawn(*chart, size), drawn(other, size));
  for (const PlanChoice choice :
       {PlanChoice::Batch, PlanChoice::Sequence, PlanChoice::GlobalBatch, PlanChoice::Accumulate, PlanChoice::Shard}) {
    const auto* box = window.controls().control(choice)->findChild<QSpinBox*>();
    EXPECT_EQ(box->text(), "–") << box->accessibleName().toStdString();
  }
  EXPECT_EQ(window.controls().control(PlanChoice::Gpus)->findChild<QSpinBox*>()->text(), "4") << "this one was given";
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_NE(window.controls().control(PlanChoice::Batch)->findChild<QSpinBox*>()->text(), "–");
}

/// Where the second picture has the ground of a note, and the first does not.
QRect note_in(const QImage& before, const QImage& after, const QColor& ground) {
  QRect box;
  for (int y = 0; y < after.height(); ++y) {
    for (int x = 0; x < after.width(); ++x) {
      const bool is_new = after.pixelColor(x, y) == ground && before.pixelColor(x, y) != ground;
      if (is_new) box = box.united(QRect(x, y, 1, 1));
    }
  }
  return box;
}

TEST(Selection, DescriptionHidesNeitherPeakNorKernels) {
  for (const bool is_memory : {true, false}) {
    TimeRange range;
    MemoryTimelineWidget memory(&range);
    StreamTimelineWidget streams(&range);
    PlotWidget& chart = is_memory ? static_cast<PlotWidget&>(memory) : streams;
    memory.set_snapshot(gpt2_snapshot());
    streams.set_snapshot(gpt2_snapshot());
    const QSize size(1000, 320);
    chart.resize(size);
    const QImage before = chart.grab().toImage();
    const double step = range.full().end;
    range.select(ValueRange{0.3 * step, 0.8 * step});
    const QImage after = chart.grab().toImage();
    const QRect note = note_in(before, after, chart.theme().panel);
    ASSERT_GT(note.width(), 60) << is_memory;
    EXPECT_GT(note.top(), size.height() / 2) << is_memory;
    // The lane of kernels is the uppermost.
    const QColor compute = chart.theme().lane[static_cast<std::size_t>(Lane::Compute)];
    for (int y = note.top(); !is_memory && y <= note.bottom(); ++y) {
      for (int x = note.left(); x <= note.right(); ++x) ASSERT_NE(before.pixelColor(x, y), compute);
    }
  }
}

TEST(ExportedPicture, NamesModelMachinesAndPlan) {
  const QTemporaryDir folder;
  TimeRange range;
  MemoryTimelineWidget chart(&range);
  chart.set_snapshot(gpt2_snapshot());
  const QString path = folder.filePath("chart.svg");
  ASSERT_TRUE(save_chart(chart, path, {1400, 400}, 1).has_value());
  std::ifstream file(path.toStdString());
  const std::string svg(std::istreambuf_iterator<char>(file), {});
  const StepReport& report = gpt2_snapshot()->report;
  const std::string caption = chart.caption().toStdString();
  // The title of the file and the one in the picture.
  EXPECT_NE(svg.find(">Memory over one step</text>"), std::string::npos);
  EXPECT_NE(svg.find(">" + caption), std::string::npos);
  for (const std::string& part : {report.model, report.gpu, format_bytes(report.memory.budget)}) {
    EXPECT_NE(caption.find(part), std::string::npos) << part;
  }
}

TEST(Controls, BandwidthIsShownAndAcceptedWithABlank) {
  MainWindow window(test::library());
  window.show();
  window.state().open(test::small_inputs());
  ASSERT_TRUE(wait_until_idle(window.state()));
  auto* line = window.controls().control(PlanChoice::IntraBandwidth)->findChild<QLineEdit*>();
  ASSERT_EQ(line->text(), "31.5 GB/s");
  line->setText("32.5 GB/s");
  line->setModified(true);
  QTest::keyClick(line, Qt::Key_Return);
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_TRUE(window.state().errors().empty());
  EXPECT_EQ(window.state().snapshot()->cluster.intra_node.bandwidth.value, BytesPerSecond(32.5e9));
  EXPECT_EQ(line->text(), "32.5 GB/s");
}

TEST(StartPageList, IsOneRowHighForOneRecentFile) {
  StartPage page(test::library());
  page.resize(1000, 700);
  page.show();
  auto* list = page.findChild<QListWidget*>("recent_files");
  page.show_recent({"/tmp/one.json"});
  QTest::qWait(10);
  EXPECT_LT(list->height(), 2 * list->sizeHintForRow(0) + 8);
  page.show_recent({"/tmp/1.json", "/tmp/2.json", "/tmp/3.json"});
  QTest::qWait(10);
  EXPECT_GE(list->height(), 3 * list->sizeHintForRow(0));
}

TEST(Errors, AppearOnlyAboveTheCharts) {
  MainWindow window(test::library());
  window.show();
  const Inputs before = test::small_inputs();
  window.state().open(before);
  ASSERT_TRUE(wait_until_idle(window.state()));
  window.statusBar()->showMessage("something older");
  Inputs wrong = with_typed(before, PlanChoice::Gpus, "many");
  wrong = with_typed(std::move(wrong), PlanChoice::Clip, "much");
  window.state().change(wrong, "nonsense");
  ASSERT_TRUE(wait_until_idle(window.state()));
  ASSERT_GE(window.state().errors().size(), 2U);
  EXPECT_EQ(window.statusBar()->currentMessage(), "");
  const auto* problem = window.findChild<QLabel*>("problem");
  EXPECT_TRUE(problem->isVisible());
  EXPECT_EQ(problem->text().count('\n') + 1, static_cast<qsizetype>(window.state().errors().size())) << "a line each";
}

TEST(Errors, UnreadableTextStaysInItsFieldUntilChanged) {
  MainWindow window(test::library());
  window.show();
  AppState& state = window.state();
  state.open(test::small_inputs());
  ASSERT_TRUE(wait_until_idle(state));
  auto* memory = window.controls().control(PlanChoice::Memory)->findChild<QLineEdit*>();
  const auto type = [&](const QString& text) {
    memory->setFocus();
    memory->selectAll();
    QTest::keyClicks(memory, text);
    QTest::keyClick(memory, Qt::Key_Return);
    ASSERT_TRUE(wait_until_idle(state));
  };
  const auto* problem = window.findChild<QLabel*>("problem");
  type("plenty");
  EXPECT_EQ(memory->text(), "plenty");
  EXPECT_TRUE(memory->font().bold()) << "it is the user's own";
  EXPECT_TRUE(problem->isVisible());
  EXPECT_TRUE(problem->text().contains("\"plenty\"")) << problem->text().toStdString();
  EXPECT_FALSE(state.inputs().choices.memory.has_value()) << "nothing is assumed in its place";
  EXPECT_TRUE(state.is_stale());
  // Another choice leaves it there, and the answer still lacks it.
  state.change(test::with(state.inputs(), PlanChoice::Gpus, "2"), "GPUs");
  ASSERT_TRUE(wait_until_idle(state));
  EXPECT_EQ(memory->text(), "plenty");
  EXPECT_TRUE(problem->isVisible());
  // Each is one step of undo.
  state.undo_stack().undo();
  state.undo_stack().undo();
  ASSERT_TRUE(wait_until_idle(state));
  EXPECT_EQ(memory->text(), "16.0 GiB");
  EXPECT_FALSE(problem->isVisible());
  state.undo_stack().redo();
  ASSERT_TRUE(wait_until_idle(state));
  EXPECT_EQ(memory->text(), "plenty");
  type("24GiB");
  EXPECT_EQ(memory->text(), "24.0 GiB");
  EXPECT_TRUE(state.errors().empty());
  EXPECT_EQ(state.snapshot()->report.memory.budget, test::gib(24));
  // The same in other words is no change, and is shown in the usual ones.
  const int steps = state.undo_stack().count();
  type("24576 MiB");
  EXPECT_EQ(memory->text(), "24.0 GiB");
  EXPECT_EQ(state.undo_stack().count(), steps);
}

TEST(Errors, MarkTheirFieldAndNameItAsTheWindowDoes) {
  MainWindow window(test::library());
  window.show();
  window.open_example(test::kSmallExample);
  ASSERT_TRUE(test::wait_until_idle(window.state()));
  const Control* link = window.controls().control(PlanChoice::IntraBandwidth);
  const Inputs before = window.state().inputs();
  window.state().change(with_typed(before, PlanChoice::IntraBandwidth, "fast"), "link");
  ASSERT_TRUE(test::wait_until_idle(window.state()));
  EXPECT_FALSE(link->problem().isEmpty());
  EXPECT_TRUE(link->findChild<QLabel*>()->text().startsWith("⚠ ")) << link->findChild<QLabel*>()->text().toStdString();
  EXPECT_TRUE(window.controls().control(PlanChoice::Gpus)->problem().isEmpty());
  const QString said = window.findChild<QLabel*>("problem")->text();
  EXPECT_TRUE(said.startsWith("Link bandwidth: ")) << said.toStdString();
  window.state().change(before, "back");
  ASSERT_TRUE(test::wait_until_idle(window.state()));
  EXPECT_TRUE(link->problem().isEmpty());
  EXPECT_EQ(link->findChild<QLabel*>()->text(), "Link bandwidth");
}

TEST(MemoryLegend, NamesEveryCategoryOfTheDeviceWithItsBytes) {
  MainWindow window(test::library());
  window.resize(1360, 860);
  window.show();
  window.state().open(test::quick_inputs("gpt2"));
  ASSERT_TRUE(test::wait_until_idle(window.state()));
  const StepReport& report = window.state().snapshot()->report;
  QString all;
  for (const LegendEntry& entry : window.findChild<MemoryTimelineWidget*>("memory")->legend()) all += entry.text + "\n";
  const auto& curves = window.state().snapshot()->curves;
  const auto& steady = curves.phases.back();
  const std::size_t peak = steady.peak();
  EXPECT_TRUE(all.contains("allocator overhead " + text_of(Bytes(steady.reserved[peak] - steady.total[peak]))))
      << all.toStdString();
  EXPECT_TRUE(all.contains("safety margin " + text_of(report.memory.margin))) << all.toStdString();
  EXPECT_TRUE(all.contains("reserved, at most ")) << all.toStdString();
}

TEST(Differences, CountSamplesAndMarkChangedTexts) {
  StepReport before;
  before.plan.dimensions = {{"batch", 8}};
  before.time.step = Seconds(2);
  before.time.mfu = 0.09226;
  StepReport after = before;
  after.plan.dimensions = {{"batch", 4}};
  after.plan.accumulation = 4;
  after.time.step = Seconds(4);
  const auto figures = compared_figures(before, after);
  const auto find = [&](const QString& name) {
    return *std::find_if(figures.begin(), figures.end(), [&](const ComparedFigure& each) { return each.name == name; });
  };
  EXPECT_EQ(find("samples a step").before, 8);
  EXPECT_EQ(find("samples a step").after, 16);
  EXPECT_EQ(find("samples/s").before, 4);
  EXPECT_EQ(find("samples/s").after, 4);
  EXPECT_EQ(find("MFU").kind, ComparedFigure::Kind::Share);
}

TEST(Errors, NameEachUnreadableTextOfAKeptPlanOnce) {
  AppState state(test::library());
  state.open(test::small_inputs());
  ASSERT_TRUE(wait_until_idle(state));
  state.set_kept(true);
  state.change(with_typed(with_typed(state.inputs(), PlanChoice::Gpus, "many"), PlanChoice::Clip, "much"), "nonsense");
  ASSERT_TRUE(wait_until_idle(state));
  ASSERT_EQ(state.errors().size(), 2U);
  EXPECT_EQ(state.errors()[0].where, "--clip-grad-norm");
  EXPECT_EQ(state.errors()[1].where, "--gpus");
}

TEST(Exposed, ShowsTheWaitForAnOffloadedOptimizer) {
  MainWindow window(test::library());
  window.resize(1600, 900);
  window.show();
  const auto shows = [&](const QString& part) {
    const auto labels = window.findChildren<QLabel*>();
    return std::any_of(labels.begin(), labels.end(), [&](const QLabel* label) { return label->text().contains(part); });
  };
  window.state().open(test::quick_inputs("gpt2"));
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_FALSE(shows("CPU optimizer"));
  window.state().change(test::with(test::quick_inputs("gpt2"), PlanChoice::Offload, "yes"), "offload");
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_TRUE(shows("CPU optimizer"));
}

TEST(Drives, AreChosenAndRefusedAsTheCommandDoes) {
  MainWindow window(test::library());
  window.resize(1600, 900);
  window.show();
  AppState& state = window.state();
  const auto* offload = window.controls().control(PlanChoice::Offload)->findChild<QComboBox*>();
  EXPECT_GE(offload->findText("nvme"), 0);
  Inputs inputs = test::small_inputs("gpt2");
  inputs = test::with(inputs, PlanChoice::HostMemory, "64GiB");
  inputs = test::with(inputs, PlanChoice::Offload, "nvme");
  state.open(inputs);
  ASSERT_TRUE(wait_until_idle(state));
  // ZeRO-3 alone has it, which the window says beside the field's name.
  ASSERT_EQ(state.errors().size(), 1U);
  EXPECT_EQ(state.errors()[0].where, "--offload");
  const auto* problem = window.findChild<QLabel*>("problem");
  EXPECT_TRUE(problem->isVisible());
  EXPECT_TRUE(problem->text().contains("Only ZeRO-3")) << problem->text().toStdString();
  inputs = test::with(inputs, PlanChoice::Runtime, "zero3");
  state.change(inputs, "ZeRO-3");
  ASSERT_TRUE(wait_until_idle(state));
  ASSERT_TRUE(state.errors().empty()) << to_string(state.errors().front());
  const std::optional<DriveReport> assumed = state.snapshot()->report.memory.drive;
  ASSERT_TRUE(assumed.has_value());
  EXPECT_EQ(offload->currentText(), "nvme");
  const auto* rate = window.controls().control(PlanChoice::NvmeBandwidth)->findChild<QLineEdit*>();
  EXPECT_EQ(rate->text(), "4.55 GB/s") << "what is assumed";
  const auto* capacity = window.controls().control(PlanChoice::NvmeCapacity)->findChild<QLineEdit*>();
  EXPECT_EQ(capacity->text(), "") << "unknown, and not checked";
  const auto says = [&](const std::string& part) {
    return to_html(answer_of(*state.snapshot())).contains(QString::fromStdString(part));
  };
  EXPECT_TRUE(says(format_bytes(assumed->kept) + " in files on the NVMe drives of a node"));
  // What they move in a second and what they hold: too little, and the window says how much is missing.
  inputs = test::with(test::with(inputs, PlanChoice::NvmeBandwidth, "12GB/s"), PlanChoice::NvmeCapacity, "1GiB");
  state.change(inputs, "drives");
  ASSERT_TRUE(wait_until_idle(state));
  EXPECT_EQ(rate->text(), "12 GB/s");
  EXPECT_EQ(capacity->text(), "1.00 GiB");
  const std::optional<DriveReport> given = state.snapshot()->report.memory.drive;
  ASSERT_TRUE(given.has_value());
  EXPECT_EQ(given->in_a_second.count(), 12'000'000'000);
  ASSERT_GT(given->missing(), Bytes(0));
  EXPECT_EQ(state.snapshot()->report.verdict, Verdict::DoesNotFit);
  const auto* moment = window.findChild<QPushButton*>("binding_moment");
  EXPECT_TRUE(moment->accessibleName().startsWith("The NVMe drives of a node lack " +
                                                  QString::fromStdString(format_bytes(given->missing()))))
      << moment->accessibleName().toStdString();
}

TEST(Drives, KeptPlanOfAnotherFrameworkCannotUseThem) {
  AppState state(test::library());
  state.open(test::quick_inputs("gpt2"));
  ASSERT_TRUE(wait_until_idle(state));
  planner::PlanChoices change;
  ASSERT_TRUE(render::read_choice(PlanChoice::Offload, std::vector<std::string>{"nvme"}, change).has_value());
  const Snapshot& shown = *state.snapshot();
  const Result<Plan> refused = with_choices(shown.report.plan, change, *shown.model, shown.cluster);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(to_string(refused.error().front()),
            "--offload: Only ZeRO-3 keeps data on an NVMe drive. Write yes, or plan for --runtime zero3.");
}

/// The share of a picture that has this color.
double share_of(const QImage& image, const QColor& color) {
  int count = 0;
  for (int y = 0; y < image.height(); ++y) {
    for (int x = 0; x < image.width(); ++x) count += image.pixelColor(x, y) == color ? 1 : 0;
  }
  return static_cast<double>(count) / (image.width() * image.height());
}

std::string svg_of(PlotWidget& chart) {
  const QTemporaryDir folder;
  const QString path = folder.filePath("chart.svg");
  EXPECT_TRUE(save_chart(chart, path, {1100, 460}, 1).has_value());
  std::ifstream file(path.toStdString());
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(MemoryOfASmallModel, IsDrawnOnACutAxisWithANote) {
  AppState state(test::library());
  state.open(test::small_inputs());
  ASSERT_TRUE(wait_until_idle(state));
  const SnapshotPtr small = state.snapshot();
  TimeRange range;
  MemoryTimelineWidget chart(&range);
  chart.set_snapshot(small);
  const Theme& theme = chart.theme();
  const QColor outside = mixed(theme.background, theme.text_weak, 0.35);
  const QSize size(1100, 460);
  const QImage image = picture_of(chart, size, 1);
  EXPECT_LT(share_of(image, outside), 0.12) << "what lies outside of PyTorch hid everything else";
  // What lives is 29 of 389 MiB: a thirteenth on an axis from 0.
  EXPECT_GT(share_of(image, theme.category[static_cast<std::size_t>(MemoryCategory::Temp)]), 0.08);
  const std::string svg = svg_of(chart);
  EXPECT_NE(svg.find("the axis is cut"), std::string::npos);
  // The ticks keep counting from 0.
  EXPECT_NE(svg.find(">0</text>"), std::string::npos);
  EXPECT_NE(svg.find(">400 MiB</text>"), std::string::npos);
  EXPECT_EQ(svg.find(">100 MiB</text>"), std::string::npos) << "that is where the axis is cut";
}

TEST(MemoryOfALargeModel, IsDrawnFromZero) {
  TimeRange range;
  MemoryTimelineWidget chart(&range);
  chart.set_snapshot(gpt2_snapshot());
  const std::string svg = svg_of(chart);
  EXPECT_EQ(svg.find("the axis is cut"), std::string::npos);
  EXPECT_NE(svg.find(">0 GiB</text>"), std::string::npos);
}

}  // namespace
}  // namespace fsdp::gui
