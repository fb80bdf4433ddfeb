#include "simulator/prepared/prediction.h"

#include <algorithm>
#include <array>

#include "core/frameworks/ddp/ddp_buckets.h"
#include "core/frameworks/layout.h"
#include "core/frameworks/lower.h"
#include "core/frameworks/zero/zero_nvme.h"
#include "core/plan/framework_traits.h"
#include "core/plan/input_casts.h"
#include "core/plan/loss_table.h"
#include "simulator/memory/device_terms.h"
#include "simulator/ops/gradient_hooks.h"
#include "simulator/time/float8_times.h"

namespace fsdp::simulator {

namespace {

Result<AllocatorSettings> settings_of(const Plan& plan) {
  return parse_allocator_settings(plan.runtime.allocator_settings);
}

template <class Sink>
MemoryPeaks peaks_of(const Sink& sink, Bytes outside) {
  return {.live = sink.peak_live(),
          .allocated = sink.peak_allocated(),
          .reserved = sink.peak_reserved(),
          .device = sink.peak_reserved() + outside};
}

MemoryPeaks highest(const MemoryPeaks& a, const MemoryPeaks& b) {
  return {std::max(a.live, b.live), std::max(a.allocated, b.allocated), std::max(a.reserved, b.reserved),
          std::max(a.device, b.device)};
}

Bytes sum_of(const std::vector<DeviceTerm>& terms) {
  Bytes sum;
  for (const DeviceTerm& term : terms) sum += term.bytes;
  return sum;
}

/// The most reserved memory for which the device peak and its margin stay within `enough`. The margin grows with the
/// reserved memory, so this is a bisection.
Bytes most_reserved(Bytes enough, const std::vector<DeviceTerm>& outside, const Plan& plan) {
  if (enough >= kEndlessMemory) return kEndlessMemory;
  std::int64_t within = -1;
  std::int64_t above = std::max<std::int64_t>(0, enough.count()) + 1;
  while (above - within > 1) {
    const std::int64_t middle = within + (above - within) / 2;
    const bool is_within = Bytes(middle) + sum_of(outside) + margin(Bytes(middle), outside, plan) <= enough;
    (is_within ? within : above) = middle;
  }
  return Bytes(within);
}

// A CPU has one memory, so offload moves nothing. The optimizer is the loop that PyTorch uses there.
std::optional<Plan> plan_of_memory(const Plan& plan, const Cluster& cluster) {
  if (!plan.cpu_offload || cluster.gpu.compute_capability != 0) return std::nullopt;
  Plan walked = plan;
  walked.cpu_offload = false;
  OptimizerImplementation& implementation = walked.optimizer.implementation;
  if (implementation == OptimizerImplementation::Foreach) implementation = OptimizerImplementation::ForLoop;
  return walked;
}

// Reserved memory of initialization and the steps, if memory in use by other streams returns as late as possible.
template <class Sink>
void walk_all_steps(const PreparedPlan& prepared, Sink& sink) {
  MemoryWalk<Sink> walk(prepared.short_walk_input(), sink);
  walk.initialize();
  walk.load_first_batch();
  for (int step = 0; step < kNumSteps && (step == 0 || !sink.has_enough()); ++step) walk.step();
}

// Emptying the cache returns pages of expandable segments, which pools cannot do.
bool can_use_pools(const PreparedPlan& prepared, const AllocatorSettings& settings) {
  return pools_suffice(settings) && !(settings.expandable_segments && prepared.layout.gathers_by_module());
}

// Segments of pools never return to the device, and an expandable one never ends.
bool is_beyond_pools(const PoolSink& pools) {
  return pools.peak_reserved() > Bytes(std::int64_t{1} << 42);
}

/// A request to the whole model of the allocator takes as long as this many of a pool.
constexpr std::int64_t kWorkOfAllocator = 12;

Bytes reserved_while_held(const PreparedPlan& prepared, const AllocatorSettings& settings, PoolSink& pools,
                          CachingAllocator& allocator, Bytes enough, std::int64_t& work) {
  if (can_use_pools(prepared, settings)) {
    const std::int64_t before = pools.num_requests();
    pools.reset(prepared.ids.total, settings, enough, true);
    walk_all_steps(prepared, pools);
    work += pools.num_requests() - before;
    if (!is_beyond_pools(pools)) return pools.peak_reserved();
  }
  allocator.reset({.total = kEndlessMemory, .progress = StreamProgress::OnDemand}, settings);
  AllocatorSink sink(prepared.ids.total, allocator, enough, true);
  walk_all_steps(prepared, sink);
  work += kWorkOfAllocator * sink.num_requests();
  return allocator.peak_reserved_bytes();
}

// True if freed memory may be in use on another stream. ZeRO-1 and 2 free such memory for gradients that are larger
// than a bucket.
bool uses_other_streams(const PreparedPlan& prepared) {
  if (prepared.cluster->gpu.compute_capability == 0) return false;
  if (prepared.layout.has_flat_units()) return true;
  if (!prepared.layout.updates_parts() || !prepared.plan.zero.overlap_comm) return false;
  if (prepared.layout.gathers_by_module()) return true;
  const std::vector<Parameter>& all = prepared.index->model->parameters;
  const auto is_large = [&](int p) { return num_elements(all[p].shape) > prepared.plan.zero.reduce_bucket_size; };
  const std::vector<int>& trained = prepared.layout.zero.parameters;
  return std::any_of(trained.begin(), trained.end(), is_large);
}

// The margin of a whole prediction, with its part for memory that other streams hold.
void add_margin(const PreparedPlan& prepared, const AllocatorSettings& settings, PoolSink& pools,
                CachingAllocator& allocator, Bytes enough, MemoryPrediction& result) {
  result.margin = margin(result.peaks.reserved, result.outside, prepared.plan) + convolution_workspace(prepared);
  if (!result.is_whole || !uses_other_streams(prepared)) return;
  const Bytes rest = sum_of(result.outside) + result.margin;
  const Bytes most = enough >= kEndlessMemory ? kEndlessMemory : enough - rest;
  const Bytes reserved = reserved_while_held(prepared, settings, pools, allocator, most, result.work);
  result.held = std::max(Bytes(0), reserved - result.peaks.reserved);
  result.margin += result.held;
  result.is_whole = reserved <= most;
}

}  // namespace

namespace {

// On a CPU the ranks share cores and memory, so only a measurement with as many ranks applies.
void take_machine(const Gpu& gpu, std::int64_t ranks, ComputeCosts& costs) {
  const bool is_cpu = gpu.compute_capability == 0;
  const MachineTables* tables = gpu.machine.of_ranks(ranks);
  if (tables == nullptr && !is_cpu && !gpu.machine.empty()) tables = &gpu.machine.tables().back();
  if (tables == nullptr) return;
  costs.machine = gpu.machine;
  costs.ranks = tables->ranks;
  costs.on_host = is_cpu;
  if (is_cpu) costs.launch = Seconds(0);
  if (tables->launch_microseconds) costs.launch = Seconds(1e-6 * *tables->launch_microseconds);
}

}  // namespace

namespace {

// As MemoryWalk requests them (simulator/memory/memory_walk_calls.h).
KeptWorkspaces kept_workspaces(CublasWorkspaces workspaces) {
  switch (workspaces) {
    case CublasWorkspaces::Kept:
    case CublasWorkspaces::Shared:
      return {true, true};
    case CublasWorkspaces::LtPerCall:
      return {true, false};
    case CublasWorkspaces::PerCall:
      return {false, false};
  }
  return {};
}

}  // namespace

namespace {

// The module above a parameter, or the parameter's own, that a unit below the root wraps.
bool is_in_a_unit(const Plan& plan, const Model& model, const Parameter& parameter) {
  for (int m = parameter.module; m > 0; m = model.modules[static_cast<std::size_t>(m)].parent) {
    const std::string& name = model.modules[static_cast<std::size_t>(m)].name;
    for (const Unit& unit : plan.units) {
      if (std::find(unit.modules.begin(), unit.modules.end(), name) != unit.modules.end()) return true;
    }
  }
  return false;
}

std::optional<Dtype> head_reduces_in(const Model& model, const Plan& plan) {
  if (!loss_row(plan.runtime.implementations.loss).calls_head) return std::nullopt;
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[static_cast<std::size_t>(call.block)].ops) {
      if (op.kind != OpKind::LinearCrossEntropy) continue;
      const auto p = static_cast<std::size_t>(call.parameters[static_cast<std::size_t>(op.parameters.front())]);
      const Parameter& head = model.parameters[p];
      if (!is_in_a_unit(plan, model, head)) return std::nullopt;
      const MixedPrecision& precision = plan.mixed_precision;
      const Dtype own = plan.parameter_dtype && head.trainable ? *plan.parameter_dtype : head.dtype;
      const bool follows = plan.runtime.quirks.reduces_in_parameter_dtype;
      return precision.reduce_dtype.value_or(follows ? own : precision.param_dtype.value_or(own));
    }
  }
  return std::nullopt;
}

