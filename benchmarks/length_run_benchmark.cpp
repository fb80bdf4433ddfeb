// 2,000 steps of one GPU whose micro-batches are padded to lengths of their own, from the first build of a model to the
// last request: what `--lengths` adds to an answer. Target: 2 s for Llama-3.1-8B on one core.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "core/cluster/cluster_library.h"
#include "core/spec/model_spec.h"
#include "simulator/lengths/length_run.h"

namespace fsdp {
namespace {

constexpr int kSteps = 2000;
constexpr std::int64_t kLongest = 4096;

template <class T>
T must(Result<T> result) {
  if (result) return *std::move(result);
  for (const Error& error : result.error()) std::cerr << to_string(error) << "\n";
  std::exit(1);
}

Model model_at(const ModelSpec& spec, std::int64_t length) {
  Workload workload;
  workload.dimensions = {{"batch", 4}, {"seq", static_cast<double>(length)}};
  return must(build_model(spec, workload));
}

Plan usual_plan(const Model& model, const Mesh& mesh) {
  Plan plan;
  plan.mesh = mesh;
  for (const Stack& stack : model.stacks) {
    for (const int call : stack.calls) plan.units.push_back({{model.modules[model.calls[call].module].name}, {}});
  }
  plan.units.push_back({{""}, {}});
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  plan.dimensions = model.dimensions;
  return plan;
}

void run_steps(benchmark::State& state, const char* file, const char* settings, std::int64_t gibibytes) {
  const ModelSpec spec = must(read_model_spec(std::string("model_specs/") + file));
  const ClusterLibrary library = must(read_cluster_library("model_specs/clusters"));
  const Cluster cluster = must(make_cluster(must(find_gpu("H100 SXM", library.gpus, "gpu")), 8, 1));
  const Plan plan = usual_plan(model_at(spec, kLongest), {1, 8});
  std::mt19937_64 random(0);
  std::vector<std::int64_t> lengths;
  for (int step = 0; step < kSteps; ++step) lengths.push_back(1024 + static_cast<std::int64_t>(random() % 3073));
  for (auto _ : state) {
    simulator::RecordedLengths recorded(cluster, plan, 0);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      if (i >= 2 && recorded.has(lengths[i])) continue;
      must(recorded.record(lengths[i], model_at(spec, lengths[i]), i < 2).map([] { return 0; }));
    }
    simulator::LengthAllocators allocators;
    const auto run = run_lengths(recorded, lengths, must(simulator::parse_allocator_settings(settings)),
                                 {.total = Bytes(gibibytes << 30)}, allocators);
    benchmark::DoNotOptimize(run);
    state.counters["flushes"] = static_cast<double>(run.flushes);
    state.counters["steps"] = static_cast<double>(run.steps.size());
    state.counters["peak_GiB"] = static_cast<double>(run.peak_reserved.count()) / (1 << 30);
  }
}

BENCHMARK_CAPTURE(run_steps, llama3_1_8b, "llama3_1_8b.json", "", 1024)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run_steps, llama3_1_8b_expandable, "llama3_1_8b.json", "expandable_segments:True", 1024)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run_steps, llama3_1_8b_at_the_limit, "llama3_1_8b.json", "", 100)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fsdp

BENCHMARK_MAIN();
