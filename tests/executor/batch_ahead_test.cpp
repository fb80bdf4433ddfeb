#include "executor/training/batch_ahead.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

namespace fsdp::executor {
namespace {

/// One tensor with the number of its first sample.
Tensors batch_of(const BatchPlace& place) {
  return {at::full({1}, place.sample, c10::kLong)};
}

std::int64_t sample_in(const Tensors& batch) {
  return batch.at(0).item<std::int64_t>();
}

TEST(BatchAhead, PrefetchedBatchIsUsed) {
  std::atomic<int> made = 0;
  BatchAhead batches([&](const BatchPlace& place) {
    ++made;
    return batch_of(place);
  });
  EXPECT_EQ(sample_in(batches.take({0, 8})), 8);
  batches.begin({1, 16});
  EXPECT_EQ(sample_in(batches.take({1, 16})), 16);
  EXPECT_EQ(made, 2);
}

// As after reading a checkpoint: the run continues elsewhere.
TEST(BatchAhead, PrefetchedBatchIsNotUsedForAnotherPlace) {
  BatchAhead batches(batch_of);
  batches.begin({1, 16});
  EXPECT_EQ(sample_in(batches.take({5, 80})), 80);
  EXPECT_EQ(sample_in(batches.take({1, 16})), 16);
}

TEST(BatchAhead, OneBatchIsMadeAtATime) {
  std::atomic<int> at_once = 0;
  BatchAhead batches([&](const BatchPlace& place) {
    EXPECT_EQ(++at_once, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    --at_once;
    return batch_of(place);
  });
  batches.begin({0, 0});
  batches.begin({1, 1});
  EXPECT_EQ(sample_in(batches.take({2, 2})), 2);
}

TEST(BatchAhead, ErrorsAreThrownOnlyByRequestsForTheirBatch) {
  BatchAhead batches([](const BatchPlace& place) -> Tensors {
    if (place.sample > 3) throw std::runtime_error("token 9 is 1000");
    return batch_of(place);
  });
  batches.begin({0, 4});
  EXPECT_EQ(sample_in(batches.take({0, 1})), 1);
  batches.begin({0, 4});
  EXPECT_THROW(batches.take({0, 4}), std::runtime_error);
  batches.begin({0, 5});  // Never requested.
}

}  // namespace
}  // namespace fsdp::executor