// Outside of their own forward the sharded weights of a unit of FSDP2 are in the dtype that the optimizer has.
bool has_units_of_adapters(const Plan& plan) {
  if (!traits_of(plan).casts_inputs || traits_of(plan).has_flat_parameters) return false;
  if (!plan.mixed_precision.param_dtype || !plan.mixed_precision.cast_forward_inputs) return false;
  const auto is_of_adapter = [](const Unit& unit) {
    return std::any_of(unit.modules.begin(), unit.modules.end(),
                       [](const std::string& module) { return module.find(".lora_A") != std::string::npos; });
  };
  return std::any_of(plan.units.begin(), plan.units.end(), is_of_adapter);
}

}  // namespace

TapeSettings tape_settings(const Model& model, const Plan& plan, const Cluster& cluster, std::int64_t rank) {
  const Gpu& gpu = cluster.gpu;
  TapeSettings settings;
  settings.rules = {.activation = activation_dtype(model, plan),
                    .implementations = implementations_of(plan),
                    .compute_capability = gpu.compute_capability,
                    .num_sms = gpu.num_sms.value};
  settings.rules.head_reduces_in = head_reduces_in(model, plan);
  settings.rules.expert_parallel = plan.mesh.ep;
  settings.rules.casts_inputs_of_experts =
      plan.mesh.ep > 1 && plan.mixed_precision.param_dtype && plan.mixed_precision.cast_forward_inputs;
  settings.rules.head_casts_each_part = plan.runtime.quirks.casts_gradients_as_they_come;
  settings.checkpointing = plan.checkpointing;
  settings.checkpointing.entries.clear();
  settings.costs = compute_costs(cluster, compute_dtype(model, plan), settings.rules.implementations);
  take_machine(gpu, plan.mesh.world_size(), settings.costs);
  settings.workspaces = gpu.kernel_workspaces.get();
  settings.cast_inputs = inputs_cast_by_root(model, plan);
  settings.kept_workspaces = kept_workspaces(plan.runtime.quirks.cublas_workspaces);
  const MixedPrecision& precision = plan.mixed_precision;
  settings.rules.autocast = precision.autocast;
  settings.rules.float_outputs = precision.float_outputs;
  if (precision.float_outputs) settings.rules.returned = precision.output_dtype;
  if (has_units_of_adapters(plan)) settings.rules.trained = plan.parameter_dtype;
  const bool gathers_each_read = traits_of(plan).gathers_each_read;
  // Beside a policy autocast finds parameters in param_dtype.
  const bool casts_parameters = precision.autocast && !precision.param_dtype;
  if (!gathers_each_read && !casts_parameters) return settings;
  for (const Parameter& parameter : model.parameters) {
    settings.parameter_dtypes.push_back(stored_dtype(plan, parameter));
    if (casts_parameters && parameter.trainable && !settings.rules.trained) {
      settings.rules.trained = settings.parameter_dtypes.back();
    }
  }
  if (!gathers_each_read) return settings;
  settings.rules.reads = {.shard = plan.mesh.dp_shard(),
                          .replicate = plan.mesh.dp_replicate(),
                          .rank = rank,
                          .precision = plan.mixed_precision};
  return settings;
}

