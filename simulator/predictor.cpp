#include "simulator/predictor.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "core/frameworks/layout.h"
#include "core/plan/gradient_clearing.h"
#include "simulator/curves/curve_builder.h"
#include "simulator/memory/device_terms.h"
#include "simulator/memory/drive_report.h"
#include "simulator/memory/host_memory.h"
#include "simulator/phases/evaluation.h"
#include "simulator/phases/job_phases.h"
#include "simulator/phases/other_models.h"
#include "simulator/prepared/host_of_others.h"
#include "simulator/prepared/layout_cache.h"
#include "simulator/prepared/prediction.h"

namespace fsdp::simulator {

namespace {

/// Work of the parts of a prediction, in steps of some 25 ns: measured on models of 150 to 19,000 parameters.
constexpr std::int64_t kWorkOfRequest = 2;      ///< A request for memory, with its free.
constexpr std::int64_t kWorkOfParameter = 100;  ///< Expanding a spec by one parameter and finding it by name.
constexpr std::int64_t kWorkOfLaidOut = 8;      ///< Each parameter of a layout.
constexpr std::int64_t kWorkOfInstruction = 4;  ///< Lowering one instruction.
constexpr std::int64_t kWorkOfTimed = 2;        ///< One instruction of a timeline.

}  // namespace

struct Predictor::Impl {
  Impl(Model model_given, Cluster cluster_given)
      : model(std::move(model_given)),
        cluster(std::move(cluster_given)),
        index(index_of(model)),
        library(index),
        layouts(index),
        others(model, cluster),
        work(kWorkOfParameter * static_cast<std::int64_t>(model.parameters.size())) {}

  const MeshCosts& mesh(const Mesh& wanted) {
    for (const MeshCosts& known : meshes) {
      if (known.mesh == wanted) return known;
    }
    return meshes.emplace_back(simulator::mesh_costs(cluster, wanted));
  }

  Result<PreparedPlan> prepared(Plan plan, std::int64_t rank = 0, PreparedFor use = PreparedFor::Everything) {
    if (Errors errors = check_world(plan); !errors.empty()) return tl::unexpected(std::move(errors));
    // Shard groups are neighbors: the mesh counts replicas first.
    FSDP_TRY(Layout layout, layouts.take(plan, plan.mesh.coordinate_of(MeshAxis::DpShard, rank)));
    FSDP_TRY(const PreparedOthers* beside, others.of(plan, layout.rank));
    const MeshCosts& costs = mesh(plan.mesh);
    auto result = prepare(index, cluster, std::move(plan), std::move(layout), costs, library, use, beside);
    if (result) work += kWorkOfInstruction * num_instructions(*result) + static_cast<std::int64_t>(model.calls.size());
    return result;
  }

  static std::int64_t num_instructions(const PreparedPlan& prepared) {
    return static_cast<std::int64_t>(prepared.schedule.instructions.size() +
                                     prepared.first_schedule.instructions.size());
  }

  TimelineResult time(const PreparedPlan& prepared, TimelineDetail* detail = nullptr) {
    work += kWorkOfTimed * num_instructions(prepared);
    return prepared.timeline(mesh(prepared.plan.mesh), detail);
  }

  /// Includes the new layouts.
  std::int64_t all_work() const {
    return work + kWorkOfLaidOut * layouts.num_laid_out() + kWorkOfRequest * (live.num_events() + others.work());
  }

  /// The same plan, seen from another rank of the shard group.
  Result<void> see_from(PreparedPlan& prepared, std::int64_t rank) {
    simulator::see_from(prepared, rank, library);
    FSDP_TRY(prepared.others, others.of(prepared.plan, rank));
    return {};
  }

  /// Returns the reusable parts of a plan that is no longer needed.
  void give_back(PreparedPlan& prepared) { layouts.give_back(prepared.plan, std::move(prepared.layout)); }

