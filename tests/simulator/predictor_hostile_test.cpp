// Damaged model specs and plans on their way through the whole prediction: each is predicted or refused with words and
// a place. None ends the program, whatever an assertion takes for granted.

#include <gtest/gtest.h>

#include <random>

#include "tests/support/hostile_plan.h"

namespace fsdp {
namespace {

TEST(PredictorHostile, WholeFilesArePredicted) {
  for (const HostileFiles& files : whole_files()) EXPECT_EQ(predict_hostile(files), "") << files.name;
}

TEST(PredictorHostile, DamagedFilesArePredictedOrRefused) {
  const std::vector<HostileFiles> whole = whole_files();
  constexpr unsigned kCases = 2000;
  for (unsigned seed = 0; seed < kCases; ++seed) {
    std::mt19937 random(seed);
    const auto choose = [&](std::size_t bound) { return random() % bound; };
    HostileFiles files = whole[choose(whole.size())];
    for (std::size_t left = 1 + choose(2); left > 0; --left) damage(files, choose);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + files.name);
    ASSERT_EQ(predict_hostile(files), "");
  }
}

TEST(PredictorHostile, AWholeCaptureIsPredicted) {
  EXPECT_EQ(predict_hostile(whole_capture()), "");
}

// Its numbers are indices and bytes that the walk takes as they are.
TEST(PredictorHostile, DamagedCapturesArePredictedOrRefused) {
  const HostileFiles whole = whole_capture();
  constexpr unsigned kCases = 1000;
  for (unsigned seed = 0; seed < kCases; ++seed) {
    std::mt19937 random(seed);
    const auto choose = [&](std::size_t bound) { return random() % bound; };
    HostileFiles files = whole;
    for (std::size_t left = 1 + choose(2); left > 0; --left) damage(files, choose);
    SCOPED_TRACE("seed " + std::to_string(seed));
    ASSERT_EQ(predict_hostile(files), "");
  }
}

}  // namespace
}  // namespace fsdp