WalkInput PreparedPlan::walk_input() const {
  return {.index = index,
          .plan = walked ? &*walked : &plan,
          .layout = &layout,
          .schedule = &schedule,
          .first_schedule = first_schedule.instructions.empty() ? nullptr : &first_schedule,
          .second_schedule = second_schedule.instructions.empty() ? nullptr : &second_schedule,
          .tapes = &tapes,
          .ids = &ids,
          .cublas_workspace = cublas_workspace(cluster->gpu.compute_capability),
          .reduce_scatter_receives_parts = cluster->gpu.compute_capability == 0,
          .activation = activation,
          .use_cache = use_cache,
          .limits = launch_limits(cluster->gpu.num_sms.value, cluster->gpu.compute_capability),
          .gpus_per_node = cluster->gpus_per_node,
          .muon = muon,
          .others = others != nullptr ? &others->walks : nullptr};
}

WalkInput PreparedPlan::short_walk_input() const {
  WalkInput input = walk_input();
  if (!short_schedule.instructions.empty()) input.schedule = &short_schedule;
  if (!short_first_schedule.instructions.empty()) input.first_schedule = &short_first_schedule;
  if (!short_second_schedule.instructions.empty()) input.second_schedule = &short_second_schedule;
  return input;
}

namespace {

// A search requests this for every plan, and only one kind of plan has the map.
Seconds used_map_time(const PreparedPlan& prepared, const MeshCosts& mesh) {
  if (!prepared.layout.keeps_buckets() || !prepared.plan.ddp.find_unused_parameters) return Seconds(0);
  return collective_time(mesh.replicate, CollectiveKind::AllReduce, used_map_bytes(*prepared.index->model));
}

// A collective that waits for its turn takes nothing from compute.
std::array<double, 3> compute_shares(const MeshCosts& mesh, const ComputeCosts& costs) {
  if (!costs.on_host) return {};
  const double share = costs.tables()->compute_share;
  const auto of = [&](const CollectiveCost& group, CollectiveKind kind) {
    return share * group.busy[static_cast<std::size_t>(kind)];
  };
  return {of(mesh.shard, CollectiveKind::AllGather), of(mesh.shard, CollectiveKind::ReduceScatter),
          of(mesh.replicate, CollectiveKind::AllReduce)};
}

}  // namespace

