#include "simulator/predictor.h"

#include <algorithm>
#include <deque>
#include <map>

#include "simulator/curve_builder.h"
#include "simulator/device_terms.h"
#include "simulator/prediction.h"

namespace fsdp::simulator {

namespace {

/// Where only the walk is asked for: it needs no more micro-batches than these.
Plan shortened(Plan plan) {
  plan.accumulation = std::min(plan.accumulation, kNumMicroBatches);
  return plan;
}

}  // namespace

struct Predictor::Impl {
  Impl(Model model_given, Cluster cluster_given)
      : model(std::move(model_given)), cluster(std::move(cluster_given)), index(index_of(model)), library(index) {}

  const MeshCosts& mesh(const Mesh& wanted) {
    for (const MeshCosts& known : meshes) {
      if (known.mesh == wanted) return known;
    }
    return meshes.emplace_back(mesh_costs(cluster, wanted));
  }

  Result<PreparedPlan> prepared(const Plan& plan, std::int64_t rank = 0, PreparedFor use = PreparedFor::Everything) {
    if (Errors errors = check_world(plan); !errors.empty()) return tl::unexpected(std::move(errors));
    // Shard groups are neighbours: the mesh counts replicas first.
    return prepare(index, cluster, plan, mesh(plan.mesh), library, rank % plan.mesh.shard, use);
  }

  Result<Bytes> live_bytes(const Plan& plan) {
    const std::vector<DeviceTerm> outside = outside_terms(cluster, plan);
    FSDP_TRY(const PreparedPlan short_plan, prepared(shortened(plan)));
    LiveSink sink(short_plan.ids.total);
    MemoryWalk<LiveSink> walk(short_plan.walk_input(), sink);
    walk.initialise();
    // A steady step holds the most: what the first one holds, and the optimizer's states.
    walk.make_states();
    walk.step();
    Bytes bytes = sink.reserved_lower_bound();
    for (const DeviceTerm& term : outside) bytes += term.bytes;
    return bytes;
  }

  void fill_in(const MemoryPrediction& memory, Outcome& outcome) const {
    outcome.peaks = memory.peaks;
    outcome.device_lower_bound = memory.peaks.device;
    outcome.margin = memory.margin;
    outcome.is_whole = memory.is_whole;
    outcome.fits = memory.peaks.device + memory.margin <= cluster.gpu.usable_memory.value;
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
  ReservedSink reserved;
};

Errors check_rank(std::int64_t rank, const Cluster& cluster) {
  if (rank >= 0 && rank < world_size(cluster)) return {};
  return {{"--rank",
           "There is no rank " + std::to_string(rank) + " in a world of " + std::to_string(world_size(cluster)) + ".",
           "Ranks are counted from 0: write one from 0 to " + std::to_string(world_size(cluster) - 1) + "."}};
}

Predictor::Predictor(Model model, Cluster cluster)
    : impl_(std::make_shared<Impl>(std::move(model), std::move(cluster))) {}
Predictor::~Predictor() = default;
Predictor::Predictor(Predictor&&) noexcept = default;
Predictor& Predictor::operator=(Predictor&&) noexcept = default;

const Model& Predictor::model() const {
  return impl_->model;
}
const Cluster& Predictor::cluster() const {
  return impl_->cluster;
}

Result<Outcome> Predictor::evaluate(const Plan& plan, Detail detail, Bytes enough) {
  Outcome outcome;
  if (detail == Detail::Live) {
    FSDP_TRY(outcome.device_lower_bound, impl_->live_bytes(plan));
    return outcome;
  }
  if (detail == Detail::Device) {
    FSDP_TRY(const PreparedPlan prepared, impl_->prepared(shortened(plan)));
    FSDP_TRY(const MemoryPrediction memory, predict_reserved(prepared, impl_->reserved, impl_->allocator, enough));
    impl_->fill_in(memory, outcome);
    return outcome;
  }
  const PreparedFor use = detail == Detail::Time ? PreparedFor::Times : PreparedFor::Everything;
  FSDP_TRY(const PreparedPlan prepared, impl_->prepared(plan, 0, use));
  const TimelineResult time = prepared.timeline(impl_->mesh(plan.mesh), false);
  outcome.step = time.step;
  outcome.compute = time.compute;
  outcome.exposed_communication = time.exposed;
  if (detail == Detail::Memory) {
    FSDP_TRY(const MemoryPrediction memory, predict_memory(prepared, impl_->allocator, enough));
    impl_->fill_in(memory, outcome);
  }
  return outcome;
}

Result<StepReport> Predictor::report(const Plan& plan, std::int64_t rank) {
  if (Errors errors = check_rank(rank, impl_->cluster); !errors.empty()) return tl::unexpected(std::move(errors));
  FSDP_TRY(const PreparedPlan prepared, impl_->prepared(plan, rank));
  FSDP_TRY(StepReport report, build_report(prepared, impl_->mesh(plan.mesh), impl_->allocator));
  if (rank > 0) {
    report.assumptions.push_back("Memory is that of rank " + std::to_string(rank) + ", number " +
                                 std::to_string(rank % plan.mesh.shard) + " of its shard group.");
  }
  return report;
}

Result<StepCurves> Predictor::curves(const Plan& plan, std::int64_t rank) {
  if (Errors errors = check_rank(rank, impl_->cluster); !errors.empty()) return tl::unexpected(std::move(errors));
  FSDP_TRY(PreparedPlan prepared, impl_->prepared(plan, rank));
  return build_curves(std::move(prepared), impl_->mesh(plan.mesh), impl_->allocator, impl_);
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
