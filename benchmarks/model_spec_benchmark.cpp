// Cost of reading a model spec and building its model: part of every run of the planner.

#include <benchmark/benchmark.h>

#include <string>

#include "core/spec/model_spec.h"

namespace {

/// Reads and builds model_specs/<file>, as a command does. Run in the project's root.
void read_and_build(benchmark::State& state, const std::string& file) {
  for (auto _ : state) {
    const auto spec = fsdp::read_model_spec("model_specs/" + file);
    if (!spec) {
      state.SkipWithError(to_string(spec.error().front()).c_str());
      return;
    }
    const auto model = fsdp::build_model(*spec);
    if (!model) {
      state.SkipWithError(to_string(model.error().front()).c_str());
      return;
    }
    benchmark::DoNotOptimize(model->parameters.data());
  }
}

BENCHMARK_CAPTURE(read_and_build, qwen3_1_7b, "qwen3_1_7b.json")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(read_and_build, qwen3_tts, "qwen3_tts.json")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(read_and_build, llama3_1_405b, "llama3_1_405b.json")->Unit(benchmark::kMillisecond);
// 6,144 experts with three parameters each: names are all that costs here.
BENCHMARK_CAPTURE(read_and_build, qwen3_30b_a3b, "qwen3_30b_a3b.json")->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