TimelineInput PreparedPlan::timeline_input(const MeshCosts& mesh) const {
  return {.index = index,
          .layout = &layout,
          .schedule = &schedule,
          .calls = &times,
          .units = &unit_times,
          .buckets = &bucket_times,
          .fetches = &fetch_times,
          .sync_buffers = layout.is_replicated ? sync_buffers_time(*index->model, mesh, costs) : Seconds(0),
          .used_map = used_map_time(*this, mesh),
          .zero = zero_times(*index->model, layout, plan, mesh, costs),
          .overlaps_buckets = !layout.updates_parts() || plan.zero.overlap_comm,
          .optimizer = optimizer_time(layout, plan, mesh, costs) + (muon ? muon_time(*muon, mesh, costs) : Seconds(0)) +
                       float8_scales_time(layout, plan, mesh.shard, costs),
          .clip = clip_time(layout, plan, mesh, costs),
          .launch = costs.launch,
          .on_host = costs.on_host ? &on_host : nullptr,
          .compute_shares = compute_shares(mesh, costs),
          .limits_gathers = layout.has_flat_units() && layout.mesh.dp_shard() > 1 && plan.fsdp1.limit_all_gathers,
          .reduces_apart = plan.separate_reduce_scatter_group,
          .copies_kept = layout.has_flat_units() && plan.cpu_offload,
          .experts = &mesh.experts,
          .others = others != nullptr ? &others->times : nullptr};
}

TimelineResult PreparedPlan::timeline(const MeshCosts& mesh, TimelineDetail* detail) const {
  return lay_out(timeline_input(mesh), detail);
}

std::optional<TimelineDetail> PreparedPlan::first_step_timeline(const MeshCosts& mesh) const {
  if (first_schedule.instructions.empty()) return std::nullopt;
  const Model& model = *index->model;
  const std::vector<FetchTimes> fetches =
      simulator::fetch_times(model, layout, plan, first_schedule, mesh, *cluster, costs);
  std::vector<Seconds> host;
  if (costs.on_host) host = host_times(first_schedule, model, layout, plan, costs);
  std::vector<BucketTimes> buckets = bucket_times;
  for (const BucketTimes& first :
       simulator::bucket_times(layout.first_buckets, model, layout, plan, mesh, *cluster, costs)) {
    buckets.push_back(first);
  }
  TimelineInput input = timeline_input(mesh);
  input.schedule = &first_schedule;
  input.buckets = &buckets;
  input.fetches = &fetches;
  if (costs.on_host) input.on_host = &host;
  TimelineDetail detail;
  lay_out(input, &detail);
  return detail;
}

Result<PreparedPlan> prepare(const ModelIndex& index, const Cluster& cluster, const Plan& plan, const MeshCosts& mesh,
                             TapeLibrary& library, std::int64_t rank, PreparedFor use) {
  FSDP_TRY(Layout layout, make_layout(index, plan, rank));
  return prepare(index, cluster, plan, std::move(layout), mesh, library, use);
}

