#include "gui/state/project_file.h"

#include <gtest/gtest.h>

#include "gui/state/engine.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::Option;

TEST(ProjectFile, SearchedAndKeptStatesComeBackAsTheyWere) {
  AppState state(test::library());
  Inputs inputs = test::quick_inputs("qwen3_tts");
  inputs = with_option(inputs, Option::Checkpoint, "full");
  inputs = with_dimension(inputs, "clip_seconds", "5");
  inputs.options[Option::Freeze] = {"talker.model.text_embedding.weight", "*.codec_embedding.*"};
  state.open(inputs);
  ASSERT_TRUE(test::wait_until_idle(state));
  ASSERT_TRUE(state.errors().empty());
  const auto searched = parse_project(project_text(inputs), "p");
  ASSERT_TRUE(searched.has_value());
  EXPECT_TRUE(*searched == inputs);
  state.set_kept(true);
  const auto kept = parse_project(project_text(state.inputs()), "p");
  ASSERT_TRUE(kept.has_value());
  EXPECT_TRUE(*kept == state.inputs());
}

TEST(ProjectFile, SaysAllThatIsWrongAtOnce) {
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

TEST(ProjectFile, AnOptionOfOneRunIsNoPartOfAState) {
  const auto read = parse_project(
      R"({"kind": "fsdp-plan-project", "format_version": "1.0", "model": "mlp", "options": {"--force": [""]}})", "p");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().front().what, "\"--force\" is not an option of a plan.");
}

}  // namespace
}  // namespace fsdp::gui
