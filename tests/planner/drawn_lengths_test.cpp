#include "planner/request/drawn_lengths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

namespace fsdp::planner {
namespace {

std::vector<std::int64_t> one_to(std::int64_t count) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(count));
  std::iota(lengths.begin(), lengths.end(), 1);
  return lengths;
}

TEST(DrawnLengths, TheSameSeedDrawsTheSameAndAnotherOneDoesNot) {
  const std::vector<std::int64_t> lengths = one_to(1000);
  EXPECT_EQ(draw_job(lengths, {.batch = 2}, 2, 100, 7), draw_job(lengths, {.batch = 2}, 2, 100, 7));
  EXPECT_NE(draw_job(lengths, {.batch = 2}, 2, 100, 7), draw_job(lengths, {.batch = 2}, 2, 100, 8));
}

// The bytes of an answer depend on it: mt19937_64 is the same in every library, and the shuffle is our own.
TEST(DrawnLengths, TheOrderIsFixed) {
  EXPECT_EQ(draw_job(one_to(8), {}, 1, 8, 0).front().lengths, (std::vector<std::int64_t>{5, 6, 3, 1, 8, 2, 4, 7}));
}

TEST(DrawnLengths, AnEpochHasEachSampleOnce) {
  const std::vector<DrawnRun> runs = draw_job(one_to(40), {.batch = 1}, 4, 20, 3);  // 80 samples: two epochs.
  ASSERT_EQ(runs.size(), 4U);
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::int64_t> seen;
    for (const DrawnRun& run : runs) {
      const auto begin = run.lengths.begin() + static_cast<std::ptrdiff_t>(10 * epoch);
      seen.insert(seen.end(), begin, begin + 10);
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, one_to(40)) << epoch;
  }
}

TEST(DrawnLengths, ABatchHasTheLengthOfItsLongestRow) {
  const DrawnRun run = draw_job({3, 5}, {.batch = 2}, 1, 4, 0).front();
  EXPECT_EQ(run.lengths, (std::vector<std::int64_t>(4, 5)));
  EXPECT_EQ(run.tokens, 4 * 8);
  EXPECT_EQ(run.padded, 4 * 10);
  const DrawnRun rounded = draw_job({3, 5}, {.batch = 2, .multiple = 8}, 1, 4, 0).front();
  EXPECT_EQ(rounded.lengths, (std::vector<std::int64_t>(4, 8)));
  const DrawnRun alone = draw_job({3, 5}, {.batch = 1, .pads_to_longest = true}, 1, 4, 0).front();
  EXPECT_EQ(alone.lengths, (std::vector<std::int64_t>(4, 5)));
}

TEST(DrawnLengths, AStepHasItsMicroBatches) {
  EXPECT_EQ(draw_job(one_to(9), {.batch = 1, .accumulation = 3}, 2, 5, 0).front().lengths.size(), 15U);
}

// 400 samples of batches of 2: chunks of min(400 / 8, 50) x 2 = 100 samples, each sorted; the longest of all is first.
TEST(DrawnLengths, GroupedSamplesAreSortedInChunksWithTheLongestFirst) {
  const DrawnRun run = draw_job(one_to(400), {.batch = 2, .groups_lengths = true}, 1, 200, 0).front();
  EXPECT_EQ(run.lengths.front(), 400);
  for (std::size_t chunk = 0; chunk < 4; ++chunk) {
    // The sample that made way for the longest one stands at the head of its chunk, so the second batch is the first
    // in order.
    const auto begin = run.lengths.begin() + static_cast<std::ptrdiff_t>(50 * chunk) + 1;
    EXPECT_TRUE(std::is_sorted(begin, begin + 49, std::greater<>())) << chunk;
  }
  const DrawnRun random = draw_job(one_to(400), {.batch = 2}, 1, 200, 0).front();
  EXPECT_LT(run.padded, random.padded);
  EXPECT_EQ(run.tokens, random.tokens);
}

}  // namespace
}  // namespace fsdp::planner