namespace {

/// [num_calls] The tapes that a plan plays: those of calls that it checkpoints, and of calls that were recorded beside
/// such.
std::vector<CheckpointMode> modes_of_tapes(const ModelIndex& index, const Plan& plan, Dtype activation) {
  std::vector<CheckpointMode> modes = checkpoint_modes(index, plan.checkpointing);
  const auto is_plain = [](CheckpointMode mode) { return mode == CheckpointMode::None; };
  if (std::all_of(modes.begin(), modes.end(), is_plain)) return modes;
  for (std::size_t c = 0; c < modes.size(); ++c) {
    const Call& call = index.model->calls[c];
    const Block& block = index.model->blocks[call.block];
    if (is_recorded_beside_checkpoints(block, call, activation)) modes[c] = CheckpointMode::Full;
  }
  return modes;
}

// The tapes of all calls with their durations. Errors: PyTorch refuses to run the call.
Errors take_tapes(PreparedPlan& prepared, const TapeSettings& settings, TapeLibrary& library) {
  const ModelIndex& index = *prepared.index;
  const Plan& plan = prepared.plan;
  prepared.tapes.clear();
  prepared.times.clear();
  const std::vector<CheckpointMode> modes = modes_of_tapes(index, plan, settings.rules.activation);
  const std::vector<std::vector<Span>> hooks = hooks_inside_calls(index, hooked_passes(index, prepared.layout));
  Errors errors;
  const TapeLibrary::Shelf& shelf = library.shelf(settings);
  for (std::size_t c = 0; c < modes.size(); ++c) {
    const TimedTape& timed = library.tape(shelf, settings.checkpointing, static_cast<int>(c), modes[c],
                                          hooks.empty() ? std::vector<Span>{} : hooks[c]);
    const auto is_known = [&](const Error& error) { return error == *timed.refusal; };
    if (timed.refusal && std::none_of(errors.begin(), errors.end(), is_known)) errors.push_back(*timed.refusal);
    for (const std::string& call : timed.tape.unmeasured) {
      const auto& known = prepared.unmeasured;
      if (std::find(known.begin(), known.end(), call) == known.end()) prepared.unmeasured.push_back(call);
    }
    prepared.tapes.push_back(&timed.tape);
    prepared.times.push_back(&timed.times);
  }
  return errors;
}

MemoryIds ids_of(const PreparedPlan& prepared) {
  std::vector<int> num_storages;
  for (const Tape* tape : prepared.tapes) num_storages.push_back(tape->num_storages);
  const int first = prepared.others != nullptr ? prepared.others->num_ids : 0;
  return number_tensors(*prepared.index->model, prepared.plan, prepared.layout, num_storages, first);
}

}  // namespace

void see_from(PreparedPlan& prepared, std::int64_t rank, TapeLibrary& library) {
  see_from(prepared.layout, rank);
  if (!prepared.layout.gathers_each_read) return;
  // PyTorch refuses it on every rank alike.
  take_tapes(prepared, tape_settings(*prepared.index->model, prepared.plan, *prepared.cluster, rank), library);
  prepared.ids = ids_of(prepared);
}

Result<PreparedPlan> prepare(const ModelIndex& index, const Cluster& cluster, Plan given, Layout layout,
                             const MeshCosts& mesh, TapeLibrary& library, PreparedFor use,
                             const PreparedOthers* others) {
  PreparedPlan prepared;
  prepared.others = others;
  prepared.index = &index;
  prepared.cluster = &cluster;
  prepared.plan = std::move(given);
  const Plan& plan = prepared.plan;
  if (use == PreparedFor::Walk) prepared.plan.accumulation = std::min(plan.accumulation, kNumMicroBatches);
  if (use == PreparedFor::Bound) prepared.plan.accumulation = std::min(plan.accumulation, kNumBoundMicroBatches);
  prepared.walked = plan_of_memory(plan, cluster);
  prepared.layout = std::move(layout);
  if (plan.optimizer.muon) {
    if (auto misfit = optimizer_misfit(plan, *index.model, plan.mesh, plan.cpu_offload)) {
      return tl::unexpected(Errors{*std::move(misfit)});
    }
    prepared.muon = &library.muon_step(prepared.layout, plan, cluster);
  }
  // A bound and a step time are those of a steady step.
  const bool has_first_step = use == PreparedFor::Everything || use == PreparedFor::Walk;
  if (has_first_step) {
    StepSchedules steps = lower_steps(index, plan, prepared.layout);
    prepared.first_schedule = std::move(steps.first);
    prepared.second_schedule = std::move(steps.second);
    prepared.schedule = std::move(steps.steady);
  } else {
    prepared.schedule = lower(index, plan, prepared.layout);
  }
  if (plan.accumulation > kNumMicroBatches && use == PreparedFor::Everything) {
    Plan shorter = plan;
    shorter.accumulation = kNumMicroBatches;
    StepSchedules steps = lower_steps(index, shorter, prepared.layout);
    prepared.short_first_schedule = std::move(steps.first);
    prepared.short_second_schedule = std::move(steps.second);
    prepared.short_schedule = std::move(steps.steady);
  }
  if (uses_drive(plan)) {
    const Schedule& first = has_first_step ? prepared.first_schedule : prepared.schedule;
    Errors errors = check_drive(prepared.layout, plan, first, prepared.schedule);
    if (!errors.empty()) return tl::unexpected(std::move(errors));
  }
  const TapeSettings settings = tape_settings(*index.model, plan, cluster, prepared.layout.rank);
  prepared.activation = settings.rules.activation;
  prepared.use_cache = settings.rules.implementations.use_cache;
  prepared.costs = settings.costs;
  if (Errors errors = take_tapes(prepared, settings, library); !errors.empty())
    return tl::unexpected(std::move(errors));
  if (use != PreparedFor::Walk && use != PreparedFor::Bound) {
    prepared.unit_times = unit_times(prepared.layout, plan, mesh, cluster, prepared.costs);
    if (prepared.costs.on_host) {
      prepared.on_host = host_times(prepared.schedule, *index.model, prepared.layout, plan, prepared.costs);
    }
    prepared.bucket_times =
        bucket_times(prepared.layout.buckets, *index.model, prepared.layout, plan, mesh, cluster, prepared.costs);
    prepared.fetch_times =
        fetch_times(*index.model, prepared.layout, plan, prepared.schedule, mesh, cluster, prepared.costs);
  }
  if (use != PreparedFor::Times) prepared.ids = ids_of(prepared);
  return prepared;
}

