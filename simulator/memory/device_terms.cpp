#include "simulator/memory/device_terms.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/plan/torch_version.h"
#include "core/plan/zero_quantization.h"
#include "simulator/allocator/allocator_settings.h"
#include "simulator/nccl/group_shape.h"
#include "simulator/nccl/nccl_memory.h"

namespace fsdp::simulator {

std::vector<DeviceTerm> outside_terms(const Cluster& cluster, const Plan& plan) {
  if (cluster.gpu.compute_capability == 0) return {};
  const auto& context = cluster.gpu.context;
  std::vector<DeviceTerm> terms = {{"CUDA context", context.value, context.provenance, context.source}};
  // The norm of clipped gradients is all-reduced over the shard group.
  const bool clips = plan.optimizer.clip_grad_norm.has_value();
  const int shard = static_cast<int>(plan.mesh.shard);
  const int replicate = static_cast<int>(plan.mesh.replicate);
  const int neighbors = static_cast<int>(std::min(plan.zero.hpz_partition_size, plan.mesh.shard));
  std::vector<NcclCommunicator> communicators = {{"shard group", shard_group(cluster, shard), clips},
                                                 {"replicate group", replicate_group(cluster, replicate, shard), true},
                                                 {"hpZ group", shard_group(cluster, neighbors), false}};
  // Its connections are taken to need what those of the shard group do.
  if (plan.separate_reduce_scatter_group) {
    communicators.push_back({"reduce-scatter group", shard_group(cluster, shard), false});
  }
  if (exchanges_gradients(plan, cluster.gpus_per_node)) {
    communicators.push_back({"node group", shard_group(cluster, cluster.gpus_per_node), false});
    communicators.push_back(
        {"group over nodes", replicate_group(cluster, shard / cluster.gpus_per_node, cluster.gpus_per_node), false});
  }
  for (const NcclCommunicator& communicator : communicators) {
    for (DeviceTerm& term : nccl_memory(communicator)) terms.push_back(std::move(term));
  }
  return terms;
}

Bytes margin(Bytes reserved, const std::vector<DeviceTerm>& terms, const Plan& plan, const MarginRule& rule) {
  const auto settings = parse_allocator_settings(plan.runtime.allocator_settings);
  const bool expandable_segments = settings && settings->expandable_segments;
  const double share = (expandable_segments ? rule.of_reserved_expandable : rule.of_reserved) +
                       torch_version_of(plan.runtime).reserved_beyond;
  double bytes = share * static_cast<double>(reserved.count());
  for (const DeviceTerm& term : terms) {
    if (term.provenance != Provenance::Measured) bytes += rule.of_unmeasured * static_cast<double>(term.bytes.count());
  }
  return Bytes(static_cast<std::int64_t>(bytes));
}

Bytes cublas_workspace(int compute_capability) {
  if (compute_capability == 0) return Bytes(0);
  return compute_capability == 90 ? Bytes(32LL << 20) : Bytes(8519680);
}

}  // namespace fsdp::simulator
