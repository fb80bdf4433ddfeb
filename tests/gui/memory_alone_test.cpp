// More memory of a GPU is no other GPU: whoever drags it sees what memory does, and nothing else.

#include <gtest/gtest.h>

#include <QComboBox>
#include <QLabel>
#include <QSlider>

#include "gui/state/machine.h"
#include "gui/window/main_window.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;
using test::wait_until_idle;

Inputs on_four_of_16_gib() {
  return test::quick_inputs("gpt2");
}

/// Moves the slider of the memory to its last stop, over all between.
void drag_to_the_end(MainWindow& window) {
  auto* slider = window.controls().control(PlanChoice::Memory)->findChild<QSlider*>();
  slider->setSliderDown(true);
  emit slider->sliderPressed();
  for (int stop = slider->value(); stop < slider->maximum(); ++stop) {
    slider->setValue(stop + 1);
    ASSERT_TRUE(wait_until_idle(window.state()));
    ASSERT_TRUE(window.state().errors().empty()) << to_string(window.state().errors().front());
  }
  slider->setSliderDown(false);
  emit slider->sliderReleased();
}

TEST(MemoryAlone, DraggingItKeepsTheAssumedCard) {
  MainWindow window(test::library());
  window.show();
  AppState& state = window.state();
  state.open(on_four_of_16_gib());
  ASSERT_TRUE(wait_until_idle(state));
  const Cluster before = state.snapshot()->cluster;
  ASSERT_EQ(before.gpu.name, "L4 with 16.0 GiB");
  drag_to_the_end(window);
  const Cluster& after = state.snapshot()->cluster;
  EXPECT_EQ(after.gpu.name, "L4");
  EXPECT_EQ(after.gpu.memory.value, test::gib(192));
  EXPECT_EQ(after.gpu.memory_bandwidth.value, before.gpu.memory_bandwidth.value);
  EXPECT_EQ(after.gpu.bf16->value, before.gpu.bf16->value);
  EXPECT_EQ(after.intra_node, before.intra_node);
  EXPECT_EQ(after.host_link, before.host_link);
  const auto* card = window.controls().control(PlanChoice::GpuName)->findChild<QComboBox*>();
  EXPECT_EQ(card->currentText(), "L4");
  // As the command says it.
  EXPECT_EQ(command_of(state.inputs(), plan_file_of(*state.snapshot())).substr(0, 52),
            "fsdp-plan gpt2 --gpu L4 --mem 192G --gpus 4 --strate");
  state.undo_stack().undo();
  EXPECT_TRUE(state.inputs() == on_four_of_16_gib()) << "one drag is one step of undo";
}

TEST(MemoryAlone, NamingTheAssumedCardKeepsTimeAndBytes) {
  AppState state(test::library());
  state.open(on_four_of_16_gib());
  ASSERT_TRUE(wait_until_idle(state));
  const SnapshotPtr before = state.snapshot();
  state.open(test::with(with_memory(state.inputs(), "48G", *read_cluster_library(test::library() + "/clusters")),
                        PlanChoice::Memory, "16G"));
  ASSERT_TRUE(wait_until_idle(state));
  const StepReport& after = state.snapshot()->report;
  EXPECT_EQ(after.gpu, "L4");
  EXPECT_EQ(after.plan, before->report.plan);
  EXPECT_EQ(after.time.step, before->report.time.step);
  EXPECT_EQ(after.memory.peaks.device, before->report.memory.peaks.device);
}

TEST(MemoryAlone, DoesNotChangeAStepThatItDoesNotLimit) {
  AppState state(test::library());
  state.open(on_four_of_16_gib());
  ASSERT_TRUE(wait_until_idle(state));
  state.set_kept(true);
  ASSERT_TRUE(wait_until_idle(state));
  const Seconds step = state.snapshot()->report.time.step;
  const ClusterLibrary library = *read_cluster_library(test::library() + "/clusters");
  for (const char* memory : {"24G", "48G", "141G"}) {
    state.change(with_memory(state.inputs(), memory, library), "memory");
    ASSERT_TRUE(wait_until_idle(state));
    EXPECT_EQ(state.snapshot()->report.time.step, step) << memory;
  }
}

TEST(MemoryAlone, ClearingItRestoresTheMemoryOfTheCard) {
  const ClusterLibrary library = *read_cluster_library(test::library() + "/clusters");
  const Inputs changed = with_memory(on_four_of_16_gib(), "", library);
  EXPECT_EQ(changed.choices.gpu_name, "L4");
  EXPECT_FALSE(changed.choices.memory.has_value());
  // What nobody can read is no other card either, nor is the same in other words.
  EXPECT_EQ(with_memory(on_four_of_16_gib(), "plenty", library).choices.gpu_name, "L4");
  EXPECT_TRUE(with_memory(on_four_of_16_gib(), "16GiB", library) == on_four_of_16_gib());
  // A card that is named stays.
  const Inputs named = test::with(on_four_of_16_gib(), PlanChoice::GpuName, "H100 SXM");
  EXPECT_EQ(with_memory(named, "48G", library).choices.gpu_name, "H100 SXM");
}

TEST(MemoryAlone, StepTimeNamesTheAssumedCard) {
  MainWindow window(test::library());
  window.resize(1360, 860);
  window.show();
  window.state().open(on_four_of_16_gib());
  ASSERT_TRUE(wait_until_idle(window.state()));
  const auto says = [&](const QString& text) {
    const QList<QLabel*> labels = window.findChild<QWidget*>("verdict")->findChildren<QLabel*>();
    return std::any_of(labels.begin(), labels.end(),
                       [&](const QLabel* label) { return label->isVisible() && label->text() == text; });
  };
  EXPECT_TRUE(says("Step time, like L4"));
  window.state().change(test::with(window.state().inputs(), PlanChoice::GpuName, "H100 SXM"), "a card");
  ASSERT_TRUE(wait_until_idle(window.state()));
  EXPECT_TRUE(says("Step time"));
}

}  // namespace
}  // namespace fsdp::gui
