#include "simulator/ops/muon_step.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace fsdp::simulator {

namespace {

// FSDP2's mesh has one dimension if there are no copies. An unsharded parameter is no DTensor, and is updated as on one
// rank.
TensorMesh mesh_of(const Layout& layout, const Cluster& cluster) {
  const std::int64_t per_node = cluster.gpus_per_node;
  if (layout.is_replicated) return {.per_node = per_node};
  if (layout.mesh.dp_replicate() == 1) return {.sizes = {layout.mesh.dp_shard(), 1}, .per_node = per_node};
  return {.dimensions = 2, .sizes = {layout.mesh.dp_replicate(), layout.mesh.dp_shard()}, .per_node = per_node};
}

}  // namespace

MuonStep muon_step(const Model& model, const Layout& layout, const Plan& plan, const Cluster& cluster) {
  MuonStep step{.mesh = mesh_of(layout, cluster)};
  step.of_parameter.assign(model.parameters.size(), -1);
  std::vector<MuonMatrix> known;
  const LaunchLimits limits = launch_limits(cluster.gpu.num_sms.value, cluster.gpu.compute_capability);
  for (std::size_t p = 0; p < model.parameters.size(); ++p) {
    const Parameter& parameter = model.parameters[p];
    if (!is_updated_by_muon(plan, parameter)) continue;
    const MuonMatrix matrix{.rows = parameter.shape.front(),
                            .columns = parameter.shape.back(),
                            .item = size_of(layout.parameter_dtype[p]).count(),
                            .nesterov = plan.optimizer.muon->nesterov,
                            .ns_steps = plan.optimizer.muon->ns_steps};
    const auto found = std::find(known.begin(), known.end(), matrix);
    step.of_parameter[p] = static_cast<int>(found - known.begin());
    if (found != known.end()) continue;
    known.push_back(matrix);
    step.updates.push_back(muon_update(matrix, step.mesh, limits));
    assert(step.updates.back().num_tensors <= kNumMuonTensors);
  }
  return step;
}

const MuonStep& MuonSteps::of(const Model& model, const Layout& layout, const Plan& plan, const Cluster& cluster) {
  Key key{.mesh = mesh_of(layout, cluster),
          .limits = launch_limits(cluster.gpu.num_sms.value, cluster.gpu.compute_capability),
          .options = *plan.optimizer.muon,
          .dtypes = layout.parameter_dtype};
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& known) { return known.key == key; });
  if (found != known_.end()) return *found->step;
  known_.push_back({std::move(key), std::make_unique<MuonStep>(muon_step(model, layout, plan, cluster))});
  return *known_.back().step;
}

}  // namespace fsdp::simulator
