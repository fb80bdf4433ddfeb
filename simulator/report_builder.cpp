// Assembles the whole report: peaks, the live tensors at the highest one, traffic, times.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/base/parse_units.h"
#include "core/cluster/bf16_units.h"
#include "core/cluster/node_spread.h"
#include "core/model/call_name.h"
#include "core/plan/expert_parallel.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/plan_names.h"
#include "core/report/device_verdict.h"
#include "simulator/curves/curve_builder.h"
#include "simulator/curves/tensor_names.h"
#include "simulator/memory/device_terms.h"
#include "simulator/memory/drive_report.h"
#include "simulator/memory/host_memory.h"
#include "simulator/other_reports.h"
#include "simulator/prepared/host_of_others.h"
#include "simulator/prepared/prediction.h"
#include "simulator/report_traffic.h"

namespace fsdp::simulator {

namespace {

// The run as the peak finder needs it: all marks (actions) and the position of the highest one.
struct PeakWalk {
  PeakSink sink;
  std::int64_t marks_before_last_step = 0;
  LiveAtCollectives live;
};

PeakWalk walk_to_peak(const PreparedPlan& prepared, std::int64_t stop_after) {
  PeakWalk result{PeakSink(prepared.ids.total, stop_after), 0, {}};
  MemoryWalk<PeakSink> walk(prepared.walk_input(), result.sink);
  walk.initialize();
  walk.step();
  result.marks_before_last_step = static_cast<std::int64_t>(result.sink.most_from_mark().size());
  const auto in_first_step = static_cast<std::ptrdiff_t>(result.sink.live_at_collective().size());
  walk.step();
  const std::vector<BytesByCategory>& live = result.sink.live_at_collective();
  result.live.first_step.assign(live.begin(), live.begin() + in_first_step);
  result.live.steady_step.assign(live.begin() + in_first_step, live.end());
  return result;
}

// [actions] Those of the first step and of a steady one.
struct StepActions {
  std::vector<Instruction> first;
  std::vector<Instruction> steady;
};

StepActions actions_of_steps(const PreparedPlan& prepared) {
  StepActions actions{.first = {}, .steady = actions_of(prepared.schedule)};
  const bool is_other = !prepared.first_schedule.instructions.empty();
  actions.first = is_other ? actions_of(prepared.first_schedule) : actions.steady;
  return actions;
}

PeakMoment moment_of(const PreparedPlan& prepared, const StepActions& actions, const PeakSink& sink) {
  if (sink.peak_mark() == 0) return {StepPhase::Initialization, "", "", ""};
  const std::int64_t mark = sink.peak_mark() - 1;
  const auto in_first = static_cast<std::int64_t>(actions.first.size());
  const Instruction& step = mark < in_first ? actions.first.at(mark) : actions.steady.at(mark - in_first);
  const PlaceInStep place = place_of(prepared, step);
  return {.phase = step.phase,
          .instruction = place.instruction,
          .unit = place.unit,
          .op = step.call >= 0 || step.kind == InstructionKind::RunOther ? op_name(prepared, sink.peak_id())
                                                                         : std::string()};
}

// The actions of a step at which forward, backward and optimizer begin.
std::vector<PhaseMark> phase_marks(const std::vector<Instruction>& actions) {
  std::vector<PhaseMark> marks;
  const Instruction* before = nullptr;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Instruction& step = actions[i];
    const bool begins = before == nullptr || before->phase != step.phase || before->micro_batch != step.micro_batch;
    if (begins) marks.push_back({step.phase, static_cast<std::int64_t>(i)});
    before = &step;
  }
  return marks;
}

// The highest live bytes of each part of a step. Marks from `first` on belong to its actions.
std::vector<PartPeak> part_peaks(const std::vector<Instruction>& actions, const std::vector<std::int64_t>& peaks,
                                 std::int64_t first) {
  std::vector<PartPeak> parts;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const StepPhase phase = actions[i].phase;
    const Bytes live(peaks[first + i]);
    const auto part =
        std::find_if(parts.begin(), parts.end(), [&](const PartPeak& each) { return each.part == phase; });
    if (part == parts.end()) {
      parts.push_back({phase, live});
    } else {
      part->live = std::max(part->live, live);
    }
  }
  return parts;
}

