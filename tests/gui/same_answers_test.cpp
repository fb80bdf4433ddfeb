// The window and the command are two faces of one planner: for the same input they print the same figures.

#include <gtest/gtest.h>

#include <QProcess>
#include <QTemporaryDir>
#include <fstream>

#include "gui/state/inputs.h"
#include "render/result_json.h"
#include "tests/gui/support.h"

namespace fsdp::gui {
namespace {

using planner::PlanChoice;

/// What a command prints, run by a shell as a user would.
std::string output_of(const std::string& command) {
  QProcess process;
  QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
  const QString binary = environment.value("FSDP_PLAN_BINARY");
  environment.insert("PATH", binary.left(binary.lastIndexOf('/')) + ":" + environment.value("PATH"));
  process.setProcessEnvironment(environment);
  process.start("/bin/sh", {"-c", QString::fromStdString(command)});
  process.waitForFinished(60'000);
  return process.readAllStandardOutput().toStdString();
}

/// The command of a state with `--json` after the model or the plan.
std::string with_json(std::string command) {
  const std::size_t end = std::min(command.find(" <<"), command.find(" --"));
  return command.insert(std::min(end, command.size()), " --json");
}

std::string report_of(const Snapshot& shown) {
  return render::to_json(shown.report, &shown.cluster);
}

/// What the window knows of a search, in the words of the command: the chosen plan, the front, the proof, the remedies.
std::string search_of(const Snapshot& shown) {
  planner::SearchResult result;
  result.verdict = shown.report.verdict;
  result.report = shown.report;
  result.proof = shown.proof.value_or(planner::Proof());
  result.objective = shown.objective;
  result.refinement = shown.refinement;
  result.explanation = shown.explanation;
  result.notes = shown.notes;
  for (const planner::Candidate& plan : shown.plans) {
    if (plan.plan == shown.report.plan && result.best.label.empty()) result.best = plan;
  }
  // After the front come the plans that were faster and did not fit.
  const auto end = shown.plans.end() - static_cast<std::ptrdiff_t>(shown.explanation.rejected.size());
  const bool has_front = shown.report.verdict == Verdict::Fits && shown.objective == planner::SearchObjective::Time;
  if (has_front) result.pareto.assign(shown.plans.begin(), end);
  return render::to_json(result, &shown.cluster);
}

class SameAnswers : public testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(qEnvironmentVariableIsEmpty("FSDP_PLAN_BINARY")) << "run it by ctest"; }

