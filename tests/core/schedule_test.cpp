// validate() finds each kind of broken promise. Each test breaks one in a good schedule.

#include "core/plan/schedule.h"
#include "core/frameworks/fsdp2/lower_fsdp2.h"
#include "core/frameworks/layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/support/collective_models.h"

namespace fsdp {
namespace {

using Instructions = std::vector<Instruction>;

class ValidateTest : public testing::Test {
 protected:
  ValidateTest()
      : model_(collective_model("mlp", {{"in", "6"}, {"blocks", "8,12,8;8,12,8"}, {"out", "5"}}, Dtype::Float32)) {
    plan_.mesh = {1, 4};
    plan_.units = {{{"blocks.0"}, {}}, {{"blocks.1"}, {}}, {{""}, {}}};
    index_ = index_of(model_);
    relower();
  }

  void relower() {
    layout_ = make_layout(index_, plan_).value();
    schedule_ = lower_fsdp2(index_, plan_, layout_);
  }

  /// The errors after a change, as "where: what".
  std::vector<std::string> after(const std::function<void(Instructions&)>& change) {
    Schedule broken = schedule_;
    change(broken.instructions);
    std::vector<std::string> texts;
    for (const Error& error : validate(broken, index_, layout_)) texts.push_back(to_string(error));
    return texts;
  }

  /// Where an instruction stands, the `occurrence`th of its kind for that unit.
  static std::size_t find(const Instructions& steps, InstructionKind what, int unit, int occurrence = 0) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind == what && steps[i].unit == unit && occurrence-- == 0) return i;
    }
    ADD_FAILURE() << "no such instruction";
    return 0;
  }

  static void remove(Instructions& steps, InstructionKind what, int unit, int occurrence = 0) {
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(find(steps, what, unit, occurrence)));
  }

  static bool has(const std::vector<std::string>& texts, const std::string& what) {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const std::string& text) { return text.find(what) != std::string::npos; });
  }

  Model model_;
  Plan plan_;
  ModelIndex index_;
  Layout layout_;
  Schedule schedule_;
};

TEST_F(ValidateTest, AcceptsAGoodSchedule) {
  EXPECT_TRUE(after([](Instructions&) {}).empty());
}

TEST_F(ValidateTest, FindsAnOpWhoseParametersAreSharded) {
  const auto texts = after([](Instructions& steps) {
    remove(steps, InstructionKind::Unshard, 0);
    remove(steps, InstructionKind::WaitForUnshard, 0);
    remove(steps, InstructionKind::Reshard, 0);
  });
  // LoadInputs, two for the root, the stem, the root's buffer; then the block runs as instruction 5. Its own buffer
  // goes after the other block is gathered.
  EXPECT_EQ(texts, (std::vector<std::string>{
                       "instruction 5: An op of \"blocks.0\" runs while its parameters are sharded.",
                       "instruction 8: The all-gather output of \"blocks.0\" is freed before it is made."}));
}

TEST_F(ValidateTest, FindsAnOpBetweenUnshardAndWait) {
  const auto texts = after([](Instructions& steps) {
    const auto wait = steps.begin() + static_cast<std::ptrdiff_t>(find(steps, InstructionKind::WaitForUnshard, 0));
    std::rotate(wait, wait + 2, wait + 3);  // It ends with a free; then comes the op.
  });
  EXPECT_TRUE(has(texts, "An op of \"blocks.0\" runs while its parameters are sharded."));
}

TEST_F(ValidateTest, FindsABackwardWithoutParameters) {
  const auto texts = after([](Instructions& steps) {
    remove(steps, InstructionKind::Unshard, 1, 1);
    remove(steps, InstructionKind::WaitForUnshard, 1, 1);
  });
  EXPECT_TRUE(has(texts, "An op of \"blocks.1\" runs while its parameters are sharded."));
  EXPECT_TRUE(has(texts, "A sharded unit is resharded."));
}

TEST_F(ValidateTest, FindsASecondUnshard) {
  const auto texts = after([](Instructions& steps) {
    const auto at = static_cast<std::ptrdiff_t>(find(steps, InstructionKind::Unshard, 0));
    steps.insert(steps.begin() + at, steps[at]);
  });
  EXPECT_EQ(texts, (std::vector<std::string>{
                       "instruction 5: The all-gather output of \"blocks.0\" is made while it is still there.",
                       "instruction 5: Unit \"blocks.0\" is unsharded twice."}));
}

TEST_F(ValidateTest, FindsAWaitWithoutAnUnshard) {
  const auto texts = after([](Instructions& steps) { remove(steps, InstructionKind::Unshard, 0); });
  EXPECT_EQ(texts, (std::vector<std::string>{
                       "instruction 4: The all-gather output of \"blocks.0\" is used before it is made.",
                       "instruction 4: Unit \"blocks.0\" is waited for without an unshard.",
                       "instruction 10: The all-gather output of \"blocks.0\" is freed before it is made."}));
}

