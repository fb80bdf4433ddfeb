#include "core/report/report_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/plan/plan_file.h"
#include "core/plan/plan_names.h"
#include "core/report/report_json.h"
#include "core/report/report_names.h"

namespace fsdp {

namespace {

constexpr JsonLayout kOneLine = JsonLayout::OneLine;
constexpr std::string_view kReportKinds[] = {"predicted", "measured"};

struct ReportedWorkload {
  std::optional<double> micro_batch;
  std::optional<double> sequence;
  std::vector<Dimension> dimensions;
  std::int64_t accumulation = 1;
  std::int64_t world_size = 1;
};

ReportedWorkload reported_workload_of(const Plan& plan) {
  const auto dimension = [&](std::string_view name) -> std::optional<double> {
    const Dimension* found = find_dimension(plan.dimensions, name);
    return found == nullptr ? std::nullopt : std::optional(found->value);
  };
  return {dimension("batch"), dimension("seq"), plan.dimensions, plan.accumulation, plan.mesh.world_size()};
}

/// A plan for a report; `cluster` may be null.
struct ReportedPlan {
  const Plan& plan;
  const Cluster* cluster = nullptr;
};

/// Bytes by the name of their category. `leaves_out_none`: omits categories without bytes.
struct ByCategory {
  bool leaves_out_none = false;
  JsonLayout layout = JsonLayout::Lines;
};

/// Totals by the name of their kind. Always writes FSDP's.
struct ByKind {
  JsonLayout layout = JsonLayout::Lines;
};

/// A collective. Omits members that are unknown for some.
struct CollectiveRow {
  bool has_times = false;
  bool has_categories = false;
  JsonLayout layout = kOneLine;
};

/// A long list of sizes on one line.
struct SizesOnOneLine {};

/// A dtype by PyTorch's name.
struct DtypeByName {};

std::vector<std::string_view> dtype_names() {
  std::vector<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(Dtype::Bool); ++i) names.push_back(name_of(static_cast<Dtype>(i)));
  return names;
}

}  // namespace

/// Marks the name of a phase. Reports of the previous version spell one of them differently.
template <class Phase>
struct PhaseByName {
  const EnumTable<Phase>& table;
};
template <class Phase>
static std::string_view name_of(const PhaseByName<Phase>& names, Phase phase) {
  return name_of(names.table, phase);
}
template <class Phase>
static bool read_json(const JsonValue& value, Phase& out, JsonErrors& errors, const PhaseByName<Phase>& names) {
  const bool is_old = value.type == JsonType::String && value.text == "initialisation";
  if (is_old) out = Phase::Initialization;
  return is_old || read_json(value, out, errors, names.table);
}
template <class Phase>
static void write_json(JsonWriter& writer, const Phase& phase, const PhaseByName<Phase>& names) {
  write_json(writer, phase, names.table);
}
template <class Phase>
static std::string schema_of(const Phase& phase, const PhaseByName<Phase>& names) {
  return schema_of(phase, names.table);
}

/// Marks the version of the format: a text that begins with our major version. Not in the unnamed namespace, where
/// overloads for its schema would not be found.
struct ReportVersion {};

static bool read_json(const JsonValue& value, std::string& out, JsonErrors& errors, ReportVersion /*unused*/) {
  if (!read_json(value, out, errors)) return false;
  const std::string_view major = kReportFormatVersion.substr(0, kReportFormatVersion.find('.') + 1);
  return out.starts_with(major) ||
         errors.add(value, fmt::format("This is format \"{}\".", out),
                    fmt::format("This program reads reports of format {}.", kReportFormatVersion));
}
static std::string schema_of(const std::string& /*value*/, ReportVersion /*unused*/) {
  const std::string_view major = kReportFormatVersion.substr(0, kReportFormatVersion.find('.'));
  return fmt::format(R"("type": "string", "pattern": "^{}\\.")", major);
}
static void write_json(JsonWriter& writer, const std::string& value, ReportVersion /*unused*/) {
  writer.value(value);
}

static bool read_json(const JsonValue& value, Dtype& out, JsonErrors& errors, DtypeByName /*unused*/) {
  const std::optional<std::size_t> index = read_name(value, "dtype", dtype_names(), errors);
  if (index) out = static_cast<Dtype>(*index);
  return index.has_value();
}
static std::string schema_of(Dtype /*value*/, DtypeByName /*unused*/) {
  return schema_of_names(dtype_names());
}
static void write_json(JsonWriter& writer, Dtype value, DtypeByName /*unused*/) {
  writer.value(name_of(value));
}

