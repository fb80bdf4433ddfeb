#include "core/report/report_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/object_reader.h"
#include "core/report/report_json.h"

namespace fsdp {

namespace {

constexpr EnumName<Verdict> kVerdicts[] = {
    {Verdict::Fits, "fits"}, {Verdict::DoesNotFit, "does_not_fit"}, {Verdict::Unknown, "unknown"}};
constexpr EnumTable<Verdict> kVerdictTable{"verdict", kVerdicts};

constexpr IntegerRange kNatural{0, std::numeric_limits<std::int64_t>::max()};

bool is_same_major(std::string_view version) {
  const std::string_view ours = kReportFormatVersion.substr(0, kReportFormatVersion.find('.') + 1);
  return version.starts_with(ours);
}

void read_header(ObjectReader& object, StepReport& report) {
  std::string version;
  if (object.required("format_version", version) && !is_same_major(version)) {
    object.fail("format_version", fmt::format("This is format \"{}\".", version),
                fmt::format("This program reads reports of format {}.", kReportFormatVersion));
  }
  static constexpr std::string_view kKinds[] = {"predicted", "measured"};
  if (const JsonValue* kind = object.required_value("kind")) {
    if (const auto index = read_name(*kind, "kind", kKinds, object.errors())) report.kind = kKinds[*index];
  }
  object.required("runtime", report.runtime);
  object.required("runtime_version", report.runtime_version);
  object.required("verdict", report.verdict, kVerdictTable);
}

void read_model(const JsonValue& value, StepReport& report, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("name", report.model);
  object.required("parameters", report.parameters, kNatural);
  object.required("trainable_parameters", report.trainable_parameters, kNatural);
  report.receives_gradient_parameters = -1;
  object.optional("receives_gradient_parameters", report.receives_gradient_parameters, kNatural);
  report.buffers = Bytes(-1);
  object.optional("buffers_bytes", report.buffers, kInBytes);
  object.finish(UnknownKeys::Ignore);
}

void read_machines(const JsonValue& value, StepReport& report, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("gpu", report.gpu);
  object.required("gpus_per_node", report.gpus_per_node, kNatural);
  object.required("nodes", report.nodes, kNatural);
  object.required("memory_bytes", report.memory.budget, kInBytes);
  object.required("assumptions", report.assumptions);
  object.finish(UnknownKeys::Ignore);
}

void read_peaks(ObjectReader& object, MemoryPeaks& peaks) {
  object.required("live_peak_bytes", peaks.live, kInBytes);
  peaks.allocated = peaks.reserved = peaks.device = Bytes(-1);
  object.optional("allocated_peak_bytes", peaks.allocated, kInBytes);
  object.optional("reserved_peak_bytes", peaks.reserved, kInBytes);
  object.optional("device_peak_bytes", peaks.device, kInBytes);
}

/// Reports of the version before spell it otherwise.
std::string phase_of(std::string name) {
  return name == "initialisation" ? "initialization" : name;
}

void read_peak(const JsonValue& value, PeakMoment& peak, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("phase", peak.phase);
  peak.phase = phase_of(std::move(peak.phase));
  object.required("instruction", peak.instruction);
  object.required("unit", peak.unit);
  object.required("op", peak.op);
  object.finish(UnknownKeys::Ignore);
}

void read_phases(const JsonValue& value, std::vector<PhasePeaks>& phases, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Object, "an object", errors)) return;
  for (const JsonMember& member : value.members) {
    phases.push_back({phase_of(member.key), {}});
    ObjectReader object(member.value, errors);
    read_peaks(object, phases.back().peaks);
    object.finish(UnknownKeys::Ignore);
  }
}

void read_at_peak(const JsonValue& value, BytesByCategory& at_peak, JsonErrors& errors) {
  ObjectReader object(value, errors);
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    object.optional(name_of(static_cast<MemoryCategory>(i)), at_peak[i], kInBytes);
  }
  object.finish(UnknownKeys::Ignore);
}

void read_memory(const JsonValue& value, MemoryReport& memory, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("budget_bytes", memory.budget, kInBytes);
  object.required("margin_bytes", memory.margin, kInBytes);
  read_peaks(object, memory.peaks);
  if (const JsonValue* peak = object.required_value("peak")) read_peak(*peak, memory.peak, errors);
  if (const JsonValue* phases = object.required_value("phases")) read_phases(*phases, memory.phases, errors);
  if (const JsonValue* at_peak = object.optional_value("at_peak")) read_at_peak(*at_peak, memory.at_peak, errors);
  object.optional("cache_flushes", memory.cache_flushes, IntegerRange{-1});
  object.finish(UnknownKeys::Ignore);
}

