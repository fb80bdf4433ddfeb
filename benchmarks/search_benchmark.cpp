// How long the whole default search takes: model building, bounds, predictions, proof, report, remedies.
//
//   Qwen3-TTS 1.7B on 4 GPUs of 16 GB        the headline command
//   Llama-3.1-405B on 16,384 H100            the largest one
//
// `front` adds the Pareto front of memory against time. The counters say how often the predictor was asked.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "core/cluster/cluster_library.h"
#include "planner/predicted_cost.h"
#include "planner/predictors.h"
#include "planner/search.h"

namespace fsdp::planner {
namespace {

template <class T>
T value_or_exit(Result<T> result) {
  if (result) return *std::move(result);
  for (const Error& error : result.error()) std::fprintf(stderr, "%s\n", to_string(error).c_str());
  std::exit(1);
}

struct Question {
  ModelSpec spec;
  Workload workload;
  Cluster cluster;
  Space space;
};

Question question(const std::string& file, const std::string& gpu, int gpus_per_node, int nodes, Bytes memory) {
  const ClusterLibrary library = value_or_exit(read_cluster_library("model_specs/clusters"));
  ClusterOverrides overrides;
  if (memory > Bytes(0)) overrides.memory = memory;
  Question q;
  q.spec = value_or_exit(read_model_spec("model_specs/" + file));
  q.cluster = value_or_exit(
      make_cluster(value_or_exit(find_gpu(gpu, library.gpus, "benchmark")), gpus_per_node, nodes, overrides));
  q.space.base = value_or_exit(base_plan(q.spec, q.workload));
  q.space.pareto_points = 0;
  return q;
}

Question qwen3_tts() {
  return question("qwen3_tts.json", "L4", 4, 1, Bytes(16LL << 30));
}

Question llama3_1_405b() {
  return question("llama3_1_405b.json", "H100 SXM", 8, 2048, Bytes(0));
}

void search_all(benchmark::State& state, const Question& q) {
  Proof proof;
  for (auto _ : state) {
    SearchResult result = value_or_exit(search(q.spec, q.workload, q.cluster, q.space));
    proof = result.proof;
    benchmark::DoNotOptimize(result);
  }
  state.counters["space"] = static_cast<double>(proof.space);
  state.counters["predicted"] = static_cast<double>(proof.evaluated);
}

/// The search for the best plan alone, without report and remedies.
void search_best(benchmark::State& state, const Question& q) {
  PredictedCost::Asked asked;
  for (auto _ : state) {
    Predictors predictors = value_or_exit(Predictors::make(q.spec, q.workload, q.cluster, {0}));
    const Families families = value_or_exit(families_of(q.space, predictors.of(0).model(), q.cluster));
    PredictedCost cost(q.space.base, families,
                       [&](std::int64_t micro_batch) -> simulator::Predictor& { return predictors.of(micro_batch); });
    BranchAndBound search(cost, Objective::Time);
    benchmark::DoNotOptimize(search.next(budget_of(q.cluster).count()));
    asked = cost.asked();
  }
  state.counters["time"] = static_cast<double>(asked.time);
  state.counters["live"] = static_cast<double>(asked.live);
  state.counters["memory"] = static_cast<double>(asked.memory);
}

void Qwen3TtsOn4Gpus(benchmark::State& state) {
  search_all(state, qwen3_tts());
}
void Qwen3TtsOn4GpusWithFront(benchmark::State& state) {
  Question q = qwen3_tts();
  q.space.pareto_points = 8;
  search_all(state, q);
}
void Qwen3TtsOn4GpusBestPlanOnly(benchmark::State& state) {
  search_best(state, qwen3_tts());
}
void Llama405bOn16384Gpus(benchmark::State& state) {
  search_all(state, llama3_1_405b());
}
void Llama405bOn16384GpusBestPlanOnly(benchmark::State& state) {
  search_best(state, llama3_1_405b());
}

BENCHMARK(Qwen3TtsOn4Gpus)->Unit(benchmark::kMillisecond);
BENCHMARK(Qwen3TtsOn4GpusWithFront)->Unit(benchmark::kMillisecond);
BENCHMARK(Qwen3TtsOn4GpusBestPlanOnly)->Unit(benchmark::kMillisecond);
BENCHMARK(Llama405bOn16384Gpus)->Unit(benchmark::kMillisecond);
BENCHMARK(Llama405bOn16384GpusBestPlanOnly)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fsdp::planner

BENCHMARK_MAIN();