static bool read_json(const JsonValue& value, std::vector<Bytes>& out, JsonErrors& errors, SizesOnOneLine /*unused*/) {
  return read_json(value, out, errors, kInBytes);
}
static std::string schema_of(const std::vector<Bytes>& value, SizesOnOneLine /*unused*/) {
  return schema_of(value, kInBytes);
}
static void write_json(JsonWriter& writer, const std::vector<Bytes>& sizes, SizesOnOneLine /*unused*/) {
  writer.begin_array(kOneLine);
  for (const Bytes size : sizes) writer.value(size.count());
  writer.end_array();
}

static void write_json(JsonWriter& writer, const ReportedPlan& value) {
  write_plan(writer, value.plan, value.cluster);
}

// ---- Memory.

static void fields_of(Fields& fields, Like<BytesByCategory> auto& bytes, const ByCategory& written) {
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    const std::string_view name = name_of(static_cast<MemoryCategory>(i));
    fields.optional_if(!written.leaves_out_none || bytes[i] > Bytes(0), name, {name, {}}, bytes[i], kInBytes);
  }
}

static void fields_of(Fields& fields, Like<MemoryPeaks> auto& peaks) {
  fields.required("live_peak_bytes", "Bytes that tensors ask for.", peaks.live, kInBytes);
  field_if_known(fields, "allocated_peak_bytes",
                 "torch.cuda.max_memory_allocated. Missing: there is no such allocator.", peaks.allocated, kInBytes);
  field_if_known(fields, "reserved_peak_bytes", "torch.cuda.max_memory_reserved.", peaks.reserved, kInBytes);
  field_if_known(fields, "device_peak_bytes", "Reserved memory and the memory outside of the allocator.", peaks.device,
                 kInBytes);
}

static void fields_of(Fields& fields, Like<PhasePeaks> auto& phase) {
  fields_of(fields, phase.peaks);
  field_if_any(fields, "live_peak_bytes_of",
               "live_peak_bytes of the parts of a predicted step: forward, backward, optimizer.", phase.parts,
               Keyed{EnumKey{&PartPeak::part, kStepPhaseTable}, &PartPeak::live, kOneLine, kInBytes});
}

static void fields_of(Fields& fields, Like<PeakMoment> auto& peak) {
  fields.required("phase", "initialization, forward, backward or optimizer.", peak.phase,
                  PhaseByName<StepPhase>{kStepPhaseTable});
  fields.required("instruction", "Instruction of the schedule; measured: the step.", peak.instruction);
  fields.required("unit", "FSDP unit at work; empty: the root.", peak.unit);
  fields.required("op", "Innermost module and op; measured: the module.", peak.op);
}

static void fields_of(Fields& fields, Like<LiveTensor> auto& tensor) {
  fields.required("name", "The maker of the tensors.", tensor.name);
  fields.required("category", "Its category.", tensor.category, kMemoryCategoryTable);
  fields.required("count", "Their number.", tensor.count, kNatural);
  fields.required("bytes", "The bytes of all of them.", tensor.bytes, kInBytes);
}

static void fields_of(Fields& fields, Like<DeviceTerm> auto& term) {
  fields.required("name", "The term's name.", term.name);
  fields.required("bytes", "Its size.", term.bytes, kInBytes);
  fields.required("provenance", "The basis of the figure.", term.provenance, kReportedProvenanceTable);
  fields.required("source", "The source of the figure.", term.source);
}

static void fields_of(Fields& fields, Like<HostMemory> auto& host) {
  field_if_any(fields, "budget_bytes", "Memory of one node. Missing: not known and not checked.", host.budget,
               kInBytes);
  fields.required("margin_bytes", "The safety margin on top of needed_bytes.", host.margin, kInBytes);
  fields.required("needed_bytes", "The sum of the terms. The plan fits when it and the margin are within the budget.",
                  host.needed, kInBytes);
  fields.optional("pinned_bytes",
                  "The page-locked part of needed_bytes, which the system cannot give to another process.", host.pinned,
                  kInBytes);
  fields.required("terms", "Its parts, of all ranks of the node together.", host.terms, kOneLine);
}

