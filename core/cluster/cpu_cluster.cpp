#include "core/cluster/cpu_cluster.h"

#include <algorithm>
#include <thread>

namespace fsdp {

namespace {

template <class T>
Sourced<T> assumed(T value) {
  return {.value = value, .provenance = Provenance::Assumed, .source = "a core of a server, by order of magnitude"};
}

Gpu cpu_as_gpu(Bytes memory) {
  Gpu gpu;
  gpu.name = "CPU";
  gpu.architecture = "x86-64";
  gpu.compute_capability = 0;
  gpu.num_sms = assumed(1);
  gpu.l2_cache = assumed(Bytes(2 << 20));
  gpu.shared_memory_per_block = assumed(Bytes(0));
  gpu.shared_memory_per_sm = assumed(Bytes(0));
  gpu.memory = assumed(memory);
  gpu.usable_memory = assumed(memory);
  gpu.memory_bandwidth = assumed(BytesPerSecond(1e10));
  gpu.fp32 = assumed(FlopsPerSecond(5e10));
  gpu.bf16 = assumed(FlopsPerSecond(5e10));
  gpu.fp16 = assumed(FlopsPerSecond(5e10));
  gpu.achievable_compute = assumed(0.5);
  gpu.achievable_bandwidth = assumed(0.5);
  gpu.context = assumed(Bytes(0));
  gpu.intra_node = {.kind = IntraLink::PcieHost,
                    .bandwidth = assumed(BytesPerSecond(2e9)),
                    .latency = assumed(Seconds(50e-6)),
                    .bus_bandwidth = assumed(BytesPerSecond(1e9))};
  gpu.host_link.bandwidth = assumed(BytesPerSecond(1e10));
  gpu.network.nic_bandwidth = assumed(BytesPerSecond(1e9));
  gpu.network.latency = assumed(Seconds(50e-6));
  return gpu;
}

}  // namespace

Cluster cpu_cluster(int ranks, Bytes memory) {
  Cluster cluster;
  cluster.gpu = cpu_as_gpu(Bytes(memory.count() / ranks));
  cluster.name = "CPU";
  cluster.gpus_per_node = ranks;
  cluster.nodes = 1;
  cluster.intra_node = cluster.gpu.intra_node;
  cluster.host_link = cluster.gpu.host_link;
  cluster.network = cluster.gpu.network;
  return cluster;
}

int num_cores() {
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

int threads_of_rank(std::int64_t ranks) {
  return static_cast<int>(std::max<std::int64_t>(1, num_cores() / std::max<std::int64_t>(1, ranks)));
}

}  // namespace fsdp