LiveAtCollectives describe_peak(const PreparedPlan& prepared, MemoryReport& memory) {
  PeakWalk found = walk_to_peak(prepared, -1);
  const StepActions actions = actions_of_steps(prepared);
  memory.peak = moment_of(prepared, actions, found.sink);
  const PeakWalk stopped = walk_to_peak(prepared, found.sink.peak_event());
  std::map<std::pair<MemoryCategory, std::string>, LiveTensor> merged;
  for (int id = 0; id < stopped.sink.num_ids(); ++id) {
    const std::int64_t bytes = stopped.sink.bytes_of(id);
    if (bytes == 0) continue;
    const MemoryCategory category = stopped.sink.category_of(id);
    memory.at_peak[static_cast<std::size_t>(category)] += Bytes(bytes);
    LiveTensor& tensor = merged[{category, tensor_name(prepared, id)}];
    ++tensor.count;
    tensor.bytes += Bytes(bytes);
  }
  for (auto& [key, tensor] : merged) {
    tensor.category = key.first;
    tensor.name = key.second;
    memory.live_at_peak.push_back(tensor);
  }
  std::stable_sort(memory.live_at_peak.begin(), memory.live_at_peak.end(),
                   [](const LiveTensor& a, const LiveTensor& b) { return a.bytes > b.bytes; });
  const auto& marks = found.sink.most_from_mark();
  for (std::size_t m = static_cast<std::size_t>(found.marks_before_last_step); m < marks.size(); ++m) {
    memory.live_over_step.push_back(Bytes(marks[m]));
  }
  memory.phase_marks = phase_marks(actions.steady);
  for (PhasePeaks& phase : memory.phases) {
    if (phase.phase == RunPhase::FirstStep) phase.parts = part_peaks(actions.first, marks, 0);
    if (phase.phase == RunPhase::SteadyStep)
      phase.parts = part_peaks(actions.steady, marks, found.marks_before_last_step);
  }
  return std::move(found.live);
}

/// The behavior of an allocator with the device's limit, if one without it would need more than the device has.
Result<void> add_tightness(const PreparedPlan& prepared, const MemoryPrediction& prediction,
                           CachingAllocator& allocator, MemoryReport& memory) {
  CacheFlushes flushes;
  if (memory.peaks.device > memory.budget) {
    FSDP_TRY(flushes, count_flushes(prepared, prediction.outside, allocator));
    memory.cache_flushes = flushes.total;
  }
  memory.tightness = device_verdict_of(memory).tightness;
  if (memory.tightness == Tightness::Streams) {
    FSDP_TRY(flushes, count_flushes(prepared, prediction.outside, allocator, StreamProgress::OnDemand));
  }
  if (memory.tightness == Tightness::None || flushes.total < 0) return {};
  memory.step_flushes = flushes.in_step;
  memory.flush_time = flushes.step_time;
  return {};
}