TEST_F(ValidateTest, FindsASkippedOp) {
  const auto texts = after([](Instructions& steps) {
    for (Instruction& step : steps) {
      if (step.kind == InstructionKind::Forward && step.call == 1) step.op_begin = 1;
      if (step.kind == InstructionKind::Backward && step.call == 1) step.op_end -= 1;
    }
  });
  EXPECT_TRUE(has(texts, "An op is skipped or run twice in forward."));
  EXPECT_TRUE(has(texts, "An op is skipped in backward."));
}

TEST_F(ValidateTest, FindsABackwardThatRunsTwice) {
  const auto texts = after([](Instructions& steps) {
    const auto found = std::find_if(steps.begin(), steps.end(),
                                    [](const Instruction& s) { return s.kind == InstructionKind::Backward; });
    steps.insert(found, *found);
  });
  EXPECT_TRUE(has(texts, "An op is run twice in backward."));
}

TEST_F(ValidateTest, FindsAnUnfinishedForwardAndBackward) {
  const auto texts = after([](Instructions& steps) {
    std::erase_if(steps, [](const Instruction& s) {
      const bool last_forward = s.kind == InstructionKind::Forward && s.call == 4;
      return last_forward || (s.kind == InstructionKind::Backward && s.call == 0);
    });
  });
  EXPECT_TRUE(has(texts, "end: The forward is not complete."));
  EXPECT_TRUE(has(texts, "end: The backward is not complete."));
}

TEST_F(ValidateTest, FindsGradientsThatAreNeverOrTwiceReduced) {
  const auto never = after([](Instructions& steps) { remove(steps, InstructionKind::ReduceGrads, 1); });
  EXPECT_EQ(never.size(), 2u);
  EXPECT_TRUE(has(never, "The reduce-scatter input of \"blocks.1\" is freed before it is made."));
  EXPECT_EQ(never.back(), "end: The gradients of unit \"blocks.1\" are reduced 0 times.");
  const auto twice = after([](Instructions& steps) {
    const std::size_t at = find(steps, InstructionKind::ReduceGrads, 1);
    steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at), steps[at]);
  });
  EXPECT_EQ(twice.size(), 2u);
  EXPECT_TRUE(has(twice, "The reduce-scatter input of \"blocks.1\" is made while it is still there."));
  EXPECT_EQ(twice.back(), "end: The gradients of unit \"blocks.1\" are reduced 2 times.");
}

TEST_F(ValidateTest, FindsGradientsReducedBeforeTheirBackward) {
  const auto texts = after([](Instructions& steps) {
    const Instruction reduce = steps[find(steps, InstructionKind::ReduceGrads, 0)];
    remove(steps, InstructionKind::ReduceGrads, 0);
    steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(find(steps, InstructionKind::ReduceGrads, 1)), reduce);
  });
  EXPECT_EQ(texts.size(), 1u);
  EXPECT_TRUE(has(texts, "The gradients of \"blocks.0\" are taken before its backward is done."));
}

TEST_F(ValidateTest, FindsAnOptimizerAmongUnshardedParameters) {
  const auto texts = after([](Instructions& steps) { remove(steps, InstructionKind::Reshard, 2); });
  EXPECT_TRUE(has(texts, "The optimizer runs while a unit is unsharded."));
  EXPECT_TRUE(has(texts, "end: Unit \"\" is left unsharded."));
}

TEST_F(ValidateTest, ChecksEveryMicroBatchByItself) {
  plan_.accumulation = 2;
  relower();
  EXPECT_TRUE(after([](Instructions&) {}).empty());
  const auto texts = after([](Instructions& steps) { remove(steps, InstructionKind::ReduceGrads, 1, 0); });
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_TRUE(has(texts, "The gradients of unit \"blocks.1\" are reduced 0 times."));
  EXPECT_FALSE(has(texts, "end"));
}

// ---- buffers of collectives -----------------------------------------------------------------------------------------

// All three kinds: shard groups that are copies of each other.
class BufferTest : public ValidateTest {
 protected:
  BufferTest() {
    plan_.mesh = {2, 4};
    relower();
  }

  static std::ptrdiff_t find_free(const Instructions& steps, BufferKind buffer, int unit, int occurrence = 0) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const bool is_it = steps[i].kind == InstructionKind::Free && steps[i].buffer == buffer && steps[i].unit == unit;
      if (is_it && occurrence-- == 0) return static_cast<std::ptrdiff_t>(i);
    }
    ADD_FAILURE() << "no such free";
    return 0;
  }

  /// The errors when the first free of that buffer of blocks.0 is changed.
  std::vector<std::string> after_free(BufferKind buffer,
                                      const std::function<void(Instructions&, std::ptrdiff_t)>& change) {
    return after([&](Instructions& steps) { change(steps, find_free(steps, buffer, 0)); });
  }
};

