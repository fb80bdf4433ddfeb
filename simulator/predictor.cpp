#include "simulator/predictor.h"

#include <deque>
#include <map>

#include "simulator/device_terms.h"
#include "simulator/prediction.h"

namespace fsdp::simulator {

struct Predictor::Impl {
  Impl(Model model_given, Cluster cluster_given)
      : model(std::move(model_given)), cluster(std::move(cluster_given)), index(index_of(model)), library(index) {}

  const MeshCosts& mesh(const Mesh& wanted) {
    for (const MeshCosts& known : meshes) {
      if (known.mesh == wanted) return known;
    }
    return meshes.emplace_back(mesh_costs(cluster, wanted));
  }

  Result<PreparedPlan> prepared(const Plan& plan) {
    if (Errors errors = check_world(plan); !errors.empty()) return tl::unexpected(std::move(errors));
    return prepare(index, cluster, plan, mesh(plan.mesh), library);
  }

  Errors check_world(const Plan& plan) const {
    if (plan.mesh.shard < 1 || plan.mesh.replicate < 1) {
      return {{"mesh", "A mesh has at least one rank in each dimension.", "Write sizes of at least 1."}};
    }
    if (plan.mesh.world_size() == world_size(cluster)) return {};
    return {{"mesh",
             "The plan is for " + std::to_string(plan.mesh.world_size()) + " ranks, the cluster has " +
                 std::to_string(world_size(cluster)) + ".",
             "Give both the same number of GPUs."}};
  }

  Model model;
  Cluster cluster;
  ModelIndex index;
  TapeLibrary library;
  std::deque<MeshCosts> meshes;
  CachingAllocator allocator;
};

Predictor::Predictor(Model model, Cluster cluster)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(cluster))) {}
Predictor::~Predictor() = default;
Predictor::Predictor(Predictor&&) noexcept = default;
Predictor& Predictor::operator=(Predictor&&) noexcept = default;

const Model& Predictor::model() const {
  return impl_->model;
}
const Cluster& Predictor::cluster() const {
  return impl_->cluster;
}

Result<Outcome> Predictor::evaluate(const Plan& plan, Detail detail) {
  FSDP_TRY(const PreparedPlan prepared, impl_->prepared(plan));
  const TimelineResult time = prepared.timeline(impl_->mesh(plan.mesh), false);
  Outcome outcome;
  outcome.step = time.step;
  outcome.compute = time.compute;
  outcome.exposed_communication = time.exposed;
  if (detail == Detail::Live) {
    LiveSink sink(prepared.ids.total);
    MemoryWalk<LiveSink> walk(prepared.short_walk_input(), sink);
    walk.initialise();
    // A steady step holds the most: what the first one holds, and the optimizer's states.
    walk.make_states();
    walk.step();
    outcome.device_lower_bound = sink.reserved_lower_bound();
    for (const DeviceTerm& term : outside_terms(impl_->cluster, plan)) outcome.device_lower_bound += term.bytes;
  }
  if (detail == Detail::Memory) {
    FSDP_TRY(const MemoryPrediction memory, predict_memory(prepared, impl_->allocator));
    outcome.peaks = memory.peaks;
    outcome.device_lower_bound = memory.peaks.device;
    outcome.margin = memory.margin;
    outcome.fits = memory.peaks.device + memory.margin <= impl_->cluster.gpu.usable_memory.value;
  }
  return outcome;
}

Result<StepReport> Predictor::report(const Plan& plan) {
  FSDP_TRY(const PreparedPlan prepared, impl_->prepared(plan));
  return build_report(prepared, impl_->mesh(plan.mesh), impl_->allocator);
}

CallCost Predictor::call_cost(const Plan& plan, int call, CheckpointMode mode) {
  const TapeSettings settings = tape_settings(impl_->model, plan, impl_->cluster.gpu);
  const TimedTape& timed = impl_->library.tape(settings, call, mode);
  return {.forward = timed.times.forward.back(),
          .backward = timed.times.backward.back(),
          .recompute = timed.times.recompute,
          .kept = Bytes(timed.tape.kept_bytes),
          .backward_peak = Bytes(timed.tape.backward_peak)};
}

Seconds Predictor::collective_time(const Mesh& mesh, MeshDimension dimension, CollectiveKind kind, Bytes total) {
  const MeshCosts& costs = impl_->mesh(mesh);
  return simulator::collective_time(dimension == MeshDimension::Shard ? costs.shard : costs.replicate, kind, total);
}

}  // namespace fsdp::simulator