  void expect_same(const Inputs& inputs) {
    AppState state(test::library());
    state.open(inputs);
    ASSERT_TRUE(test::wait_until_idle(state, 60'000));
    ASSERT_TRUE(state.errors().empty()) << to_string(state.errors().front());
    const std::string searched = output_of(with_json(command_of(state.inputs(), plan_file_of(*state.snapshot()))));
    EXPECT_EQ(searched, search_of(*state.snapshot()));
    EXPECT_NE(searched.find("\"remedies\""), std::string::npos);
    // The same plan, kept.
    state.set_kept(true);
    ASSERT_TRUE(test::wait_until_idle(state, 60'000));
    const std::string kept = output_of(with_json(command_of(state.inputs(), plan_file_of(*state.snapshot()))));
    EXPECT_EQ(kept, report_of(*state.snapshot()));
    // What decides its peak, and what would help.
    std::string explain = command_of(state.inputs(), plan_file_of(*state.snapshot()));
    explain.replace(explain.find("simulate"), std::string("simulate").size(), "explain");
    EXPECT_EQ(output_of(with_json(explain)),
              render::to_json(state.snapshot()->report, &state.snapshot()->cluster, &state.snapshot()->explanation));
  }
};

TEST_F(SameAnswers, ForAModelOnAssumedGpus) {
  expect_same(test::quick_inputs("qwen3_tts"));
}

struct Machine {
  const char* model;
  const char* gpu;
  const char* gpus;
  const char* nodes;
};

TEST_F(SameAnswers, ForTenModelsOnTenMachines) {
  for (const Machine& machine :
       {Machine{"gpt2", "A100 80GB SXM", "8", "1"}, Machine{"qwen3_0_6b", "RTX 4090", "2", "1"},
        Machine{"qwen3_8b", "RTX 4090", "4", "1"}, Machine{"llama3_1_8b", "H100 SXM", "8", "1"},
        Machine{"llama2_7b", "V100 32GB SXM", "8", "1"}, Machine{"llama3_1_70b", "H100 SXM", "8", "4"},
        Machine{"vit_l_16", "T4", "4", "1"}, Machine{"resnet18", "RTX 3060", "2", "1"},
        Machine{"whisper_large_v3", "L40S", "4", "2"}, Machine{"bert_large", "L4", "1", "1"}}) {
    SCOPED_TRACE(machine.model);
    Inputs inputs;
    inputs.model = machine.model;
    inputs = test::with(inputs, PlanChoice::GpuName, machine.gpu);
    inputs = test::with(inputs, PlanChoice::Gpus, machine.gpus);
    inputs = test::with(inputs, PlanChoice::Nodes, machine.nodes);
    AppState state(test::library());
    state.open(inputs);
    ASSERT_TRUE(test::wait_until_idle(state));
    ASSERT_TRUE(state.errors().empty()) << to_string(state.errors().front());
    const StepReport& report = state.snapshot()->report;
    const std::string printed = output_of(with_json(command_of(state.inputs(), plan_file_of(*state.snapshot()))));
    // Verdict, bytes and time, and whatever else it says.
    EXPECT_EQ(printed, search_of(*state.snapshot()));
    EXPECT_NE(printed.find(std::to_string(report.memory.peaks.device.count())), std::string::npos);
  }
}

TEST_F(SameAnswers, ForAPlanThatDoesNotFit) {
  Inputs inputs = test::small_inputs("llama3_1_8b");
  inputs = test::with(inputs, PlanChoice::Gpus, "2");
  expect_same(test::with(inputs, PlanChoice::Offload, "no"));
}

TEST_F(SameAnswers, ForManyOptionsOnNamedGpus) {
  Inputs inputs;
  inputs.model = "qwen3_tts";
  inputs = test::with(inputs, PlanChoice::GpuName, "A100 80GB SXM");
  inputs = test::with(inputs, PlanChoice::Gpus, "8");
  inputs = test::with(inputs, PlanChoice::Nodes, "2");
  inputs = test::with(inputs, PlanChoice::Precision, "mixed");
  inputs = test::with(inputs, PlanChoice::Checkpoint, "selective:12");
  inputs = test::with(inputs, PlanChoice::AllocConf, "expandable_segments:True");
  inputs = *with_dimension(inputs, "clip_seconds", "6");
  inputs.choices.frozen = {"talker.model.text_embedding.weight"};
  expect_same(inputs);
}

TEST_F(SameAnswers, ForTheLeastMemoryAndTheMostSamples) {
  for (const auto objective : {planner::SearchObjective::Memory, planner::SearchObjective::Tokens}) {
    Inputs inputs = test::small_inputs();
    inputs.objective = objective;
    AppState state(test::library());
    state.open(inputs);
    ASSERT_TRUE(test::wait_until_idle(state, 60'000));
    ASSERT_TRUE(state.errors().empty()) << to_string(state.errors().front());
    const std::string command = command_of(state.inputs(), plan_file_of(*state.snapshot()));
    EXPECT_NE(command.find(" --objective "), std::string::npos) << command;
    EXPECT_EQ(output_of(with_json(command)), search_of(*state.snapshot()));
  }
}

TEST_F(SameAnswers, ForAKeptPlanOnOtherMachines) {
  AppState state(test::library());
  state.open(test::small_inputs("mlp"));
  ASSERT_TRUE(test::wait_until_idle(state));
  state.set_kept(true);
  state.change(test::with(state.inputs(), PlanChoice::Gpus, "8"), "GPUs");
  state.change(test::with(state.inputs(), PlanChoice::OptimizerName, "sgd"), "optimizer");
  ASSERT_TRUE(test::wait_until_idle(state));
  ASSERT_TRUE(state.errors().empty());
  const std::string printed = output_of(with_json(command_of(state.inputs(), plan_file_of(*state.snapshot()))));
  EXPECT_EQ(printed, report_of(*state.snapshot()));
  EXPECT_NE(printed.find("\"kind\": \"sgd\""), std::string::npos);
}

TEST_F(SameAnswers, ForAPlanFileOfTheCommand) {
  QTemporaryDir folder;
  const std::string path = folder.filePath("plan.json").toStdString();
  output_of("fsdp-plan qwen3_tts --gpus 4 --mem 24G --set clip_seconds=6 --clip-grad-norm none -o " + path);
  const auto inputs = inputs_of_file(path, test::library());
  ASSERT_TRUE(inputs.has_value()) << to_string(inputs.error().front());
  EXPECT_EQ(texts_of(*inputs, PlanChoice::SetDimension), std::vector<std::string>{"clip_seconds=6"})
      << "sizes that follow from it stay formulas";
  AppState state(test::library());
  state.open(*inputs);
  ASSERT_TRUE(test::wait_until_idle(state));
  ASSERT_TRUE(state.errors().empty());
  EXPECT_EQ(output_of("fsdp-plan simulate " + path + " --json"), report_of(*state.snapshot()));
}

TEST(Command, QuotesWordsThatAShellWouldSplit) {
  Inputs inputs = test::small_inputs();
  inputs = test::with(inputs, PlanChoice::GpuName, "H100 SXM");
  inputs.choices.frozen = {"a.*", "it's"};
  EXPECT_EQ(command_of(inputs, {}), "fsdp-plan mlp --gpu 'H100 SXM' --gpus 4 --freeze 'a.*' 'it'\\''s'");
  EXPECT_EQ(command_of(with_typed(inputs, PlanChoice::Gpus, "as many"), {}),
            "fsdp-plan mlp --gpus 'as many' --gpu 'H100 SXM' --freeze 'a.*' 'it'\\''s'");
}

}  // namespace
}  // namespace fsdp::gui