static void fields_of(Fields& fields, Like<DriveReport> auto& drive) {
  fields.required("kept_bytes", "The size of the files.", drive.kept, kInBytes);
  fields.required("read_bytes", "The bytes read in one steady step.", drive.read, kInBytes);
  fields.required("written_bytes", "The bytes written in one steady step.", drive.written, kInBytes);
  fields.required("bytes_per_second", "The rate at which a node's drives read or write.", drive.in_a_second, kInBytes);
  fields.required("provenance", "The basis of that figure.", drive.provenance, kReportedProvenanceTable);
  fields.required("source", "Its source.", drive.source);
  field_if_any(fields, "capacity_bytes", "The capacity of a node's drives. Missing: not known and not checked.",
               drive.capacity, kInBytes);
}

static void fields_of(Fields& fields, Like<PhaseMark> auto& mark) {
  fields.required("phase", "forward, backward or optimizer.", mark.phase, kStepPhaseTable);
  fields.required("index", "The position in live_over_step_bytes.", mark.index, kNatural);
}

static void peak_fields(Fields& fields, Like<StepReport> auto& report) {
  auto& memory = report.memory;
  fields.optional_if(
      report.kind == "predicted", "rank",
      "The global rank whose memory this is. In a prediction, the rank that needs most unless another was requested.",
      memory.rank, kNatural);
  fields.required("budget_bytes", "The memory of the device that a process may use.", memory.budget, kInBytes);
  fields.required("margin_bytes", "The safety margin on top of the prediction.", memory.margin, kInBytes);
  fields.optional_if(memory.held > Bytes(0), "held_bytes",
                     "The part of the margin for memory that FSDP1 or ZeRO frees and may not get back in time, because "
                     "another stream uses it (record_stream).",
                     memory.held, kInBytes);
  fields_of(fields, memory.peaks);
  fields.required("peak", "The moment and place of the highest live memory.", memory.peak, JsonLayout::Lines);
  // Only a prediction and our own runs know the purpose of each tensor.
  const bool knows_categories =
      std::any_of(memory.at_peak.begin(), memory.at_peak.end(), [](Bytes bytes) { return bytes > Bytes(0); });
  fields.optional_if(!report.rehearsal && knows_categories, "at_peak",
                     "Live bytes at the peak, by the categories of PyTorch's FSDPMemTracker. Missing in a rehearsal "
                     "and in a framework's own run.",
                     memory.at_peak, ByCategory{});
}

static void report_memory_fields(Fields& fields, Like<StepReport> auto& report) {
  peak_fields(fields, report);
  auto& memory = report.memory;
  fields.optional("live_at_peak",
                  "Tensors that are alive at the peak, largest first; equal ones of repeated blocks are one entry.",
                  memory.live_at_peak, kOneLine);
  fields.required("device_terms", "Parts of the device peak; they add up to it.", memory.device_terms, kOneLine);
  fields.required("phases", "Peaks of initialization, first_step and steady_step.", memory.phases,
                  KeyedRows{EnumKey{&PhasePeaks::phase, PhaseByName<RunPhase>{kRunPhaseTable}}});
  fields.optional_if(memory.tightness != Tightness::None, "tight",
                     "The reason that a plan that runs has no room to spare. Missing: it has room, or it does not run.",
                     memory.tightness, DescribedNames{kTightnessTable, kTightnessSentences});
  fields.optional("cache_flushes",
                  "Times the allocator must give back its cache to stay below the budget, in initialization and the "
                  "steps that are walked; -1: it runs out of memory.",
                  memory.cache_flushes, IntegerRange{.min = -1});
  const bool knows_step = memory.tightness != Tightness::None && report.kind == "predicted";
  fields.optional_if(knows_step, "step_cache_flushes",
                     "The cache flushes of a steady step; with streams an upper bound. Missing in a rehearsal.",
                     memory.step_flushes, kNatural);
  fields.optional_if(knows_step, "cache_flush_time",
                     "The time that they add to a steady step, estimated. In seconds. Not in time.step.",
                     memory.flush_time, kInSeconds);
  fields.optional("host_pinned_bytes", "Pinned host memory of this rank.", memory.host_pinned, kInBytes);
  field_if_any(fields, "host",
               "The host memory that the processes of one node use, for the node that needs most. Missing: nothing of "
               "the model is in host memory.",
               memory.host, JsonLayout::Lines);
  field_if_any(fields, "drive",
               "The data that all ranks of a node store on its NVMe drives and move. Missing: the plan uses no drive.",
               memory.drive, JsonLayout::Lines);
  fields.optional("live_over_step_bytes",
                  "The most that is live during each instruction of one steady step, in order; measured: allocated "
                  "bytes.",
                  memory.live_over_step, SizesOnOneLine{});
  fields.optional("phase_marks", "The positions in live_over_step_bytes at which phases begin.", memory.phase_marks,
                  kOneLine);
}