  Result<void> live_bytes(Plan asked, Outcome& outcome) {
    FSDP_TRY(PreparedPlan short_plan, prepared(std::move(asked), 0, PreparedFor::Bound));
    const Plan& plan = short_plan.plan;
    live.reset(short_plan.ids.total);
    WalkInput input = short_plan.walk_input();
    const bool is_fsdp2 = !short_plan.layout.is_replicated && !short_plan.layout.has_flat_units();
    if (is_fsdp2) input.sums = &layouts.sums(short_plan.plan, short_plan.layout);
    MemoryWalk<LiveSink> walk(input, live);
    walk.initialize();
    // A steady step needs most: everything that the first one holds, and the optimizer's states.
    walk.make_states();
    walk.step();
    if (begins_with_gradients(model, plan)) walk.step();
    give_back(short_plan);
    outcome.device_lower_bound = live.reserved_lower_bound();
    const auto settings = parse_allocator_settings(plan.runtime.allocator_settings);
    const bool has_plain_pools = settings && pools_suffice(*settings);
    outcome.pools_lower_bound = has_plain_pools ? live.pools_lower_bound() : outcome.device_lower_bound;
    outcome.own_lower_bound =
        has_plain_pools ? live.segments_lower_bound(settings->large_segment_size) : outcome.device_lower_bound;
    outcome.allocated_lower_bound = live.allocated_lower_bound();
    for (const DeviceTerm& term : outside_terms(cluster, plan)) {
      outcome.allocated_lower_bound += term.bytes;
      outcome.device_lower_bound += term.bytes;
      outcome.pools_lower_bound += term.bytes;
      outcome.own_lower_bound += term.bytes;
    }
    return {};
  }

  Result<MemoryPrediction> walk(const PreparedPlan& prepared, Bytes enough) {
    Result<MemoryPrediction> prediction = predict_memory(prepared, pools, allocator, enough);
    if (prediction) work += kWorkOfRequest * prediction->work;
    return prediction;
  }

  /// The need of one rank. Stops above `enough`. Leaves the plan seen from that rank.
  Result<MemoryPrediction> walk_from(PreparedPlan& prepared, std::int64_t rank, Bytes enough) {
    if (prepared.layout.rank != rank) {
      if (auto seen = see_from(prepared, rank); !seen) return tl::unexpected(std::move(seen).error());
    }
    return walk(prepared, enough);
  }

  /// The need of rank 0, with the reserved memory of the rank that needs most. Stops above `enough`. Starts with the
  /// rank that needed most for the plan before; if that is above `too_large`, skips the others. Leaves the plan seen
  /// from one of them.
  Result<MemoryPrediction> walk_ranks(PreparedPlan& prepared, Bytes enough, Bytes too_large) {
    const std::vector<std::int64_t> ranks = different_ranks(prepared.layout);
    std::optional<MemoryPrediction> of_suspect;
    const bool may_be_too_large = std::min(enough, too_large) < kEndlessMemory;
    if (may_be_too_large && suspect > 0 && std::find(ranks.begin(), ranks.end(), suspect) != ranks.end()) {
      FSDP_TRY(of_suspect, walk_from(prepared, suspect, enough));
      if (of_suspect->peaks.device + of_suspect->margin > too_large) of_suspect->is_whole = false;
      if (!of_suspect->is_whole) return *std::move(of_suspect);
    }
    FSDP_TRY(MemoryPrediction memory, walk_from(prepared, 0, enough));
    std::int64_t worst = 0;
    for (const std::int64_t rank : ranks) {
      if (!memory.is_whole) break;
      if (rank == 0) continue;
      std::optional<MemoryPrediction> other = rank == suspect ? std::move(of_suspect) : std::nullopt;
      if (!other) {
        FSDP_TRY(other, walk_from(prepared, rank, enough));
      }
      if (other->peaks.device + other->margin <= memory.peaks.device + memory.margin) continue;
      memory.peaks.reserved = other->peaks.reserved;
      memory.peaks.device = other->peaks.device;
      memory.margin = other->margin;
      memory.held = other->held;
      memory.is_whole = other->is_whole;
      worst = rank;
    }
    suspect = worst;
    return memory;
  }

