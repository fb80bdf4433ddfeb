// Cost of a collective's cost model: once for a process group, then for each size. Neither may grow with the ranks.

#include "simulator/nccl/collective_cost.h"

#include <benchmark/benchmark.h>

#include "simulator/nccl/nccl_memory.h"

namespace fsdp::simulator {
namespace {

GroupShape h100(int nodes) {
  return {.ranks = nodes * 8,
          .ranks_per_node = 8,
          .nodes = nodes,
          .gpus_per_node = 8,
          .compute_capability = 90,
          .intra_link = IntraLink::NvSwitch,
          .nvlink_bandwidth = BytesPerSecond(450e9),
          .pcie_generation = 5,
          .nic_bandwidth = BytesPerSecond(50e9)};
}

void build_the_cost_of_a_group(benchmark::State& state) {
  const GroupShape shape = h100(static_cast<int>(state.range(0)) / 8);
  for (auto _ : state) benchmark::DoNotOptimize(collective_cost(shape));
}
BENCHMARK(build_the_cost_of_a_group)->Arg(8)->Arg(16384)->Unit(benchmark::kMicrosecond);

void ask_for_the_time_of_one_size(benchmark::State& state) {
  const CollectiveCost cost = collective_cost(h100(static_cast<int>(state.range(0)) / 8));
  std::int64_t bytes = 4096;
  for (auto _ : state) {
    benchmark::DoNotOptimize(collective_time(cost, CollectiveKind::AllGather, Bytes(bytes)));
    bytes = (bytes * 5 + 7) & 0x3fffffff;
  }
}
BENCHMARK(ask_for_the_time_of_one_size)->Arg(8)->Arg(16384)->Unit(benchmark::kNanosecond);

void device_memory_of_a_communicator(benchmark::State& state) {
  const NcclCommunicator communicator{.name = "shard group", .shape = h100(2048), .all_reduce = true};
  for (auto _ : state) benchmark::DoNotOptimize(nccl_memory(communicator));
}
BENCHMARK(device_memory_of_a_communicator)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace fsdp::simulator

BENCHMARK_MAIN();