Result<MemoryReport> memory_report(const PreparedPlan& prepared, PoolSink& pools, CachingAllocator& allocator,
                                   LiveAtCollectives& live) {
  FSDP_TRY(MemoryPrediction prediction, predict_memory(prepared, pools, allocator));
  MemoryReport memory;
  memory.budget = prepared.cluster->gpu.usable_memory.value;
  memory.margin = prediction.margin;
  memory.held = prediction.held;
  memory.peaks = prediction.peaks;
  memory.phases = std::move(prediction.phases);
  memory.device_terms.push_back({"reserved by PyTorch's allocator", memory.peaks.reserved, Provenance::Derived,
                                 "the caching allocator's rules of torch " + prepared.plan.runtime.version});
  for (const DeviceTerm& term : prediction.outside) memory.device_terms.push_back(term);
  const Bytes inputs = checkpointed_inputs(prepared.tapes);
  memory.host_pinned = pinned_memory(prepared.plan, prepared.layout) + inputs;
  if (prepared.others != nullptr) {
    for (const PreparedOther& other : prepared.others->models) memory.host_pinned += other.host.of_rank;
  }
  memory.host = host_memory_with_others(prepared, inputs);
  memory.drive = drive_report(*prepared.cluster, prepared.plan, prepared.layout, prepared.schedule);
  if (const auto added = add_tightness(prepared, prediction, allocator, memory); !added) {
    return tl::unexpected(added.error());
  }
  live = describe_peak(prepared, memory);
  return memory;
}

/// The inputs of MFU and the band.
struct Arithmetic {
  Seconds at_peak;                ///< Time of forward and backward at the peak rates, without recomputation.
  Dtype dtype = Dtype::BFloat16;  ///< The dtype of most of it.
};

Arithmetic arithmetic_of(const PreparedPlan& prepared) {
  const ComputeCosts& costs = prepared.costs;
  std::array<Flops, kNumFloatingPoint> products{};
  std::array<Flops, kNumFloatingPoint> convolutions{};
  Flops float8{0};
  for (const Tape* tape : prepared.tapes) {
    for (const OpWork& work : tape->work) {
      const auto d = static_cast<std::size_t>(work.forward.arithmetic.value_or(costs.activation));
      products[d] += Flops(work.forward.gemm_flops + work.forward.attention_flops + work.backward.gemm_flops);
      products[d] += Flops(2 * work.forward.attention_flops * (work.backward.attention_flops > 0 ? 1 : 0));
      float8 += Flops(work.forward.float8_flops + work.backward.float8_flops);
      convolutions[d] += Flops(work.forward.convolution_flops + work.backward.convolution_flops);
    }
  }
  Arithmetic result{.dtype = costs.activation};
  result.at_peak = static_cast<double>(prepared.plan.accumulation) * (float8 / costs.float8_peak);
  Flops most{0};
  for (std::size_t d = 0; d < kNumFloatingPoint; ++d) {
    const auto dtype = static_cast<Dtype>(d);
    const ArithmeticRates& rates = costs.rates(dtype);
    result.at_peak += static_cast<double>(prepared.plan.accumulation) *
                      (products[d] / rates.peak + convolutions[d] / rates.convolution_peak);
    if (products[d] + convolutions[d] > most) result.dtype = dtype;
    most = std::max(most, products[d] + convolutions[d]);
  }
  return result;
}

TimeReport time_report(const PreparedPlan& prepared, const MeshCosts& mesh, const TimelineResult& timeline) {
  TimeReport time;
  time.step = timeline.step;
  time.compute = timeline.compute;
  time.exposed_communication = timeline.exposed;
  time.optimizer = timeline.optimizer;
  Bytes largest;
  for (const ShardedUnit& unit : prepared.layout.units) {
    largest = std::max(largest, unit.gather_shard_bytes * unit.shards);
  }
  const UncertaintyBand band = uncertainty(mesh.shard, largest);
  const Seconds busy = timeline.step - timeline.exposed;
  const bool was_measured = prepared.costs.tables() != nullptr;
  const Arithmetic arithmetic = arithmetic_of(prepared);
  const UncertaintyBand kernels = was_measured ? kMachineBand : compute_band(prepared.cluster->gpu, arithmetic.dtype);
  const Model& model = *prepared.index->model;
  time.low = model.least_time_share * kernels.low * busy + band.low * timeline.exposed;
  time.without_cost = model.without_cost;
  if (time.without_cost.empty()) time.high = kernels.high * busy + band.high * timeline.exposed;
  const double step = time.step.count();
  if (step <= 0) return time;
  const auto tokens = static_cast<double>(model.tokens_per_step * prepared.plan.accumulation);
  time.tokens_per_second_per_gpu = tokens / step;
  time.mfu = arithmetic.at_peak.count() / step;
  return time;
}

