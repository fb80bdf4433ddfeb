#include "tests/support/prepared_plan.h"

#include <cstdlib>
#include <iostream>

namespace fsdp::simulator {

Cluster cluster_of(const Mesh& mesh, int compute_capability) {
  Cluster cluster;
  cluster.gpu.compute_capability = compute_capability;
  cluster.gpu.fp32 = cluster.gpu.fp16 = cluster.gpu.bf16 = Sourced<FlopsPerSecond>{FlopsPerSecond(1e15)};
  cluster.gpu.achievable_compute.value = cluster.gpu.achievable_bandwidth.value = 1;
  cluster.gpu.memory_bandwidth.value = BytesPerSecond(1e12);
  cluster.gpu.num_sms.value = compute_capability == 75 ? 40 : 132;  // T4 and H100.
  cluster.gpus_per_node = static_cast<int>(mesh.world_size());
  cluster.intra_node.bandwidth.value = BytesPerSecond(1e10);
  return cluster;
}

PreparedRun::PreparedRun(Model model, const Plan& plan, int compute_capability, std::int64_t rank)
    : model_(std::move(model)),
      index_(index_of(model_)),
      library_(index_),
      cluster_(cluster_of(plan.mesh, compute_capability)) {
  auto prepared = prepare(index_, cluster_, plan, mesh_costs(cluster_, plan.mesh), library_, rank);
  if (!prepared) {
    for (const Error& error : prepared.error()) std::cerr << to_string(error) << "\n";
    std::abort();
  }
  prepared_ = *std::move(prepared);
}

}  // namespace fsdp::simulator