// ---- Traffic.

static void fields_of(Fields& fields, Like<TrafficTotal> auto& total) {
  fields.required("count", "Collectives per step.", total.count, kNatural);
  fields.required("payload_bytes", "Bytes of the full tensors.", total.payload, kInBytes);
  fields.optional("sent_bytes_per_rank", "Bytes that a rank of a ring sends.", total.sent_per_rank, kInBytes);
}

using Totals = std::array<TrafficTotal, kNumTrafficKinds>;

static void fields_of(Fields& fields, Like<Totals> auto& totals, const ByKind& /*unused*/) {
  for (int i = 0; i < kNumTrafficKinds; ++i) {
    const bool is_of_fsdp = i <= static_cast<int>(CollectiveKind::AllReduce);
    const std::string_view name = name_of(static_cast<CollectiveKind>(i));
    fields.optional_if(
        is_of_fsdp || totals[i].count > 0, name,
        is_of_fsdp ? "FSDP's collectives of this kind." : "Collectives of this kind. Missing: there are none.",
        totals[i], kOneLine);
  }
}

template <Like<Collective> S>
static void collective_fields(Fields& fields, S& collective) {
  fields.required("kind", "Its kind.", collective.kind, kCollectiveKindTable);
  fields.required("unit", "First module of its unit; empty: the root.", collective.unit);
  fields.required("phase", "forward, backward or optimizer.", collective.phase, kStepPhaseTable);
  fields.required("dtype", "PyTorch's name.", collective.dtype, DtypeByName{});
  fields.required("elements", "The elements of the full tensor, padding included.", collective.elements, kNatural);
  fields.required("payload_bytes", "The bytes of the full tensor.", collective.payload, kInBytes);
  if constexpr (!std::is_const_v<S>) collective.group = MeshDimension::Other;
  fields.optional("group", "Dimension of the mesh; other: measured, only the size of the group is known.",
                  collective.group, kMeshDimensionTable);
  if constexpr (!std::is_const_v<S>) collective.group_size = -1;
  field_if_known(fields, "group_size", "Ranks. Missing: measured, and not known.", collective.group_size, kRanks);
  fields.optional_if(
      collective.reduce_op != ReduceOp::None, "reduce_op",
      "The reduction's operator. Missing in a measured step. Sum with float16: FSDP2 divides before and after.",
      collective.reduce_op, kReduceOpTable);
  field_if_known(fields, "micro_batch_index",
                 "The micro-batch in which it is issued, from 0. Missing after all of them and in a measured step.",
                 collective.micro_batch, kNatural);
}

template <Like<Collective> S>
static void fields_of(Fields& fields, S& collective, const CollectiveRow& row) {
  collective_fields(fields, collective);
  fields.optional_if(row.has_times, "time", "Its duration by itself. In seconds. Missing: not known.", collective.time,
                     kInSeconds);
  fields.optional_if(row.has_times, "exposed",
                     "The time that the compute stream waits for it. In seconds. Missing: not known.",
                     collective.exposed, kInSeconds);
  // Computed from `live`.
  ConstAs<S, Bytes> live = std::accumulate(collective.live.begin(), collective.live.end(), Bytes(0));
  fields.optional_if(row.has_categories, "live_bytes",
                     "The live bytes when it is called, its own included. Missing in a rehearsal.", live, kInBytes);
  field_if_any(fields, "first_step_live_bytes",
               "The same in the first step. Missing if that one has other collectives.", collective.first_step_live,
               kInBytes);
  fields.optional_if(row.has_categories, "live",
                     "live_bytes by category of PyTorch's FSDPMemTracker; those without bytes are left out.",
                     collective.live, ByCategory{.leaves_out_none = true, .layout = kOneLine});
}