void describe_model(const Model& model, StepReport& report) {
  report.model = model.name;
  report.parameters = num_parameters(model);
  report.trainable_parameters = num_trainable_parameters(model);
  report.receives_gradient_parameters = num_gradient_parameters(model);
  report.buffers = buffer_bytes(model);
}

bool has_gpu(const PreparedPlan& prepared) {
  return prepared.cluster->gpu.compute_capability > 0;
}

/// The note on memory that is freed while another stream may use it. Empty if there is none.
std::string assumption_about_streams(const PreparedPlan& prepared, Bytes held) {
  const bool is_flat = prepared.layout.has_flat_units();
  const bool gathers_beside = prepared.layout.gathers_by_module() && prepared.plan.zero.overlap_comm;
  if (!has_gpu(prepared) || (!is_flat && !gathers_beside && held == Bytes(0))) return "";
  const std::string framework = is_flat ? "FSDP1" : "DeepSpeed";
  std::string line = "Memory that " + framework +
                     " frees while another stream may still use it (record_stream) counts as free at once in the "
                     "peak, as when the GPU keeps up with the CPU.";
  line += held > Bytes(0) ? " The margin has " + format_bytes(held) +
                                " for a CPU that runs ahead by up to 1,024 launches "
                                "and waits only where " +
                                framework + " makes it."
                          : " A CPU that runs ahead reserves no more here.";
  return line;
}

/// The source of op times on a measured machine, and the ops without one.
void add_measured(const PreparedPlan& prepared, std::vector<std::string>& lines) {
  const MachineTables* tables = prepared.costs.tables();
  if (tables == nullptr) {
    if (prepared.cluster->gpu.machine.empty()) return;
    lines.push_back(fmt::format("This machine was not measured with {} ranks: fsdp-plan calibrate --gpus {} does it.",
                                prepared.layout.mesh.world_size(), prepared.layout.mesh.world_size()));
    return;
  }
  std::set<std::string> missing;
  for (const CallTimes* times : prepared.times) missing.insert(times->not_measured.begin(), times->not_measured.end());
  std::string line =
      fmt::format("Times of ops{}: {}", prepared.costs.on_host ? ", copies and the optimizer" : "", describe(*tables));
  if (!missing.empty()) {
    line += fmt::format("; by the roofline those that were not: {}{}", *missing.begin(),
                        missing.size() > 1 ? fmt::format(" and {} more", missing.size() - 1) : "");
  }
  lines.push_back(line + ".");
}

/// The note on the wait for the slowest node. Empty if there is none.
std::string assumption_about_nodes(const Cluster& cluster) {
  const double longer = slowest_node(cluster);
  if (longer == 1) return "";
  const Sourced<double> spread = node_spread(cluster);
  return fmt::format(
      "Computing takes {:.1f} % longer than on one node: all wait for the slowest of {} nodes, whose times differ by "
      "{:.3g} % ({}; --node-spread).",
      100 * (longer - 1), cluster.nodes, 100 * spread.value, name_of(spread.provenance));
}

std::string assumption_about_rates(const Cluster& cluster, Dtype activation) {
  const Gpu& gpu = cluster.gpu;
  if (peak_rate(gpu, activation)) return "";
  if (activation != Dtype::BFloat16 || gpu.compute_capability == 0 || !gpu.fp32 || !gpu.fp16) {
    return fmt::format("{} has no hardware for {}: compute is timed at its fp32 rate.", gpu.name, name_of(activation));
  }
  return fmt::format("{} {}: bf16 is timed at its fp32 rate, {}, where fp16 has {} (--precision fp16-mixed).", gpu.name,
                     kNoBf16Units, format_flops_rate(gpu.fp32->value), format_flops_rate(gpu.fp16->value));
}

