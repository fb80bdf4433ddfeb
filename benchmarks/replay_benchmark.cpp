// How many operations a second `fsdp-plan replay` does: reading the text of a trace, replaying it, and both; and
// reading a memory snapshot.
//
// The trace is like that of a training loop: in every step the layers of a model each save some tensors of recurring
// sizes and use temporaries, and the way back frees them. A million operations. `items_per_second` counts them.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "replay/replay.h"

namespace {

using namespace fsdp;

constexpr std::int64_t kKiB = 1 << 10;
constexpr std::size_t kNumOperations = 1'000'000;

/// With ids as a recording has them: every request its own number.
std::string training_text() {
  constexpr std::int64_t kSaved[] = {16384, 8192, 32, 4096, 4096, 16384, 128, 24576, 24576, 8192};
  constexpr std::int64_t kTemporaries[] = {32768, 512, 49152, 16};
  std::string text = "!device_bytes 1099511627776\n";
  std::size_t num_operations = 0;
  std::int64_t id = 0;
  const auto malloc = [&](std::int64_t kibibytes, int stream) {
    text += "alloc " + std::to_string(id) + " " + std::to_string(kibibytes * kKiB + 17) + " " + std::to_string(stream) +
            "\n";
    ++num_operations;
    return id++;
  };
  const auto free = [&](std::int64_t which) {
    text += "free " + std::to_string(which) + "\n";
    ++num_operations;
  };
  while (num_operations < kNumOperations) {
    std::vector<std::int64_t> saved;
    for (int layer = 0; layer < 32; ++layer) {
      const std::int64_t gathered = malloc(90'000, 1);
      for (const std::int64_t size : kSaved) {
        saved.push_back(malloc(size, 0));
        free(malloc(kTemporaries[saved.size() % 4], 0));
      }
      free(gathered);
    }
    while (!saved.empty()) {
      const std::int64_t temporary = malloc(kTemporaries[saved.size() % 4], 0);
      free(saved.back());
      saved.pop_back();
      free(temporary);
    }
  }
  return text;
}

const std::string& text_of_trace() {
  static const std::string text = training_text();
  return text;
}

const replay::Recording& recording() {
  static const replay::Recording read = *replay::read_recorded_trace(text_of_trace(), "trace");
  return read;
}

void count(benchmark::State& state) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(recording().trace.steps.size()));
}

void read_text(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(simulator::read_allocator_trace(text_of_trace(), "trace"));
  count(state);
}
BENCHMARK(read_text)->Unit(benchmark::kMillisecond);

void replay_steps(benchmark::State& state) {
  replay::ReplayRequest request = replay::as_recorded(recording());
  request.settings.expandable_segments = state.range(0) != 0;
  for (auto _ : state) benchmark::DoNotOptimize(replay::replay(recording(), request));
  count(state);
}
BENCHMARK(replay_steps)->ArgName("expandable")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void read_and_replay_text(benchmark::State& state) {
  for (auto _ : state) {
    const Result<replay::Recording> read = replay::read_recorded_trace(text_of_trace(), "trace");
    benchmark::DoNotOptimize(replay::replay(*read, replay::as_recorded(*read)));
  }
  count(state);
}
BENCHMARK(read_and_replay_text)->Unit(benchmark::kMillisecond);

void replay_with_every_line(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(simulator::replay_to_text(recording().trace, recording().text));
  count(state);
}
BENCHMARK(replay_with_every_line)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
