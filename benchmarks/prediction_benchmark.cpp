// One full prediction (live bytes, allocator, traffic, time) of a plan: what every answer of the planner is made of.
// Targets: 1 ms for Qwen3-1.7B and for adapters of Llama-3.1-8B, 10 ms for Llama-3.1-405B on 16,384 GPUs.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <iostream>

#include "core/cluster/cluster_library.h"
#include "core/spec/model_spec.h"
#include "simulator/predictor.h"

namespace fsdp {
namespace {

template <class T>
T must(Result<T> result) {
  if (result) return *std::move(result);
  for (const Error& error : result.error()) std::cerr << to_string(error) << "\n";
  std::exit(1);
}

// Every repeated block a unit, the root around them; fp32 weights, bf16 compute, fp32 reduction.
Plan usual_plan(const Model& model, Mesh mesh) {
  Plan plan;
  plan.mesh = mesh;
  for (const Stack& stack : model.stacks) {
    for (const int call : stack.calls) {
      const int module = model.calls[call].module;
      plan.units.push_back({{model.modules[module].name}, {}});
    }
  }
  plan.units.push_back({{""}, {}});
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  return plan;
}

void predict(benchmark::State& state, const char* file, int gpus_per_node, int nodes, simulator::Detail detail,
             const Workload& workload = {}) {
  const ModelSpec spec = must(read_model_spec(std::string("model_specs/") + file));
  const ClusterLibrary library = must(read_cluster_library("model_specs/clusters"));
  const Gpu gpu = must(find_gpu("H100 SXM", library.gpus, "gpu"));
  const Cluster cluster = must(make_cluster(gpu, gpus_per_node, nodes));
  simulator::Predictor predictor(must(build_model(spec, workload)), cluster);
  Plan plan = usual_plan(predictor.model(), {1, static_cast<std::int64_t>(gpus_per_node) * nodes});
  plan.lora = workload.lora;
  for (auto _ : state) {
    const simulator::Outcome outcome = must(predictor.evaluate(plan, detail));
    benchmark::DoNotOptimize(outcome);
  }
}

BENCHMARK_CAPTURE(predict, qwen3_1_7b_on_8_gpus, "qwen3_1_7b.json", 8, 1, simulator::Detail::Memory)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(predict, qwen3_1_7b_time_only, "qwen3_1_7b.json", 8, 1, simulator::Detail::Time)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(predict, qwen3_1_7b_live_bound, "qwen3_1_7b.json", 8, 1, simulator::Detail::Live)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(predict, llama3_1_405b_on_16384_gpus, "llama3_1_405b.json", 8, 2048, simulator::Detail::Memory)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(predict, llama3_1_405b_on_64_gpus, "llama3_1_405b.json", 8, 8, simulator::Detail::Memory)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(predict, llama3_1_8b_with_lora_on_8_gpus, "llama3_1_8b.json", 8, 1, simulator::Detail::Memory,
                  Workload{.lora = LoraOptions{.r = 16}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(predict, qwen3_30b_a3b_on_64_gpus, "qwen3_30b_a3b.json", 8, 8, simulator::Detail::Memory)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fsdp

BENCHMARK_MAIN();