void read_totals(const JsonValue& value, TrafficReport& traffic, JsonErrors& errors) {
  ObjectReader object(value, errors);
  for (std::size_t i = 0; i < traffic.totals.size(); ++i) {
    const JsonValue* total = object.optional_value(name_of(static_cast<CollectiveKind>(i)));
    if (total == nullptr) continue;
    ObjectReader row(*total, errors);
    row.required("count", traffic.totals[i].count, kNatural);
    row.required("payload_bytes", traffic.totals[i].payload, kInBytes);
    row.optional("sent_bytes_per_rank", traffic.totals[i].sent_per_rank, kInBytes);
    row.finish(UnknownKeys::Ignore);
  }
  object.finish(UnknownKeys::Ignore);
}

std::optional<CollectiveKind> kind_named(std::string_view name) {
  for (int i = 0; i < kNumTrafficKinds; ++i) {
    if (name_of(static_cast<CollectiveKind>(i)) == name) return static_cast<CollectiveKind>(i);
  }
  return std::nullopt;
}

// What tells one collective from another; how long it took is not read.
void read_collective(const JsonValue& value, TrafficReport& traffic, JsonErrors& errors) {
  ObjectReader object(value, errors);
  Collective collective;
  std::string kind, dtype;
  object.required("kind", kind);
  object.required("unit", collective.unit);
  object.required("phase", collective.phase);
  object.required("dtype", dtype);
  object.required("elements", collective.elements, kNatural);
  object.required("payload_bytes", collective.payload, kInBytes);
  object.required("group_size", collective.group_size, kNatural);
  std::string group;
  object.optional("group", group);
  collective.group = group == name_of(MeshDimension::Shard)       ? MeshDimension::Shard
                     : group == name_of(MeshDimension::Replicate) ? MeshDimension::Replicate
                                                                  : MeshDimension::Other;
  object.finish(UnknownKeys::Ignore);
  const auto known = kind_named(kind);
  if (!known) object.fail("kind", fmt::format("\"{}\" is not a collective.", kind), "");
  collective.kind = known.value_or(CollectiveKind::AllGather);
  collective.dtype = parse_dtype(dtype).value_or(Dtype::UInt8);
  traffic.collectives.push_back(std::move(collective));
}

void read_time(const JsonValue& value, TimeReport& time, JsonErrors& errors) {
  ObjectReader object(value, errors);
  double step = 0;
  object.required("step", step);
  time.step = Seconds(step);
  for (const auto& [key, part] : {std::pair{"compute", &time.compute},
                                  {"exposed_communication", &time.exposed_communication},
                                  {"optimizer", &time.optimizer}}) {
    double seconds = 0;
    object.optional(key, seconds, RealRange{.min = 0});
    *part = Seconds(seconds);
  }
  object.optional("tokens_per_second_per_gpu", time.tokens_per_second_per_gpu);
  object.finish(UnknownKeys::Ignore);
}

void read_traffic(const JsonValue& value, TrafficReport& traffic, JsonErrors& errors) {
  ObjectReader object(value, errors);
  if (const JsonValue* rows = object.optional_value("collectives")) {
    for (const JsonValue& row : rows->elements) read_collective(row, traffic, errors);
  }
  if (const JsonValue* totals = object.required_value("totals")) read_totals(*totals, traffic, errors);
  object.finish(UnknownKeys::Ignore);
}

}  // namespace

Result<StepReport> read_report(const JsonDocument& document) {
  JsonErrors errors(document);
  StepReport report;
  ObjectReader object(document.root, errors);
  read_header(object, report);
  if (const JsonValue* model = object.required_value("model")) read_model(*model, report, errors);
  if (const JsonValue* machines = object.required_value("cluster")) read_machines(*machines, report, errors);
  if (const JsonValue* memory = object.required_value("memory")) read_memory(*memory, report.memory, errors);
  if (const JsonValue* traffic = object.required_value("traffic")) read_traffic(*traffic, report.traffic, errors);
  if (const JsonValue* time = object.optional_value("time")) read_time(*time, report.time, errors);
  object.finish(UnknownKeys::Ignore);
  return std::move(errors).result(std::move(report));
}

Result<StepReport> read_report_file(const std::string& path) {
  FSDP_TRY(const JsonDocument document, read_json_file(path));
  return read_report(document);
}

}  // namespace fsdp