namespace {

/// Initialization, the first step, and later steps, each with its peaks.
template <class Sink>
std::vector<PhasePeaks> walk_phases(const PreparedPlan& prepared, Bytes outside, Sink& sink) {
  std::vector<PhasePeaks> phases;
  MemoryWalk<Sink> walk(prepared.short_walk_input(), sink);
  walk.initialize();
  // Up to the first forward, as in a rehearsal.
  walk.load_first_batch();
  phases.push_back({RunPhase::Initialization, peaks_of(sink, outside)});
  sink.reset_peak();
  walk.step();
  phases.push_back({RunPhase::FirstStep, peaks_of(sink, outside)});
  MemoryPeaks steady;
  for (int step = 1; step < kNumSteps && !sink.has_enough(); ++step) {
    sink.reset_peak();
    walk.step();
    steady = highest(steady, peaks_of(sink, outside));
  }
  phases.push_back({RunPhase::SteadyStep, steady});
  return phases;
}

}  // namespace

Result<MemoryPrediction> predict_memory(const PreparedPlan& prepared, PoolSink& pools, CachingAllocator& allocator,
                                        Bytes enough) {
  FSDP_TRY(const AllocatorSettings settings, settings_of(prepared.plan));
  MemoryPrediction result;
  result.outside = outside_terms(*prepared.cluster, prepared.plan);
  const Bytes outside = sum_of(result.outside);
  const Bytes most = most_reserved(enough, result.outside, prepared.plan);
  bool is_done = false;
  if (can_use_pools(prepared, settings)) {
    const std::int64_t before = pools.num_requests();
    pools.reset(prepared.ids.total, settings, most);
    result.phases = walk_phases(prepared, outside, pools);
    result.work += pools.num_requests() - before;
    result.is_whole = !pools.has_enough();
    is_done = !is_beyond_pools(pools);
  }
  if (!is_done) {
    allocator.reset({.total = kEndlessMemory}, settings);
    AllocatorSink sink(prepared.ids.total, allocator, most);
    result.phases = walk_phases(prepared, outside, sink);
    result.work += kWorkOfAllocator * sink.num_requests();
    result.is_whole = !sink.has_enough();
  }
  for (const PhasePeaks& phase : result.phases) result.peaks = highest(result.peaks, phase.peaks);
  add_margin(prepared, settings, pools, allocator, enough, result);
  return result;
}

Bytes convolution_workspace(const PreparedPlan& prepared) {
  if (prepared.cluster->gpu.compute_capability == 0) return Bytes(0);
  std::int64_t most = 0;
  for (const Tape* tape : prepared.tapes) most = std::max(most, tape->largest_convolution);
  // The gradient of the weight is summed in parts as well: cuDNN 9.19 requested up to 1.31 times as much for A100 and
  // H100.
  return Bytes(most + most / 2);
}

}  // namespace fsdp::simulator
