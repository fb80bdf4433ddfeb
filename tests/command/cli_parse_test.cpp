#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "command/cli_options.h"

namespace fsdp::command {
namespace {

using Words = std::vector<std::string>;

CommandLine parsed(const Words& words) {
  const Result<CommandLine> line = parse_command_line(words);
  if (line) return *line;
  ADD_FAILURE() << to_string(line.error().front());
  CommandLine empty;
  empty.values.resize(options().size());
  return empty;
}

std::string first_error_of(const Words& words) {
  const Result<CommandLine> line = parse_command_line(words);
  return line ? "" : to_string(line.error().front());
}

TEST(CommandLine, EmptyValueIsAValue) {
  for (const Words& words : {Words{"mlp", "--alloc-conf=", "--gpus", "4"}, {"mlp", "--alloc-conf", "", "--gpus=4"}}) {
    const CommandLine line = parsed(words);
    EXPECT_EQ(line.value(Option::AllocConf), "");
    EXPECT_EQ(line.value(Option::Gpus), "4");
    EXPECT_EQ(line.arguments, Words{"mlp"});
  }
}

TEST(CommandLine, ValueMayBeginWithADash) {
  const CommandLine line = parsed({"execute", "plan.json", "--eps", "-.5", "--betas", "-1", "-.5", "--lr=-.5e-3"});
  EXPECT_EQ(line.value(Option::Epsilon), "-.5");
  EXPECT_EQ(line.all(Option::Betas), (Words{"-1", "-.5"}));
  EXPECT_EQ(line.value(Option::LearningRate), "-.5e-3");
}

TEST(CommandLine, DashWordThatIsNoOptionIsAnArgument) {
  EXPECT_EQ(first_error_of({"mlp", "-.5", "--gpus", "4"}),
            "\"-.5\" is one argument too many. \"fsdp-plan\" takes one MODEL.");
}

TEST(CommandLine, AListTakesAllWordsUpToTheNextOption) {
  const CommandLine line = parsed({"mlp", "--freeze=a", "b", "-", "--gpus", "4", "--freeze", "c", "-o=plan.json"});
  EXPECT_EQ(line.all(Option::Freeze), (Words{"a", "b", "-", "c"}));
  EXPECT_EQ(line.value(Option::Output), "plan.json");
}

TEST(CommandSet, ContainsExactlyItsCommands) {
  constexpr CommandSet kTwo = Command::Plan | Command::Completions;
  EXPECT_TRUE(kTwo.has(Command::Plan) && kTwo.has(Command::Completions));
  EXPECT_FALSE(kTwo.has(Command::Simulate));
  for (const CommandInfo& info : commands()) EXPECT_TRUE(CommandSet::all().has(info.command));
  EXPECT_TRUE(info_of(Option::Tolerance).commands ==
              (Command::Rehearse | Command::Run | Command::Execute | Command::Compare));
}

}  // namespace
}  // namespace fsdp::command