std::string assumption_about_experts() {
  return fmt::format(
      "Experts are divided by transformers {}, and routers spread tokens evenly: with uneven routing a GPU that gets "
      "more tokens needs more memory and time.",
      kExpertParallelVersion);
}

std::string assumption_about_states(const Plan& plan) {
  const OptimizerRow& row = optimizer_row(plan.optimizer);
  std::string text;
  if (row.pages_states) {
    text = fmt::format(
        "{} of {} keeps its states in unified memory, which PyTorch does not count: the driver moves them to the host "
        "when the GPU has no room for them, so they are counted there. The time of such a move is not predicted. ",
        row.class_name, row.library);
  }
  if (row.coded.trainer_skips_embeddings) {
    text += fmt::format(
        "The states of all large parameters are in {} bits; transformers' Trainer keeps those of embeddings in fp32 "
        "({} bytes an element) unless they are a part of a flat parameter.",
        row.coded.bits, 4 * num_moments(plan.optimizer));
  }
  return text;
}

std::vector<std::string> assumptions_of(const PreparedPlan& prepared, const MeshCosts& mesh, Bytes held) {
  std::vector<std::string> lines = prepared.cluster->assumptions;
  if (std::string line = assumption_about_rates(*prepared.cluster, prepared.activation); !line.empty()) {
    lines.push_back(std::move(line));
  }
  if (!prepared.unmeasured.empty()) {
    lines.push_back("The scratch memory of oneDNN in " + std::to_string(prepared.unmeasured.size()) +
                    " kinds of 16-bit products and convolutions is unknown: fsdp-plan execute PLAN --calibration FILE "
                    "measures it on this machine, and uses it from then on.");
  }
  if (const Bytes workspace = convolution_workspace(prepared); workspace > Bytes(0)) {
    lines.push_back(
        "cuDNN may take up to about " + format_bytes(workspace) +
        " while a convolution runs: one and a half times input, weight and output of the largest. It is in the "
        "margin; fsdp-plan rehearse asks cuDNN itself.");
  }
  const Mesh& ranks = prepared.layout.mesh;
  const bool is_fsdp2 = prepared.plan.runtime.framework == Framework::Fsdp2;
  if (std::string line = assumption_about_streams(prepared, held); !line.empty()) lines.push_back(std::move(line));
  if (is_fsdp2 && ranks.dp_shard() == 1 && ranks.dp_replicate() > 1) {
    lines.emplace_back(
        "NO_SHARD is FSDP2 with a full copy of the model per GPU, not DDP, whose buckets hold the gradients a second "
        "time.");
  }
  if (ranks.ep > 1) lines.push_back(assumption_about_experts());
  if (is_fsdp2 && ranks.world_size() == 1) {
    lines.emplace_back(
        "FSDP2 on one GPU copies each unit's parameters before it runs; a script without FSDP2 does not.");
  }
  const bool has_nccl = prepared.cluster->gpu.compute_capability > 0;
  const bool is_ddp =
      prepared.layout.is_replicated && !prepared.layout.updates_parts() && !prepared.layout.gathers_each_read;
  if (prepared.layout.gathers_each_read) {
    lines.push_back(fmt::format(
        "SimpleFSDP of torchtitan {} without torch.compile: each read of a parameter gathers it, each gradient is "
        "reduced by itself, and computing waits for both. DTensor's CPU time for each read is not timed.",
        kTorchtitanVersion));
  }
  if (prepared.layout.updates_parts()) {
    lines.push_back(prepared.layout.gathers_by_module()
                        ? fmt::format("DeepSpeed {} with contiguous_gradients and reduce_scatter, which are its "
                                      "defaults: gradients are reduce-scattered from a buffer of reduce_bucket_size "
                                      "elements, however small the model is.",
                                      kDeepSpeedVersion)
                        : fmt::format("DeepSpeed {} with contiguous_gradients, reduce_scatter and "
                                      "use_multi_rank_bucket_allreduce, which are its defaults: gradients are "
                                      "all-reduced from a buffer of reduce_bucket_size elements, however small the "
                                      "model is.",
                                      kDeepSpeedVersion));
  }
  if (std::string line = assumption_about_states(prepared.plan); !line.empty()) lines.push_back(std::move(line));
  if (is_ddp && ranks.world_size() > 1) {
    lines.emplace_back(
        "DDP's first step all-reduces all gradients in one piece after the backward; the times are those of every "
        "later step.");
  }
  if (std::string line = assumption_about_nodes(*prepared.cluster); !line.empty()) lines.push_back(std::move(line));
  add_measured(prepared, lines);
  const bool was_measured = prepared.costs.tables() != nullptr;
  if (prepared.layout.mesh.dp_shard() > 1 && (has_nccl || was_measured)) lines.push_back(mesh.shard.provenance);
  const bool has_replicas = is_ddp || (prepared.layout.gathers_each_read && ranks.dp_shard() == 1);
  if (has_replicas && ranks.world_size() > 1 && has_nccl) lines.push_back(mesh.replicate.provenance);
  const std::vector<std::string>& notes = prepared.index->model->notes;
  lines.insert(lines.end(), notes.begin(), notes.end());
  return lines;
}

}  // namespace