template <Like<StepReport> S>
static void traffic_fields(Fields& fields, S& report) {
  auto& traffic = report.traffic;
  fields.required("totals", "By kind.", traffic.totals, ByKind{});
  const bool knows_links = traffic.sent_inside_node >= Bytes(0);
  if constexpr (!std::is_const_v<S>) traffic.sent_inside_node = traffic.sent_between_nodes = Bytes(-1);
  fields.optional_if(knows_links, "sent_inside_node_bytes_per_rank",
                     "Sent over links inside a node. Missing: not known.", traffic.sent_inside_node, kInBytes);
  fields.optional_if(knows_links, "sent_between_nodes_bytes_per_rank",
                     "Sent over the network by the worst-placed rank. Missing: not known.", traffic.sent_between_nodes,
                     kInBytes);
  fields.optional("collectives", "In issue order of one steady step.", traffic.collectives,
                  CollectiveRow{.has_times = report.time.step > Seconds(0), .has_categories = !report.rehearsal});
}

// ---- Time.

static void band_fields(Fields& fields, Like<TimeReport> auto& time) {
  fields.required("low", "At least. In seconds.", time.low, kInSeconds);
  fields.optional_if(time.high > Seconds(0) || time.without_cost.empty(), "high",
                     "At most. In seconds. Missing if ops have no known cost.", time.high, kInSeconds);
}

template <Like<TimeReport> S>
static void fields_of(Fields& fields, S& time) {
  fields.required("step", "The step. In seconds.", time.step, kInSeconds);
  constexpr Seconds kUnknown{-1};
  if constexpr (!std::is_const_v<S>) time.compute = time.exposed_communication = time.optimizer = kUnknown;
  const auto known = [&](const char* name, const char* doc, auto& part) {
    fields.optional_if(part >= Seconds(0), name, doc, part, kInSeconds);
  };
  known("compute", "Busy time of the compute stream. In seconds. Missing: not measured.", time.compute);
  known("exposed_communication",
        "The time that the compute stream waits for collectives. In seconds. Missing: not measured.",
        time.exposed_communication);
  known("optimizer", "Part of compute. In seconds. Missing: not measured.", time.optimizer);
  fields.optional("tokens_per_second_per_gpu", "Throughput.", time.tokens_per_second_per_gpu);
  fields.optional("mfu", "Model FLOPs over peak FLOPs: 0.4 is 40 %.", time.mfu);
  fields.optional_object(
      "uncertainty", "Band in which the step time is expected.", [&](Fields& inner) { band_fields(inner, time); },
      kOneLine);
  field_if_any(fields, "without_cost",
               "Ops and kernels of libraries whose cost is unknown. The step takes longer by their time.",
               time.without_cost);
}

// ---- The whole.

static void fields_of(Fields& fields, Like<ReportedWorkload> auto& workload) {
  field_if_any(fields, "micro_batch", "Samples per rank and micro-batch.", workload.micro_batch);
  field_if_any(fields, "sequence", "Tokens per sample.", workload.sequence);
  fields.optional("dimensions", "All sizes, by the spec's names.", workload.dimensions,
                  Keyed{TextKey{&Dimension::name}, &Dimension::value, JsonLayout::Lines});
  fields.required("accumulation", "Micro-batches per optimizer step.", workload.accumulation, kNatural);
  fields.required("world_size", "Number of ranks.", workload.world_size, kNatural);
}

static void report_model_fields(Fields& fields, Like<StepReport> auto& report) {
  fields.required("name", "Its name.", report.model);
  fields.required("parameters", "All parameters, tied ones once.", report.parameters, kNatural);
  fields.required("trainable_parameters", "The parameters with requires_grad.", report.trainable_parameters, kNatural);
  field_if_known(fields, "receives_gradient_parameters", "The parameters that get a gradient. Missing: not known.",
                 report.receives_gradient_parameters, kNatural);
  field_if_known(fields, "buffers_bytes", "Bytes of the buffers. Missing: not known.", report.buffers, kInBytes);
}

