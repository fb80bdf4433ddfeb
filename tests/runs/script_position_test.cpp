#include "runs/script_position.h"

#include <gtest/gtest.h>

namespace fsdp::runs {
namespace {

constexpr std::string_view kHeader = "Current thread 0x00007f0c (most recent call first):\n";

std::string stack(std::initializer_list<std::string_view> lines) {
  std::string text(kHeader);
  for (const std::string_view line : lines) text += "  File \"" + std::string(line) + "\n";
  return text;
}

constexpr std::string_view kScript = "/scripts/train.py\", line 7 in <module>";
constexpr std::string_view kFind = "<frozen importlib._bootstrap>\", line 1176 in _find_and_load";
constexpr std::string_view kInit = "/env/lib/python3.11/site-packages/torch/nn/init.py\", line 5 in kaiming_uniform_";
constexpr std::string_view kBackward = "/env/lib/python3.11/site-packages/torch/autograd/graph.py\", line 8 in _engine";

TEST(ScriptPosition, NamesTheLineOfTheScriptAndThePartOfTheStep) {
  EXPECT_EQ(position_of("step 2 of 3", stack({kBackward, kScript}), "/scripts"), "step 2 of 3, backward, train.py:7");
  EXPECT_EQ(position_of("step 2 of 3", stack({kScript}), "/somewhere"), "step 2 of 3, /scripts/train.py:7");
  EXPECT_EQ(position_of("writing the record", "", "/scripts"), "writing the record");
  EXPECT_EQ(position_of("", "", "/scripts"), "starting");
}

TEST(ScriptPosition, NamesOnlyDirectImports) {
  const std::string stacks =
      stack({"/env/lib/python3.11/site-packages/numpy/__init__.py\", line 2 in <module>", kFind,
             "/env/lib/python3.11/site-packages/transformers/x.py\", line 2 in <module>", kFind, kScript});
  EXPECT_EQ(position_of("initializing", stacks, "/scripts"), "importing transformers");
  EXPECT_EQ(position_of("importing", stack({kFind, kScript}), "/scripts"), "importing");
}

TEST(ScriptPosition, NamesWorkBeforeTheFirstStep) {
  EXPECT_EQ(position_of("initializing", stack({kScript}), "/scripts"), "before the first step, train.py:7");
  EXPECT_EQ(position_of("initializing", stack({kInit, kScript}), "/scripts"),
            "making parameters on the CPU (under \"with torch.device('cuda'):\" that takes no time here), train.py:7");
  EXPECT_EQ(position_of("step 1 of 3", stack({"/env/site-packages/torch/_inductor/x.py\", line 5 in compile", kScript}),
                        "/scripts"),
            "compiling, step 1 of 3, train.py:7");
}

TEST(ScriptPosition, UsesTheLastStackWithoutPartialLines) {
  const std::string stacks = stack({kBackward, kScript}) + stack({kScript}) + "  File \"/scripts/tra";
  EXPECT_EQ(position_of("step 2 of 3", stacks, "/scripts"), "step 2 of 3, train.py:7");
}

}  // namespace
}  // namespace fsdp::runs
