// A run put together from pieces of several lengths against walks of one length and against the allocator.

#include "simulator/lengths/length_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/plan/plan_names.h"
#include "simulator/prepared/prediction.h"
#include "tests/support/assemble_model.h"
#include "tests/support/prepared_plan.h"

namespace fsdp::simulator {
namespace {

constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kLayers = 4;
constexpr std::int64_t kRanks = 4;

// Linears around an attention-like product, so that sizes grow with the length in more than one way.
Model model_at(std::int64_t length) {
  ModelAssembler model("chain", Dtype::Float32);
  model.input("hidden", {2, length, kWidth}, std::nullopt);
  model.input("labels", {2, length}, Dtype::Int64);
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    BlockBuilder b = model.block("layer", "Linear");
    b.output("hidden", b.linear("", b.input("hidden"), kWidth));
    model.call("layers." + std::to_string(layer), std::move(b), true);
  }
  BlockBuilder head = model.block("head", "Linear");
  head.output("logits", head.linear("", head.input("hidden"), 8 * kWidth));
  model.call("head", std::move(head));
  BlockBuilder loss = model.block("loss", "Loss");
  loss.output("loss", loss.cross_entropy(loss.input("logits"), loss.input("labels"), false));
  model.call("", std::move(loss), false, true);
  return model.finish("loss");
}

Plan plan_of(std::int64_t accumulation) {
  Plan plan;
  plan.mesh = {1, kRanks};
  for (std::int64_t layer = 0; layer < kLayers; ++layer)
    plan.units.push_back({{"layers." + std::to_string(layer)}, {}});
  plan.units.push_back({{""}, {}});
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  plan.accumulation = accumulation;
  return plan;
}

AllocatorSettings settings_of(const char* text) {
  return *parse_allocator_settings(text);
}

struct Recorded {
  Recorded(std::int64_t accumulation, const std::vector<std::int64_t>& lengths)
      : cluster(cluster_of({1, kRanks}, 90)), plan(plan_of(accumulation)), recorded(cluster, plan, 0) {
    for (const std::int64_t length : lengths) EXPECT_TRUE(recorded.record(length, model_at(length), true));
  }

  LengthRun run(const std::vector<std::int64_t>& lengths, const char* settings = "",
                Bytes device = kEndlessMemory) const {
    LengthAllocators allocators;
    return run_lengths(recorded, lengths, settings_of(settings), {.total = device}, allocators);
  }

