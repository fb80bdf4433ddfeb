#include "runs/find_batch.h"

#include <gtest/gtest.h>

namespace fsdp::runs {
namespace {

/// A script that needs a unit of memory for each sample, on a GPU with room for so many.
TryBatch room_for(std::int64_t samples) {
  return [samples](std::int64_t batch) {
    return BatchTrial{.batch = batch, .fits = batch <= samples, .device_peak = Bytes(batch)};
  };
}

TEST(FindBatch, FindsTheLargestBatchOfAnySize) {
  for (std::int64_t samples = 1; samples <= 300; ++samples) {
    const BatchSearch search = find_largest_batch(room_for(samples), 1024);
    ASSERT_EQ(search.largest, samples);
    // 2 log2(1024) + 2, and each batch once.
    EXPECT_LE(search.trials.size(), 22U);
    for (std::size_t i = 1; i < search.trials.size(); ++i) {
      EXPECT_LT(search.trials[i - 1].batch, search.trials[i].batch);
    }
  }
}

TEST(FindBatch, NothingLargerThanTheLimitIsTried) {
  EXPECT_EQ(find_largest_batch(room_for(5000), 1000).largest, 1000);
  EXPECT_EQ(find_largest_batch(room_for(5000), 1).largest, 1);
}

TEST(FindBatch, OneBatchIsTriedIfNoneFits) {
  const BatchSearch search = find_largest_batch(room_for(0), 1024);
  EXPECT_EQ(search.largest, std::nullopt);
  EXPECT_EQ(search.trials.size(), 1U);
}

TEST(FindBatch, GivingUpReturnsTheLargestSoFar) {
  const BatchSearch search = find_largest_batch(
      [](std::int64_t batch) {
        return batch > 4 ? std::nullopt : std::optional(BatchTrial{.batch = batch, .fits = true});
      },
      1024);
  EXPECT_TRUE(search.given_up);
  EXPECT_EQ(search.largest, 4);
}

/// What is said of the search as a whole.
std::string said_of(const BatchSearch& search) {
  text::Document document;
  add_batches(document, search);
  return std::get<text::Entry>(document.front()).lines.front();
}

TEST(FindBatch, FailedRehearsalIsNotReportedAsTooLarge) {
  const BatchTrial fits{.batch = 1, .fits = true, .device_peak = Bytes(1)};
  const BatchTrial too_large{.batch = 2, .device_peak = Bytes(2)};
  const BatchTrial lost{.batch = 2, .why = "Rank 1: no data"};
  EXPECT_EQ(said_of({.trials = {fits, too_large}, .largest = 1}),
            "1 is the largest batch that fits; 2 does not · 2 rehearsals");
  EXPECT_EQ(said_of({.trials = {fits, lost}, .largest = 1}),
            "1 is the largest batch that fits; 2 could not be rehearsed · 2 rehearsals");
  EXPECT_EQ(said_of({.trials = {too_large}}), "No batch fits, not even 1 · 1 rehearsal");
  EXPECT_EQ(said_of({.trials = {lost}}), "No batch is known to fit; 1 could not be rehearsed · 1 rehearsal");
  EXPECT_EQ(said_of({.given_up = true}), "No batch was tried to the end · 0 rehearsals");
}

TEST(FindBatch, NumberReplacesThePattern) {
  EXPECT_EQ(batch_words("--batch-size {}  --bs={}", 12).value(),
            (std::vector<std::string>{"--batch-size", "12", "--bs=12"}));
  EXPECT_EQ(batch_words("--batch-size", 12).error().front().where, "--find-batch");
  EXPECT_EQ(batch_words("--batch-size", 12, "--batch-option").error().front().where, "--batch-option");
}

}  // namespace
}  // namespace fsdp::runs