static void report_machine_fields(Fields& fields, Like<StepReport> auto& report) {
  fields.required("gpu", "Name of the GPU.", report.gpu);
  fields.required("gpus_per_node", "GPUs of a node.", report.gpus_per_node, kNatural);
  fields.required("nodes", "Number of nodes.", report.nodes, kNatural);
  fields.required("memory_bytes", "The memory of a GPU that a process may use.", report.memory.budget, kInBytes);
  fields.required("assumptions", "The assumptions, as sentences.", report.assumptions);
}

template <Like<StepReport> S>
static void header_fields(Fields& fields, S& report) {
  ConstAs<S, std::string> version(kReportFormatVersion);
  fields.required("format_version", "Version of this format.", version, ReportVersion{});
  fields.required("kind", "The source of the figures.", report.kind, OneOf{"kind", kReportKinds});
  fields.required("runtime", {"The framework whose behavior it is.", R"(["pytorch-fsdp2"])"}, report.runtime);
  fields.required("runtime_version", "Its version.", report.runtime_version);
  fields.required("verdict", "Whether the plan fits.", report.verdict,
                  DescribedNames{kVerdictTable, kVerdictSentences});
  fields.required_object("model", "The model.", [&](Fields& inner) { report_model_fields(inner, report); });
  fields.required_object("cluster", "The machines.", [&](Fields& inner) { report_machine_fields(inner, report); });
}

static void fields_of(Fields& fields, Like<OtherReport> auto& other) {
  fields.required("name", "Its name.", other.name);
  fields.required("how", "How it is held, as --also says it.", other.how);
  fields.required("resident_bytes", "Live on the device between its forwards: its shards, or all of it, and buffers.",
                  other.resident, kInBytes);
  fields.required("forward_bytes", "The most beside that in its forward: gathered units and activations.",
                  other.forward, kInBytes);
  fields.required("kept_bytes", "Its log-probabilities, from its forward to the end of the backward.", other.kept,
                  kInBytes);
  fields.required("host_bytes", "Its pinned shards on the node that holds most of them.", other.host, kInBytes);
  fields.required("gathers", "Its all-gathers in a step.", other.gathers, kNatural);
  fields.required("gathered_bytes", "Their payload.", other.gathered, kInBytes);
  fields.required("time", "Its forwards in a step. In seconds.", other.time, kInSeconds);
}

static void report_figure_fields(Fields& fields, Like<StepReport> auto& report) {
  fields.required_object("memory", "Memory of one rank's device.",
                         [&](Fields& inner) { report_memory_fields(inner, report); });
  fields.required_object("traffic", "Collectives of one steady step.",
                         [&](Fields& inner) { traffic_fields(inner, report); });
  fields.optional_if(report.time.step > Seconds(0), "time", "Time of one steady step. A stub GPU has none.",
                     report.time, JsonLayout::Lines);
  field_if_any(
      fields, "other_models",
      "Models beside the trained one (--also), which are not trained. Their bytes, collectives and times are in "
      "memory, traffic and time, too.",
      report.others, JsonLayout::OneLine);
  field_if_any(fields, "rehearsal",
               "The observations of a rehearsal: the real PyTorch ran a script. Only in measured reports.",
               report.rehearsal, JsonLayout::Lines);
}

constexpr const char* kWorkloadDoc = "The work of one step. Missing: there is no plan.";
constexpr const char* kPlanDoc = "The plan, as a plan file holds it. A measured script has none.";

void report_fields(Fields& fields, StepReport& report) {
  header_fields(fields, report);
  // Both follow from the plan, which is not read, because a newer program's plan has keys of its own.
  ReportedWorkload workload;
  fields.optional_if(false, "workload", kWorkloadDoc, workload, JsonLayout::Lines);
  fields.optional_as("plan", kPlanDoc, R"("$ref": "plan.schema.json")", [](const JsonValue& value, JsonErrors& errors) {
    return expect_type(value, JsonType::Object, "an object", errors);
  });
  report_figure_fields(fields, report);
}

void report_fields(Fields& fields, const StepReport& report, const Cluster* cluster) {
  header_fields(fields, report);
  const bool has_plan = !report.plan.units.empty();
  const ReportedWorkload workload = reported_workload_of(report.plan);
  const ReportedPlan plan{report.plan, cluster};
  fields.optional_if(has_plan, "workload", kWorkloadDoc, workload, JsonLayout::Lines);
  fields.optional_if(has_plan, "plan", kPlanDoc, plan);
  report_figure_fields(fields, report);
}

}  // namespace fsdp