PlaceInStep place_of(const PreparedPlan& prepared, const Instruction& step) {
  PlaceInStep place{.instruction = std::string(name_of(step.kind)), .unit = {}};
  const Model& model = *prepared.index->model;
  if (step.call >= 0) {
    const int module = model.calls[step.call].module;
    place.instruction += " " + name_of_call(model, model.calls[step.call]);
    for (const ShardedUnit& unit : prepared.layout.units) {
      for (const int m : unit.modules) {
        if (module >= 0 && prepared.index->contains(m, module) && !unit.is_root) place.unit = unit.name;
      }
    }
  }
  if (step.kind == InstructionKind::RunOther && prepared.others != nullptr) {
    place.instruction = "forward of " + prepared.others->models[static_cast<std::size_t>(step.part)].name;
  }
  if (step.unit >= 0) {
    place.unit = prepared.layout.units[step.unit].name;
    place.instruction += " " + (place.unit.empty() ? "root" : place.unit);
  }
  return place;
}

Result<StepReport> build_report(const PreparedPlan& prepared, const MeshCosts& mesh, const TimelineResult& timeline,
                                PoolSink& pools, CachingAllocator& allocator) {
  StepReport report;
  report.runtime = name_of(kFrameworkTable, prepared.plan.runtime.framework);
  report.runtime_version = prepared.plan.runtime.version;
  describe_model(*prepared.index->model, report);
  report.gpu = prepared.cluster->gpu.name;
  report.gpus_per_node = prepared.cluster->gpus_per_node;
  report.nodes = prepared.cluster->nodes;
  report.plan = prepared.plan;
  LiveAtCollectives live;
  FSDP_TRY(report.memory, memory_report(prepared, pools, allocator, live));
  report.assumptions = assumptions_of(prepared, mesh, report.memory.held);
  const bool device_fits = device_verdict_of(report.memory).verdict == Verdict::Fits;
  const bool has_host = !report.memory.host || report.memory.host->missing() == Bytes(0);
  const bool has_drive = !report.memory.drive || report.memory.drive->missing() == Bytes(0);
  const bool fits = device_fits && has_host && has_drive;
  report.verdict = fits ? Verdict::Fits : Verdict::DoesNotFit;
  if (!fits) report.memory.tightness = Tightness::None;
  report.traffic = count_traffic(prepared, mesh, timeline, live);
  report.time = time_report(prepared, mesh, timeline);
  report.others = other_reports(prepared, report.traffic);
  return report;
}

}  // namespace fsdp::simulator
