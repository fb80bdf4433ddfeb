// How many requests a second the model of the caching allocator replays.
//
// The trace is three steps of a decoder-only transformer under FSDP2, as a prediction replays it: sharded parameters,
// unsharded ones on a second stream, saved activations and temporaries, the loss, gradients on a third stream, AdamW.
// `items_per_second` counts mallocs and frees alike.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <vector>

#include "simulator/allocator/caching_allocator.h"

namespace {

using namespace fsdp;
using namespace fsdp::simulator;

struct Operation {
  std::int32_t id;
  std::int32_t stream;  ///< -1: free
  std::int64_t bytes;
};

class TraceWriter {
 public:
  std::int32_t malloc(std::int64_t bytes, std::int32_t stream = 0) {
    std::int32_t id = num_ids_;
    if (unused_.empty()) {
      ++num_ids_;
    } else {
      id = unused_.back();
      unused_.pop_back();
    }
    trace_.push_back({id, stream, bytes});
    return id;
  }
  void free(std::int32_t id) {
    trace_.push_back({id, -1, 0});
    unused_.push_back(id);
  }
  void free(const std::vector<std::int32_t>& ids) {
    for (const std::int32_t id : ids) free(id);
  }
  std::vector<Operation> take() { return std::move(trace_); }

 private:
  std::vector<Operation> trace_;
  std::vector<std::int32_t> unused_;
  std::int32_t num_ids_ = 0;
};

// The size of Qwen3-1.7B: hidden 2048, feed-forward 6144, 28 layers, batch 2 x 2048 tokens, on 8 ranks.
constexpr std::int64_t kHidden = 2048, kFeedForward = 6144, kTokens = 4096, kLayers = 28, kRanks = 8, kVocab = 151936;

/// Elements of the parameters of a layer.
std::vector<std::int64_t> layer_weights() {
  return {kHidden * kHidden,
          kHidden * kHidden / 2,
          kHidden * kHidden / 2,
          kHidden * kHidden,
          kHidden * kFeedForward,
          kHidden * kFeedForward,
          kHidden * kFeedForward,
          kHidden,
          kHidden,
          128,
          128};
}

/// Bytes that a layer keeps for its backward.
std::vector<std::int64_t> saved_by_layer() {
  return {kTokens * kHidden * 2,      kTokens * kHidden * 4,      kTokens * 4,
          kTokens * kHidden * 2,      kTokens * kHidden * 2,      kTokens * kHidden,
          kTokens * kHidden,          kTokens * kHidden * 2,      kTokens * 64,
          kTokens * kHidden * 2,      kTokens * kHidden * 4,      kTokens * kFeedForward * 2,
          kTokens * kFeedForward * 2, kTokens * kFeedForward * 2, kTokens * kFeedForward * 2,
          kTokens * kHidden * 2};
}

std::vector<Operation> training_trace(int num_steps) {
  const std::vector<std::int64_t> weights = layer_weights();
  const std::vector<std::int64_t> saved_sizes = saved_by_layer();
  std::int64_t layer = 0;
  for (const std::int64_t weight : weights) layer += weight;
  TraceWriter writer;
  for (std::int64_t l = 0; l < kLayers; ++l) {
    for (const std::int64_t weight : weights) writer.malloc(weight * 4 / kRanks);
  }
  const auto unshard = [&] {
    const std::int32_t gathered = writer.malloc(layer * 2, 1);
    std::vector<std::int32_t> parameters;
    for (const std::int64_t weight : weights) parameters.push_back(writer.malloc(weight * 2));
    writer.free(gathered);
    return parameters;
  };
  std::vector<std::int32_t> states;
  for (int step = 0; step < num_steps; ++step) {
    std::vector<std::vector<std::int32_t>> saved(kLayers);
    for (auto& activations : saved) {
      const std::vector<std::int32_t> parameters = unshard();
      for (const std::int64_t size : saved_sizes) {
        activations.push_back(writer.malloc(size));
        writer.free(writer.malloc(size * 2));
        writer.free(writer.malloc(kTokens * 4));
      }
      writer.free(parameters);
    }
    const std::int32_t logits = writer.malloc(kTokens * kVocab * 2);
    const std::int32_t softmax = writer.malloc(kTokens * kVocab * 4);
    const std::int32_t gradient = writer.malloc(kTokens * kVocab * 4);
    writer.free({logits, softmax, gradient});
    std::vector<std::int32_t> gradients;
    for (std::size_t l = kLayers; l-- > 0;) {
      const std::vector<std::int32_t> parameters = unshard();
      std::vector<std::int32_t> whole;
      for (const std::int64_t weight : weights) {
        whole.push_back(writer.malloc(weight * 2));
        writer.free(writer.malloc(kTokens * kHidden * 2));
      }
      for (const std::int32_t id : saved[l]) {
        const std::int32_t temporary = writer.malloc(kTokens * kFeedForward * 2);
        writer.free(id);
        writer.free(temporary);
      }
      const std::int32_t input = writer.malloc(layer * 2, 2);
      writer.free(whole);
      writer.free(parameters);
      gradients.push_back(writer.malloc(layer * 4 / kRanks, 2));
      writer.free(input);
    }
    for (std::int64_t l = 0; l < kLayers; ++l) {
      for (const std::int64_t weight : weights) {
        if (step == 0) {
          states.push_back(writer.malloc(weight * 4 / kRanks));
          states.push_back(writer.malloc(weight * 4 / kRanks));
        }
        writer.free(writer.malloc(weight * 4 / kRanks));
      }
    }
    writer.free(gradients);
  }
  return writer.take();
}

// No pattern at all: sizes over six orders of magnitude, `num_live` blocks on average, so that many free blocks lie
// about.
std::vector<Operation> random_trace(int num_operations, std::size_t num_live) {
  std::mt19937_64 random(1);
  TraceWriter writer;
  std::vector<std::int32_t> live;
  for (int i = 0; i < num_operations; ++i) {
    if (live.size() < num_live || random() % 2 == 0) {
      live.push_back(writer.malloc(static_cast<std::int64_t>(random() % 1000 + 1) << (random() % 15)));
    } else {
      std::swap(live[random() % live.size()], live.back());
      writer.free(live.back());
      live.pop_back();
    }
  }
  return writer.take();
}

void replay(benchmark::State& state, const std::vector<Operation>& trace, const AllocatorSettings& settings) {
  const AllocatorDevice device{.total = Bytes(1LL << 40)};
  CachingAllocator allocator;
  for (auto _ : state) {
    allocator.reset(device, settings);
    for (const Operation& operation : trace) {
      if (operation.stream < 0) {
        allocator.free(static_cast<AllocationId>(operation.id));
      } else {
        allocator.malloc(static_cast<AllocationId>(operation.id), Bytes(operation.bytes),
                         static_cast<AllocatorStream>(operation.stream));
      }
    }
    benchmark::DoNotOptimize(allocator.peak_reserved_bytes());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(trace.size()));
  state.counters["operations"] = static_cast<double>(trace.size());
  state.counters["reserved_GiB"] = static_cast<double>(allocator.peak_reserved_bytes().count()) / (1 << 30);
}

void training(benchmark::State& state) {
  replay(state, training_trace(3), {});
}
BENCHMARK(training)->Unit(benchmark::kMicrosecond);

void training_with_expandable_segments(benchmark::State& state) {
  replay(state, training_trace(3), {.expandable_segments = true});
}
BENCHMARK(training_with_expandable_segments)->Unit(benchmark::kMicrosecond);

void random_sizes(benchmark::State& state) {
  replay(state, random_trace(100'000, static_cast<std::size_t>(state.range(0))), {});
}
BENCHMARK(random_sizes)->Arg(100)->Arg(1000)->Arg(10'000)->Unit(benchmark::kMicrosecond);

// Cost of a search's return to a common beginning.
void copy_after_a_step(benchmark::State& state) {
  CachingAllocator allocator(AllocatorDevice{.total = Bytes(1LL << 40)});
  for (const Operation& operation : training_trace(1)) {
    if (operation.stream < 0) {
      allocator.free(static_cast<AllocationId>(operation.id));
    } else {
      allocator.malloc(static_cast<AllocationId>(operation.id), Bytes(operation.bytes),
                       static_cast<AllocatorStream>(operation.stream));
    }
  }
  CachingAllocator copy;
  for (auto _ : state) {
    copy = allocator;
    benchmark::DoNotOptimize(copy.reserved_bytes());
  }
}
BENCHMARK(copy_after_a_step)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
