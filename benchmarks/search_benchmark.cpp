// How long whole answers take, asked as the command asks: reading, bounds, predictions, proof, report, suggestions.
//
//   Qwen3-TTS 1.7B on 4 GPUs of 16 GB        the headline command
//   the same with 2 GiB                      no plan fits: the whole space is searched
//   Qwen3-30B-A3B on 8 A100                  tens of thousands of parameters
//   Llama-3.1-405B on 16,384 H100            the largest one
//
// `verdict` asks for the best plan alone, as --quiet does; `answer` also for the front and for suggestions. The
// counters say how many plans there are and how many were predicted in full. benchmarks/search_speed times the command
// for every model.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "planner/advice/explained_search.h"
#include "planner/request/plan_request.h"
#include "planner/search/search.h"

namespace fsdp::planner {
namespace {

template <class T>
T value_or_exit(Result<T> result) {
  if (result) return *std::move(result);
  for (const Error& error : result.error()) std::fprintf(stderr, "%s\n", to_string(error).c_str());
  std::exit(1);
}

PlanRequest qwen3_tts(std::int64_t gib) {
  return {.model = "qwen3_tts", .choices = {.gpus = 4, .memory = Bytes(gib << 30)}};
}

PlanRequest on(const char* model, const char* gpu, int gpus, int nodes) {
  PlanRequest request{.model = model, .choices = {}};
  request.choices.gpu_name = gpu;
  request.choices.gpus = gpus;
  request.choices.nodes = nodes;
  return request;
}

void search_all(benchmark::State& state, const PlanRequest& request, bool is_whole) {
  Proof proof;
  for (auto _ : state) {
    ResolvedRequest resolved = value_or_exit(resolve(request, "model_specs"));
    if (!is_whole) resolved.space.pareto_points = 0;
    resolved.space.explain = is_whole;
    SearchOptions options;
    options.larger_gpus = resolved.larger_gpus;
    const SearchResult result =
        value_or_exit(search(resolved.spec, resolved.workload, resolved.cluster, resolved.space, options));
    proof = result.proof;
    benchmark::DoNotOptimize(result);
  }
  state.counters["space"] = static_cast<double>(proof.space);
  state.counters["predicted"] = static_cast<double>(proof.evaluated);
}

void verdict(benchmark::State& state, const PlanRequest& request) {
  search_all(state, request, false);
}
void answer(benchmark::State& state, const PlanRequest& request) {
  search_all(state, request, true);
}

#define FSDP_SEARCH(name, ...)                                                  \
  BENCHMARK_CAPTURE(verdict, name, __VA_ARGS__)->Unit(benchmark::kMillisecond); \
  BENCHMARK_CAPTURE(answer, name, __VA_ARGS__)->Unit(benchmark::kMillisecond)

FSDP_SEARCH(qwen3_tts_on_4_gpus, qwen3_tts(16));
FSDP_SEARCH(qwen3_tts_where_nothing_fits, qwen3_tts(2));
FSDP_SEARCH(qwen3_30b_a3b_on_8_gpus, on("qwen3_30b_a3b", "A100 80GB SXM", 8, 1));
FSDP_SEARCH(llama3_1_405b_on_16384_gpus, on("llama3_1_405b", "H100 SXM", 8, 2048));

}  // namespace
}  // namespace fsdp::planner

BENCHMARK_MAIN();