  /// The most flushes of any rank to stay within the device. Leaves the plan seen from one of them.
  Result<CacheFlushes> flush_ranks(PreparedPlan& prepared, const std::vector<DeviceTerm>& outside) {
    CacheFlushes most;
    for (const std::int64_t rank : different_ranks(prepared.layout)) {
      if (prepared.layout.rank != rank) {
        if (auto seen = see_from(prepared, rank); !seen) return tl::unexpected(std::move(seen).error());
      }
      work += kWorkOfRequest * prepared.ids.total;
      FSDP_TRY(const CacheFlushes flushes, count_flushes(prepared, outside, allocator));
      if (flushes.total < 0) return flushes;
      if (flushes.step_time > most.step_time || most.total == 0) most = flushes;
    }
    return most;
  }

  /// Whether an allocator with the device's limit survives if the peak is above it.
  Result<CacheFlushes> flushes_of(PreparedPlan& prepared, const MemoryPrediction& memory, Detail detail) {
    const bool is_asked = detail == Detail::Tight && memory.is_whole;
    if (!is_asked || memory.peaks.device <= cluster.gpu.usable_memory.value) return CacheFlushes{.total = -1};
    return flush_ranks(prepared, memory.outside);
  }

  Result<void> fill_in(PreparedPlan& prepared, Detail detail, Bytes enough, Bytes too_large, Outcome& outcome) {
    const Bytes inputs = checkpointed_inputs(prepared.tapes);
    if (const auto host = host_memory_with_others(prepared, inputs)) {
      outcome.host_missing = host->missing();
    }
    FSDP_TRY(const MemoryPrediction memory, walk_ranks(prepared, enough, too_large));
    FSDP_TRY(const CacheFlushes flushes, flushes_of(prepared, memory, detail));
    outcome.peaks = memory.peaks;
    outcome.device_lower_bound = memory.peaks.device;
    outcome.margin = memory.margin;
    outcome.is_whole = memory.is_whole;
    const auto drive = drive_report(cluster, prepared.plan, prepared.layout, prepared.schedule);
    outcome.flush_time = flushes.step_time;
    outcome.device = verdict_of({.budget = cluster.gpu.usable_memory.value,
                                 .peak = memory.peaks.device,
                                 .margin = memory.margin,
                                 .held = memory.held,
                                 .flushes = flushes.total});
    outcome.needed = memory.peaks.device + memory.margin;
    if (detail == Detail::Tight && memory.is_whole) {
      const Bytes budget = cluster.gpu.usable_memory.value;
      const bool runs = outcome.device.verdict == Verdict::Fits;
      outcome.needed = runs ? std::min(memory.peaks.device, budget) : std::max(memory.peaks.device, budget + Bytes(1));
    }
    outcome.fits = memory.is_whole && outcome.device.has_room() && outcome.host_missing == Bytes(0) &&
                   (!drive || drive->missing() == Bytes(0));
    return {};
  }

  Result<std::int64_t> worst_rank(const Plan& plan) {
    FSDP_TRY(PreparedPlan short_plan, prepared(plan, 0, PreparedFor::Walk));
    const std::vector<std::int64_t> ranks = different_ranks(short_plan.layout);
    if (ranks.size() == 1) {
      give_back(short_plan);
      return 0;
    }
    std::int64_t worst = 0;
    Bytes most(-1);
    for (const std::int64_t rank : ranks) {
      if (auto seen = see_from(short_plan, rank); !seen) return tl::unexpected(std::move(seen).error());
      FSDP_TRY(const MemoryPrediction memory, walk(short_plan, kEndlessMemory));
      const Bytes needed = memory.peaks.device + memory.margin;
      if (needed <= most) continue;
      most = needed;
      worst = rank;
    }
    give_back(short_plan);
    return worst;
  }