  Cluster cluster;
  Plan plan;
  RecordedLengths recorded;
};

// The peaks of so many steps of one length, by the walk itself.
std::vector<LengthStep> walked(std::int64_t length, std::int64_t accumulation, int steps, const char* settings) {
  const PreparedRun run(model_at(length), plan_of(accumulation));
  CachingAllocator allocator({.total = kEndlessMemory}, settings_of(settings));
  AllocatorSink sink(run.prepared().ids.total, allocator);
  MemoryWalk<AllocatorSink> walk(run.prepared().walk_input(), sink);
  walk.initialize();
  walk.load_first_batch();
  std::vector<LengthStep> result;
  for (int step = 0; step < steps; ++step) {
    sink.reset_peak();
    walk.step();
    result.push_back({.allocated = sink.peak_allocated(),
                      .reserved = sink.peak_reserved(),
                      .allocated_after = allocator.allocated_bytes(),
                      .reserved_after = allocator.reserved_bytes()});
  }
  return result;
}

TEST(LengthRun, OfOneLengthIsTheWalkStepByStep) {
  for (const char* settings : {"", "expandable_segments:True", "max_split_size_mb:21"}) {
    for (const std::int64_t accumulation : {1, 2, 3}) {
      const Recorded recorded(accumulation, {500});
      const LengthRun run =
          recorded.run(std::vector<std::int64_t>(static_cast<std::size_t>(7 * accumulation), 500), settings);
      EXPECT_EQ(run.steps, walked(500, accumulation, 7, settings)) << settings << " " << accumulation;
      EXPECT_FALSE(run.is_out_of_memory);
    }
  }
}

TEST(LengthRun, RepeatsTheSecondOfManyMicroBatches) {
  const Recorded recorded(5, {500});
  const LengthRun run = recorded.run(std::vector<std::int64_t>(20, 500));
  ASSERT_EQ(run.steps.size(), 4U);
  const std::vector<LengthStep> three = walked(500, 3, 4, "");
  for (std::size_t step = 0; step < 4; ++step) {
    EXPECT_EQ(run.steps[step].allocated, three[step].allocated) << step;
    EXPECT_EQ(run.steps[step].allocated_after, three[step].allocated_after) << step;
  }
}

TEST(LengthRun, AStepAllocatesWhatItsOwnLengthDoes) {
  const std::vector<std::int64_t> lengths = {300, 1900, 700, 300, 1200, 1900, 300};
  const Recorded recorded(1, {300, 700, 1200, 1900});
  const LengthRun run = recorded.run(lengths, "expandable_segments:True");
  ASSERT_EQ(run.steps.size(), lengths.size());
  // From the third step on, all tensors between steps are there. The loader's next batch replaces the last one.
  for (std::size_t step = 2; step < lengths.size(); ++step) {
    const Bytes alone = walked(lengths[step], 1, 3, "expandable_segments:True").back().allocated;
    EXPECT_EQ(run.steps[step].allocated, alone) << step;
  }
}

TEST(LengthRun, LengthsThatDifferReserveMoreThanTheLongest) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 60; ++i) lengths.push_back(300 + 37 * (i * 29 % 60));
  const Recorded recorded(1, lengths);
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const Bytes varied = recorded.run(lengths).peak_reserved;
  const Bytes same = recorded.run(std::vector<std::int64_t>(60, longest)).peak_reserved;
  EXPECT_GT(varied, same);
  const Bytes expanded = recorded.run(lengths, "expandable_segments:True").peak_reserved;
  EXPECT_LT(expanded, varied);
}

TEST(LengthRun, PoolsAndTheWholeAllocatorAgree) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 60; ++i) lengths.push_back(300 + 37 * (i * 29 % 60));
  for (const std::int64_t accumulation : {1, 2}) {
    const Recorded recorded(accumulation, lengths);
    for (const std::string settings : {"", "expandable_segments:True"}) {
      const LengthRun by_pools = recorded.run(lengths, settings.c_str());
      // A largest split that nothing reaches takes the pools away, and changes nothing else.
      const std::string whole = settings + (settings.empty() ? "" : ",") + "max_split_size_mb:100000";
      EXPECT_EQ(by_pools, recorded.run(lengths, whole.c_str())) << settings;
    }
  }
}

TEST(LengthRun, ReturnsItsCacheAtTheLimitAndThenRunsOut) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 60; ++i) lengths.push_back(300 + 37 * (i * 29 % 60));
  const Recorded recorded(1, lengths);
  const LengthRun endless = recorded.run(lengths);
  const Bytes enough = endless.peak_reserved + Bytes(4 << 20);
  EXPECT_EQ(recorded.run(lengths, "", enough), endless);
  // With less, it survives by returning its cache; then it does not.
  const LengthRun tight = recorded.run(lengths, "", endless.peak_reserved - Bytes(2 << 20));
  EXPECT_FALSE(tight.is_out_of_memory);
  EXPECT_GT(tight.flushes, 0);
  std::int64_t sum = 0;
  for (const LengthStep& step : tight.steps) sum += step.flushes;
  EXPECT_EQ(tight.flushes, sum);
  const LengthRun out = recorded.run(lengths, "", endless.peak_allocated - Bytes(2 << 20));
  EXPECT_TRUE(out.is_out_of_memory);
  EXPECT_LT(out.steps.size(), lengths.size());
  EXPECT_GT(out.refused.requested, Bytes(0));
}

}  // namespace
}  // namespace fsdp::simulator
