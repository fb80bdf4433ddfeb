#include "runs/launch_script.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace fsdp::runs {
namespace {

using Commands = std::vector<std::vector<std::string>>;

std::string file_of_test(const std::string& name) {
  return testing::TempDir() + "launch_script_test_" + std::to_string(getpid()) + "_" + name;
}

std::string written(const std::string& text) {
  const std::string path = file_of_test("script.sh");
  std::ofstream(path) << text;
  return path;
}

Commands commands_of(const std::string& text, const std::vector<std::string>& arguments = {}) {
  const auto commands = commands_of_script(written(text), arguments);
  EXPECT_TRUE(commands) << to_string(commands.error().front());
  return commands.value_or(Commands{});
}

TEST(LaunchScript, VariablesArraysAndConditionsMeanWhatTheyMean) {
  EXPECT_EQ(commands_of(
                "set -xeuo pipefail\n"
                "DEVICE=${DEVICE_OF_THIS_TEST:-$(python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu)}\n"
                "MORE=()\n"
                "case \"$DEVICE\" in gpu) MORE+=(a.b=$((2 * 1024)) 'c=two words');; *) exit 1;; esac\n"
                "if [ \"$#\" -gt 0 ]; then MORE+=(n=$1); fi\n"
                "python3 -m some.module \"${MORE[@]}\" 2>&1 | tee log\n",
                {"8"}),
            (Commands{{"python3", "-m", "some.module", "a.b=2048", "c=two words", "n=8"}}));
}

TEST(LaunchScript, LaunchersAreRecordedInTheirOrder) {
  EXPECT_EQ(
      commands_of("cd /somewhere; source venv/bin/activate; export PATH=/x:$PATH A=1\n"
                  "mkdir -p out; touch out/file\n"
                  "ray start --head; A=2 torchrun --nproc_per_node=2 -m first; exec accelerate launch train.py x=$A\n"),
      (Commands{{"ray", "start", "--head"},
                {"torchrun", "--nproc_per_node=2", "-m", "first"},
                {"accelerate", "launch", "train.py", "x=1"}}));
}

TEST(LaunchScript, NothingIsWrittenAndNothingIsStarted) {
  const std::string kept = file_of_test("kept");
  std::ofstream(kept) << "kept";
  const std::string made = file_of_test("made");
  EXPECT_EQ(
      commands_of("set +e\necho lost > " + kept + "\n: >> " + made + "\n/bin/touch " + made + "\ncommand /bin/touch " +
                  made + "\nPATH=/bin:/usr/bin touch " + made + "\nexec 5> " + made + "\nhistory -w " + made +
                  "\nenable history; history -w " + made + "\nset +r\nbuiltin exec /bin/touch " + made + "\ntrl sft\n"),
      (Commands{{"trl", "sft"}}));
  std::string text;
  std::ifstream(kept) >> text;
  EXPECT_EQ(text, "kept");
  EXPECT_FALSE(std::filesystem::exists(made));
}

TEST(LaunchScript, OutputInAFileIsLeftOut) {
  EXPECT_EQ(commands_of("nohup python3 -m some.module a=1 > \"out put.log\" 2>&1 &\nwait\n"),
            (Commands{{"python3", "-m", "some.module", "a=1"}}));
}

TEST(LaunchScript, AnErrorOfTheScriptIsSaid) {
  const auto broken = commands_of_script(written("if true; then\n"), {});
  ASSERT_FALSE(broken);
  EXPECT_NE(to_string(broken.error().front()).find("syntax error"), std::string::npos)
      << to_string(broken.error().front());
  const auto unset = commands_of_script(written("set -u\necho $1\n"), {});
  ASSERT_FALSE(unset);
  EXPECT_NE(to_string(unset.error().front()).find("unbound variable"), std::string::npos);
  EXPECT_TRUE(commands_of("ls\n").empty());
}

TEST(LaunchScript, ScriptsAreToldByNameOrFirstLine) {
  EXPECT_TRUE(is_shell_script("run.sh"));
  EXPECT_FALSE(is_shell_script("model.json"));
  const std::string named = file_of_test("named");
  std::ofstream(named) << "#!/usr/bin/env bash\n";
  EXPECT_TRUE(is_shell_script(named));
  EXPECT_TRUE(is_script_line(std::vector<std::string>{"bash", "run.sh", "8"}));
  EXPECT_FALSE(is_script_line(std::vector<std::string>{"bash", "-c"}));
}

}  // namespace
}  // namespace fsdp::runs