  /// The requested rank, or the worst one.
  Result<std::int64_t> rank_of(const Plan& plan, std::optional<std::int64_t> rank) {
    if (!rank) return worst_rank(plan);
    if (Errors errors = check_rank(*rank, cluster); !errors.empty()) return tl::unexpected(std::move(errors));
    return *rank;
  }

  Errors check_world(const Plan& plan) const {
    if (plan.mesh.dp_shard() < 1 || plan.mesh.dp_replicate() < 1) {
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
  LayoutCache layouts;
  OtherModels others;
  std::deque<MeshCosts> meshes;
  CachingAllocator allocator;
  LiveSink live;
  PoolSink pools;
  std::int64_t work = 0;
  std::int64_t suspect = 0;  // The rank that needed most for the plan before.
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
const ModelIndex& Predictor::index() const {
  return impl_->index;
}
const Cluster& Predictor::cluster() const {
  return impl_->cluster;
}

Result<Outcome> Predictor::evaluate(Plan plan, Detail detail, Bytes enough, Bytes too_large) {
  Outcome outcome;
  if (detail == Detail::Live) {
    if (const auto walked = impl_->live_bytes(std::move(plan), outcome); !walked) return tl::unexpected(walked.error());
    return outcome;
  }
  if (detail == Detail::Device || detail == Detail::Tight) {
    FSDP_TRY(PreparedPlan prepared, impl_->prepared(std::move(plan), 0, PreparedFor::Walk));
    const auto filled = impl_->fill_in(prepared, detail, enough, too_large, outcome);
    if (!filled) return tl::unexpected(filled.error());
    impl_->give_back(prepared);
    return outcome;
  }
  const PreparedFor use = detail == Detail::Time ? PreparedFor::Times : PreparedFor::Everything;
  FSDP_TRY(PreparedPlan prepared, impl_->prepared(std::move(plan), 0, use));
  const TimelineResult time = impl_->time(prepared);
  outcome.step = time.step;
  outcome.compute = time.compute;
  outcome.exposed_communication = time.exposed;
  if (detail == Detail::Memory) {
    const auto filled = impl_->fill_in(prepared, detail, enough, too_large, outcome);
    if (!filled) return tl::unexpected(filled.error());
  }
  impl_->give_back(prepared);
  return outcome;
}

std::int64_t Predictor::work() const {
  return impl_->all_work();
}

Result<StepTimeline> Predictor::timeline(const Plan& plan) {
  FSDP_TRY(PreparedPlan prepared, impl_->prepared(plan, 0, PreparedFor::Times));
  TimelineDetail detail;
  const TimelineResult time = impl_->time(prepared, &detail);
  impl_->give_back(prepared);
  return StepTimeline{.step = time.step,
                      .compute = time.compute,
                      .exposed_communication = time.exposed,
                      .events = std::move(detail.events)};
}

Result<std::int64_t> Predictor::worst_rank(const Plan& plan) {
  return impl_->worst_rank(plan);
}

Result<StepReport> Predictor::report(const Plan& plan, std::optional<std::int64_t> wanted) {
  FSDP_TRY(const std::int64_t rank, impl_->rank_of(plan, wanted));
  FSDP_TRY(PreparedPlan prepared, impl_->prepared(plan));
  // All ranks wait for the one that updates most, which is the first: its step is the step, even if another rank needs
  // most memory.
  const TimelineResult timeline = impl_->time(prepared);
  if (const std::int64_t of_group = plan.mesh.coordinate_of(MeshAxis::DpShard, rank); of_group > 0) {
    if (auto seen = impl_->see_from(prepared, of_group); !seen) return tl::unexpected(std::move(seen).error());
  }
  FSDP_TRY(StepReport report, build_report(prepared, impl_->mesh(plan.mesh), timeline, impl_->pools, impl_->allocator));
  impl_->give_back(prepared);
  report.memory.rank = rank;
  if (wanted.value_or(0) > 0) {
    report.assumptions.push_back("Memory and verdict are those of rank " + std::to_string(rank) + ", number " +
                                 std::to_string(plan.mesh.coordinate_of(MeshAxis::DpShard, rank)) +
                                 " of its shard group; another may need more.");
  } else if (!wanted && rank > 0) {
    report.assumptions.push_back("Memory is that of rank " + std::to_string(rank) + ", which needs the most.");
  }
  return report;
}

Result<std::vector<JobPhaseNeed>> Predictor::job_phases(const StepReport& report, std::optional<Model> evaluation) {
  FSDP_TRY(PreparedPlan prepared, impl_->prepared(report.plan));
  const std::int64_t rank = report.plan.mesh.coordinate_of(MeshAxis::DpShard, report.memory.rank);
  if (rank > 0) {
    if (auto seen = impl_->see_from(prepared, rank); !seen) return tl::unexpected(std::move(seen).error());
  }
  const std::string why_not = why_no_evaluation(impl_->model, report.plan);
  std::unique_ptr<EvaluationForward> forward;
  if (why_not.empty()) {
    forward = std::make_unique<EvaluationForward>(evaluation ? *std::move(evaluation) : impl_->model, prepared);
  }
  auto phases = simulator::job_phases(prepared, report.memory, forward.get(), why_not);
  impl_->give_back(prepared);
  return phases;
}

Result<StepCurves> Predictor::curves(const Plan& plan, std::optional<std::int64_t> wanted) {
  FSDP_TRY(const std::int64_t rank, impl_->rank_of(plan, wanted));
  FSDP_TRY(PreparedPlan prepared, impl_->prepared(plan, rank));
  return build_curves(std::move(prepared), impl_->mesh(plan.mesh), impl_->allocator, impl_);
}

CallCost least_of(const CallCost& a, const CallCost& b) {
  return {.forward = std::min(a.forward, b.forward),
          .backward = std::min(a.backward, b.backward),
          .recompute = std::min(a.recompute, b.recompute),
          .kept = std::min(a.kept, b.kept),
          .backward_peak = std::min(a.backward_peak, b.backward_peak),
          .kept_pools = least_of(a.kept_pools, b.kept_pools),
          .peak_pools = least_of(a.peak_pools, b.peak_pools),
          .times = a.times,
          .times_beside = a.times_beside};
}

std::vector<CallCost> Predictor::call_costs(const Plan& plan, const std::vector<CheckpointMode>& modes) {
  const TapeSettings settings = tape_settings(impl_->model, plan, impl_->cluster);
  const TapeLibrary::Shelf& shelf = impl_->library.shelf(settings);
  const auto cost_of = [&](int call, CheckpointMode mode) -> CallCost {
    const TimedTape& timed = impl_->library.tape(shelf, settings.checkpointing, call, mode);
    return {.forward = timed.times.forward.back(),
            .backward = timed.times.backward.back(),
            .recompute = timed.times.recompute,
            .kept = Bytes(timed.tape.kept_bytes),
            .backward_peak = Bytes(timed.tape.backward_peak),
            .kept_pools = timed.tape.kept_pools,
            .peak_pools = timed.tape.peak_pools,
            .times = &timed.times};
  };
  std::vector<CallCost> costs;
  for (std::size_t c = 0; c < modes.size(); ++c) {
    CallCost cost = cost_of(static_cast<int>(c), modes[c]);
    const Call& of = impl_->model.calls[c];
    if (is_recorded_beside_checkpoints(impl_->model.blocks[of.block], of, settings.rules.activation)) {
      const CallCost beside = cost_of(static_cast<int>(c), CheckpointMode::Full);
      cost = least_of(cost, beside);
      cost.times_beside = beside.times;
    }
    costs.push_back(cost);
  }
  return costs;
}

const Layout& Predictor::layout(const Plan& plan) {
  return impl_->layouts.look(plan);
}

const MeshCosts& Predictor::mesh_costs(const Mesh& mesh) {
  return impl_->mesh(mesh);
}

}  // namespace fsdp::simulator
