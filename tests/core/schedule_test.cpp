// validate() finds each kind of broken promise. Each test breaks one in a good schedule.

#include "core/schedule.h"

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
  static std::size_t find(const Instructions& steps, Do what, int unit, int occurrence = 0) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].what == what && steps[i].unit == unit && occurrence-- == 0) return i;
    }
    ADD_FAILURE() << "no such instruction";
    return 0;
  }

  static void remove(Instructions& steps, Do what, int unit, int occurrence = 0) {
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

TEST_F(ValidateTest, AGoodScheduleKeepsAllPromises) {
  EXPECT_TRUE(after([](Instructions&) {}).empty());
}

TEST_F(ValidateTest, FindsAnOpWhoseParametersAreSharded) {
  const auto texts = after([](Instructions& steps) {
    remove(steps, Do::Unshard, 0);
    remove(steps, Do::WaitForUnshard, 0);
    remove(steps, Do::Reshard, 0);
  });
  // LoadInputs, two for the root, the stem; then the block runs as instruction 4.
  EXPECT_EQ(texts,
            std::vector<std::string>{"instruction 4: An op of \"blocks.0\" runs while its parameters are sharded."});
}

TEST_F(ValidateTest, FindsAnOpBetweenUnshardAndWait) {
  const auto texts = after([](Instructions& steps) {
    std::swap(steps[find(steps, Do::WaitForUnshard, 0)], steps[find(steps, Do::WaitForUnshard, 0) + 1]);
  });
  EXPECT_TRUE(has(texts, "An op of \"blocks.0\" runs while its parameters are sharded."));
}

TEST_F(ValidateTest, FindsABackwardWithoutParameters) {
  const auto texts = after([](Instructions& steps) {
    remove(steps, Do::Unshard, 1, 1);
    remove(steps, Do::WaitForUnshard, 1, 1);
  });
  EXPECT_TRUE(has(texts, "An op of \"blocks.1\" runs while its parameters are sharded."));
  EXPECT_TRUE(has(texts, "A sharded unit is resharded."));
}

TEST_F(ValidateTest, FindsASecondUnshard) {
  const auto texts = after([](Instructions& steps) {
    const auto at = static_cast<std::ptrdiff_t>(find(steps, Do::Unshard, 0));
    steps.insert(steps.begin() + at, steps[static_cast<std::size_t>(at)]);
  });
  EXPECT_EQ(texts, std::vector<std::string>{"instruction 5: Unit \"blocks.0\" is unsharded twice."});
}

TEST_F(ValidateTest, FindsAWaitWithoutAnUnshard) {
  const auto texts = after([](Instructions& steps) { remove(steps, Do::Unshard, 0); });
  EXPECT_EQ(texts, std::vector<std::string>{"instruction 4: Unit \"blocks.0\" is waited for without an unshard."});
}

TEST_F(ValidateTest, FindsASkippedOp) {
  const auto texts = after([](Instructions& steps) {
    for (Instruction& step : steps) {
      if (step.what == Do::Forward && step.call == 1) step.op_begin = 1;
      if (step.what == Do::Backward && step.call == 1) step.op_end -= 1;
    }
  });
  EXPECT_TRUE(has(texts, "An op is skipped or run twice in forward."));
  EXPECT_TRUE(has(texts, "An op is skipped in backward."));
}

TEST_F(ValidateTest, FindsABackwardThatRunsTwice) {
  const auto texts = after([](Instructions& steps) {
    const auto found =
        std::find_if(steps.begin(), steps.end(), [](const Instruction& s) { return s.what == Do::Backward; });
    steps.insert(found, *found);
  });
  EXPECT_TRUE(has(texts, "An op is run twice in backward."));
}

TEST_F(ValidateTest, FindsAnUnfinishedForwardAndBackward) {
  const auto texts = after([](Instructions& steps) {
    std::erase_if(steps, [](const Instruction& s) {
      const bool last_forward = s.what == Do::Forward && s.call == 4;
      return last_forward || (s.what == Do::Backward && s.call == 0);
    });
  });
  EXPECT_TRUE(has(texts, "end: The forward is not complete."));
  EXPECT_TRUE(has(texts, "end: The backward is not complete."));
}

TEST_F(ValidateTest, FindsGradientsThatAreNeverOrTwiceReduced) {
  EXPECT_EQ(after([](Instructions& steps) { remove(steps, Do::ReduceGrads, 1); }),
            std::vector<std::string>{"end: The gradients of unit \"blocks.1\" are reduced 0 times."});
  EXPECT_EQ(after([](Instructions& steps) {
              const std::size_t at = find(steps, Do::ReduceGrads, 1);
              steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at), steps[at]);
            }),
            std::vector<std::string>{"end: The gradients of unit \"blocks.1\" are reduced 2 times."});
}

TEST_F(ValidateTest, FindsGradientsTakenBeforeTheirBackward) {
  const auto texts = after([](Instructions& steps) {
    const Instruction reduce = steps[find(steps, Do::ReduceGrads, 0)];
    remove(steps, Do::ReduceGrads, 0);
    steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(find(steps, Do::ReduceGrads, 1)), reduce);
  });
  EXPECT_EQ(texts.size(), 1u);
  EXPECT_TRUE(has(texts, "The gradients of \"blocks.0\" are taken before its backward is done."));
}

TEST_F(ValidateTest, FindsAnOptimizerAmongUnshardedParameters) {
  const auto texts = after([](Instructions& steps) { remove(steps, Do::Reshard, 2); });
  EXPECT_TRUE(has(texts, "The optimizer runs while a unit is unsharded."));
  EXPECT_TRUE(has(texts, "end: Unit \"\" is left unsharded."));
}

TEST_F(ValidateTest, ChecksEveryMicroBatchByItself) {
  plan_.accumulation = 2;
  relower();
  EXPECT_TRUE(after([](Instructions&) {}).empty());
  const auto texts = after([](Instructions& steps) { remove(steps, Do::ReduceGrads, 1, 0); });
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_TRUE(has(texts, "The gradients of unit \"blocks.1\" are reduced 0 times."));
  EXPECT_EQ(texts[0].find("end"), std::string::npos) << texts[0];
}

TEST_F(ValidateTest, EveryInstructionHasAName) {
  for (int what = 0; what < kNumDo; ++what) EXPECT_FALSE(name_of(static_cast<Do>(what)).empty());
  EXPECT_EQ(name_of(Do::ZeroGrad), "ZeroGrad");
  EXPECT_EQ(name_of(StepPhase::Optimizer), "optimizer");
}

}  // namespace
}  // namespace fsdp