constexpr BufferKind kBuffers[] = {BufferKind::AllGatherOutput, BufferKind::ReduceInput, BufferKind::AllReduceOutput};

TEST_F(BufferTest, FindsABufferThatIsFreedTwice) {
  for (const BufferKind buffer : kBuffers) {
    const auto texts =
        after_free(buffer, [](Instructions& steps, std::ptrdiff_t at) { steps.insert(steps.begin() + at, steps[at]); });
    ASSERT_EQ(texts.size(), 1u) << name_of(buffer);
    EXPECT_TRUE(has(texts, fmt::format(": The {} of \"blocks.0\" is freed twice.", name_of(buffer))));
  }
}

TEST_F(BufferTest, FindsABufferThatIsNeverFreed) {
  for (const BufferKind buffer : {BufferKind::ReduceInput, BufferKind::AllReduceOutput}) {
    const auto texts =
        after_free(buffer, [](Instructions& steps, std::ptrdiff_t at) { steps.erase(steps.begin() + at); });
    EXPECT_EQ(texts,
              std::vector<std::string>{fmt::format("end: The {} of \"blocks.0\" is never freed.", name_of(buffer))});
  }
  const auto texts = after(
      [](Instructions& steps) { steps.erase(steps.begin() + find_free(steps, BufferKind::AllGatherOutput, 0, 1)); });
  EXPECT_EQ(texts, std::vector<std::string>{"end: The all-gather output of \"blocks.0\" is never freed."});
}

TEST_F(BufferTest, FindsABufferThatIsMadeAgainBeforeItIsFreed) {
  const auto texts = after_free(BufferKind::AllGatherOutput,
                                [](Instructions& steps, std::ptrdiff_t at) { steps.erase(steps.begin() + at); });
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_TRUE(has(texts, "The all-gather output of \"blocks.0\" is made while it is still there."));
}

TEST_F(BufferTest, FindsAFreeBeforeTheBufferIsMade) {
  for (const BufferKind buffer : kBuffers) {
    const auto texts = after_free(buffer, [](Instructions& steps, std::ptrdiff_t at) {
      Instruction early = steps[at];
      early.ends_previous = false;
      steps.insert(steps.begin(), early);
    });
    EXPECT_EQ(texts, std::vector<std::string>{fmt::format(
                         "instruction 0: The {} of \"blocks.0\" is freed before it is made.", name_of(buffer))});
  }
}

TEST_F(BufferTest, FindsAGatherThatIsCopiedOutAfterItsBufferWasFreed) {
  const auto texts = after_free(BufferKind::AllGatherOutput, [](Instructions& steps, std::ptrdiff_t at) {
    Instruction early = steps[at];
    early.ends_previous = false;
    steps.erase(steps.begin() + at);
    steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(find(steps, InstructionKind::WaitForUnshard, 0)), early);
  });
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_TRUE(has(texts, "The all-gather output of \"blocks.0\" is used after it was freed."));
}

TEST_F(BufferTest, FindsACopyOutOfAnotherBufferThanTheGathers) {
  const auto texts =
      after([](Instructions& steps) { steps[find(steps, InstructionKind::WaitForUnshard, 0)].slot = 1; });
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_TRUE(has(texts, "The second all-gather output of \"blocks.0\" is used before it is made."));
}

TEST_F(BufferTest, FindsAFreeOutsideOfAnyInstruction) {
  const auto texts = after_free(BufferKind::AllReduceOutput, [](Instructions& steps, std::ptrdiff_t at) {
    steps.push_back(steps[at]);
    steps.erase(steps.begin() + at);
  });
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_TRUE(has(texts, "A free begins and ends no instruction."));
}

TEST_F(BufferTest, AnActionIsAnInstructionWithItsFrees) {
  std::size_t frees = 0;
  std::vector<Instruction> mains;
  for (Action action; action.end < schedule_.instructions.size();) {
    action = action_at(schedule_.instructions, action.end);
    frees += action.end - action.begin - 1;
    mains.push_back(schedule_.instructions[action.main]);
  }
  EXPECT_EQ(mains, actions_of(schedule_));
  // Each unit's gathers (the root's once, the blocks' twice), its reduction's input and its all-reduce's output.
  EXPECT_EQ(frees, 5u + 3u + 3u);
}

TEST_F(ValidateTest, EveryInstructionHasAName) {
  for (int what = 0; what < kNumInstructionKinds; ++what)
    EXPECT_FALSE(name_of(static_cast<InstructionKind>(what)).empty());
  for (int kind = 0; kind < kNumBufferKinds; ++kind) EXPECT_FALSE(name_of(static_cast<BufferKind>(kind)).empty());
  EXPECT_EQ(name_of(InstructionKind::ZeroGrad), "ZeroGrad");
  EXPECT_EQ(name_of(StepPhase::Optimizer), "optimizer");
}

}  // namespace
}  // namespace fsdp
