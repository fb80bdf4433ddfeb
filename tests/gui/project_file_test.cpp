#include "gui/state/project_file.h"

#include <gtest/gtest.h>

#include "core/version.h"
#include "gui/state/engine.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;

TEST(ProjectFile, SearchedAndKeptStatesReadBackAsWritten) {
  AppState state(test::library());
  Inputs inputs = test::quick_inputs("qwen3_tts");
  inputs = test::with(inputs, PlanChoice::Checkpoint, "full");
  inputs = *with_dimension(inputs, "clip_seconds", "5");
  inputs.choices.frozen = {"talker.model.text_embedding.weight", "*.codec_embedding.*"};
  state.open(inputs);
  ASSERT_TRUE(test::wait_until_idle(state));
  ASSERT_TRUE(state.errors().empty());
  inputs.objective = planner::SearchObjective::Memory;
  const auto searched = parse_project(project_text(inputs), "p");
  ASSERT_TRUE(searched.has_value());
  EXPECT_TRUE(*searched == inputs);
  state.set_kept(true);
  const auto kept = parse_project(project_text(state.inputs()), "p");
  ASSERT_TRUE(kept.has_value());
  EXPECT_TRUE(*kept == state.inputs());
}

/// A project of a model `mlp` with these options, as JSON.
std::string project_with(const std::string& options) {
  return R"({"kind": "fsdp-plan-project", "format_version": "1.0", "model": "mlp", "options": {)" + options + "}}";
}

TEST(ProjectFile, FormatIsUnchanged) {
  const std::string options = R"({
    "--gpus": ["2"],
    "--nodes": ["2"],
    "--mem": ["24G"],
    "--intra-bandwidth": ["31.5GB/s"],
    "--batch": ["4"],
    "--set": ["clip_seconds=6", "width=2.5"],
    "--trainable": ["a.*", "b"],
    "--precision": ["fp16-mixed"],
    "--clip-grad-norm": ["none"],
    "--reshard": ["keep-last:4"],
    "--wrap": ["blocks"],
    "--activation-checkpointing": ["full:8"],
    "--offload": ["no"]
  })";
  const auto read = parse_project(project_with(options.substr(1, options.size() - 2)), "p");
  ASSERT_TRUE(read.has_value()) << to_string(read.error().front());
  EXPECT_TRUE(read->unread.empty());
  EXPECT_EQ(read->choices.gpus, 2);
  EXPECT_EQ(read->choices.cpu_offload, false);
  const std::string head = std::string(R"({
  "kind": "fsdp-plan-project",
  "format_version": "1.0",
  "generator": "fsdp-plan-gui@)") +
                           std::string(kVersion) + R"(",
  "model": "mlp",
  "options": )";
  EXPECT_EQ(project_text(*read), head + options + "\n}\n");
}

TEST(ProjectFile, ReadsTextsAndNamesOfOlderFiles) {
  const auto read = parse_project(
      project_with(R"("--mem": ["16GiB"], "--seq": ["4k"], "--flavour": ["torchtitan"], "--checkpoint": ["full"])"),
      "p");
  ASSERT_TRUE(read.has_value()) << to_string(read.error().front());
  EXPECT_TRUE(read->unread.empty());
  EXPECT_EQ(read->choices.memory, test::gib(16));
  EXPECT_EQ(read->choices.sequence, 4096);
  EXPECT_EQ(read->choices.flavor, "torchtitan");
  EXPECT_EQ(text_of(*read, PlanChoice::Checkpoint), "full");
}

TEST(ProjectFile, UnreadableValuesReadBackAsTyped) {
  const auto read =
      parse_project(project_with(R"("--gpus": ["many"], "--mem": ["16G"], "--set": ["width=8", "x=wide"])"), "p");
  ASSERT_TRUE(read.has_value()) << to_string(read.error().front());
  EXPECT_FALSE(read->choices.gpus.has_value());
  EXPECT_EQ(text_of(*read, PlanChoice::Gpus), "many");
  EXPECT_EQ(text_of_dimension(*read, "width"), "8");
  EXPECT_EQ(text_of_dimension(*read, "x"), "wide");
  const auto again = parse_project(project_text(*read), "p");
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(*again, *read);
  AppState state(test::library());
  state.open(*read);
  ASSERT_TRUE(test::wait_until_idle(state));
  ASSERT_EQ(state.errors().size(), 2u);
  EXPECT_EQ(state.errors()[0].what, "\"x=wide\" is not a name and a number above 0.");
  EXPECT_EQ(state.errors()[1].what, "\"many\" is not a whole number.");
}

TEST(ProjectFile, RefusesAnUnknownObjective) {
  const auto read = parse_project(
      R"({"kind": "fsdp-plan-project", "format_version": "1.0", "model": "mlp", "objective": "memori", "options": {}})",
      "p");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().front().hint, "Did you mean \"memory\"?");
}

TEST(ProjectFile, ReportsEveryError) {
  const auto read = parse_project(
      R"({"kind": "fsdp-plan-project", "format_version": "2.0", "model": 3, "options": {"--gpu_s": ["4"], "--mem": "16G"},
          "plan": {"mesh": 5}})",
      "broken.json");
  ASSERT_FALSE(read.has_value());
  std::string all;
  for (const Error& error : read.error()) all += to_string(error) + "\n";
  EXPECT_NE(all.find("Version 2.0 cannot be read."), std::string::npos) << all;
  EXPECT_NE(all.find("\"--gpu_s\" is not an option of a plan."), std::string::npos) << all;
  EXPECT_NE(all.find("Did you mean \"--gpus\"?"), std::string::npos) << all;
  EXPECT_NE(all.find("/options/--mem"), std::string::npos) << all;
  EXPECT_NE(all.find("/model"), std::string::npos) << all;
}

TEST(ProjectFile, OptionsOfOneRunAreNotSaved) {
  const auto read = parse_project(
      R"({"kind": "fsdp-plan-project", "format_version": "1.0", "model": "mlp", "options": {"--force": [""]}})", "p");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().front().what, "\"--force\" is not an option of a plan.");
}

}  // namespace
}  // namespace fsdp::gui
