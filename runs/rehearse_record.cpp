#include "runs/rehearse_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/object_reader.h"
#include "core/plan/plan_names.h"
#include "core/report/report_names.h"
#include "runs/rehearse_record_applied.h"

namespace fsdp::runs {

namespace {

constexpr std::string_view kEnds[] = {"steps_reached", "script_ended", "exception", "out_of_memory"};

void read_exception(const JsonValue& value, RehearsalRecord& record, JsonErrors& errors) {
  ObjectReader object(value, errors);
  ScriptError& error = record.seen.error.emplace();
  object.required("type", error.type);
  object.required("message", error.message);
  object.optional("types", record.error_types);
  object.required("traceback", error.traceback);
  object.finish(UnknownKeys::Ignore);
}

void read_end(const JsonValue& value, RehearsalRecord& record, JsonErrors& errors) {
  ObjectReader object(value, errors);
  if (const JsonValue* why = object.required_value("why")) {
    if (const auto index = read_name(*why, "end", kEnds, errors)) record.end = kEnds[*index];
  }
  if (const JsonValue* exception = value_unless_null(object, "exception")) read_exception(*exception, record, errors);
  if (const JsonValue* status = value_unless_null(object, "exit_status")) {
    read_json(*status, record.exit_status, errors);
  }
  object.finish(UnknownKeys::Ignore);
  if (record.end == "exception" && !record.seen.error) errors.add(value, "An exception ended it, and none is there.");
  record.seen.end = record.end;
}

void read_environment(const JsonValue& value, RehearsalRecord& record, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("python", record.seen.python);
  read_text(object, "torch", record.seen.torch);
  read_text(object, "cuda", record.seen.cuda);
  if (const JsonValue* packages = object.optional_value("packages")) {
    if (expect_type(*packages, JsonType::Object, "an object", errors)) {
      for (const JsonMember& member : packages->members) {
        Package package{.name = member.key, .version = {}};
        if (read_json(member.value, package.version, errors)) record.seen.packages.push_back(std::move(package));
      }
    }
  }
  object.optional("torch_imported", record.torch_imported);
  object.optional("cuda_initialized", record.cuda_initialized);
  object.finish(UnknownKeys::Ignore);
}

void read_job(const JsonValue& value, RecordedJob& job, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.optional("argv", job.argv);
  object.required("rank", job.rank, kRecordedCount);
  const bool good = object.required("world_size", job.world_size, kRanks);
  object.optional("local_rank", job.local_rank, kRecordedCount);
  object.optional("local_world_size", job.local_world_size, kRanks);
  if (good && job.rank >= job.world_size) {
    object.fail("rank", fmt::format("There is no rank {} in a world of {}.", job.rank, job.world_size));
  }
  object.finish(UnknownKeys::Ignore);
}

void read_seconds(const JsonValue& value, RehearsalRecord& record, JsonErrors& errors) {
  ObjectReader object(value, errors);
  constexpr RealRange kLongest{0, 1e9};
  double total = 0;
  double step = 0;
  double exposed = 0;
  object.required("total", total, kLongest);
  object.optional("step", step, kLongest);
  object.optional("communication_exposed", exposed, kLongest);
  record.seconds = Seconds(total);
  record.step = Seconds(step);
  record.exposed_communication = Seconds(exposed);
  object.finish(UnknownKeys::Ignore);
}

void read_gpu(const JsonValue& value, RehearsalRecord& record, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("name", record.gpu);
  read_bytes(object, "total_bytes", record.gpu_total);
  object.finish(UnknownKeys::Ignore);
}

void read_peaks(ObjectReader& object, MemoryPeaks& peaks) {
  read_bytes(object, "requested", peaks.live);
  read_bytes(object, "allocated", peaks.allocated);
  read_bytes(object, "reserved", peaks.reserved);
  read_bytes(object, "device", peaks.device);
  object.finish(UnknownKeys::Ignore);
}

void read_phases(const JsonValue& value, MemoryReport& memory, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Array, "a list", errors)) return;
  for (const JsonValue& element : value.elements) {
    ObjectReader object(element, errors);
    PhasePeaks phase;
    object.required("phase", phase.phase, kRunPhaseTable);
    read_peaks(object, phase.peaks);
    memory.phases.push_back(std::move(phase));
  }
}

/// REQUIRES: the peaks have been read.
void read_terms(const JsonValue& value, MemoryReport& memory, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Array, "a list", errors)) return;
  Bytes left = memory.peaks.device;
  for (const JsonValue& element : value.elements) {
    ObjectReader object(element, errors);
    DeviceTerm term;
    object.required("name", term.name);
    read_bytes(object, "bytes", term.bytes);
    object.finish(UnknownKeys::Ignore);
    // The rest is PyTorch's own reserve.
    if (term.bytes > left) {
      errors.add(element, "The terms add up to more than the device peak.");
      return;
    }
    left -= term.bytes;
    memory.device_terms.push_back(std::move(term));
  }
}

void read_moment(const JsonValue& value, RehearsalRecord& record, JsonErrors& errors) {
  ObjectReader object(value, errors);
  PeakMoment& peak = record.memory.peak;
  read_phase(object, "phase", peak.phase);
  std::int64_t step = 0;
  if (object.optional("step", step, kRecordedCount) && step > 0) peak.instruction = fmt::format("step {}", step);
  read_text(object, "module", peak.op);
  if (const JsonValue* at = value_unless_null(object, "at")) read_place(*at, record.seen.peak_at, errors);
  if (const JsonValue* stack = object.optional_value("stack")) read_stack(*stack, record.seen.peak_stack, errors);
  object.finish(UnknownKeys::Ignore);
}

void read_curve(const JsonValue& value, MemoryReport& memory, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("allocated", memory.live_over_step, kInBytes);
  if (const JsonValue* marks = object.optional_value("marks")) {
    if (expect_type(*marks, JsonType::Array, "a list", errors)) {
      for (const JsonValue& element : marks->elements) {
        ObjectReader row(element, errors);
        PhaseMark mark;
        row.required("phase", mark.phase, kStepPhaseTable);
        row.required("index", mark.index, kRecordedCount);
        row.finish(UnknownKeys::Ignore);
        memory.phase_marks.push_back(std::move(mark));
      }
    }
  }
  object.finish(UnknownKeys::Ignore);
}

void read_memory(const JsonValue& value, RehearsalRecord& record, JsonErrors& errors) {
  // Empty if the hook could not read it; a warning of the record has the reason.
  if (value.type == JsonType::Object && value.members.empty()) return;
  ObjectReader object(value, errors);
  MemoryReport& memory = record.memory;
  if (const JsonValue* peaks = object.required_value("peaks")) {
    ObjectReader row(*peaks, errors);
    read_peaks(row, memory.peaks);
  }
  if (const JsonValue* terms = object.optional_value("device_terms")) read_terms(*terms, memory, errors);
  if (const JsonValue* phases = object.optional_value("phases")) read_phases(*phases, memory, errors);
  object.optional("at_end_requested", record.seen.at_end_requested, kInBytes);
  object.optional("at_end_allocated", record.seen.at_end_allocated, kInBytes);
  object.optional("cache_flushes", memory.cache_flushes, kRecordedCount);
  object.optional("host_pinned_bytes", memory.host_pinned, kInBytes);
  object.optional("out_of_memory_errors", record.seen.out_of_memory_errors, kRecordedCount);
  if (const JsonValue* peak = value_unless_null(object, "peak")) read_moment(*peak, record, errors);
  if (const JsonValue* failed = value_unless_null(object, "failed_allocation")) {
    read_failed_allocation(*failed, record.seen.failed.emplace(), errors);
  }
  if (const JsonValue* sites = object.optional_value("at_peak")) read_sites(*sites, record.seen.allocations, errors);
  if (const JsonValue* categories = value_unless_null(object, "categories")) {
    read_categories(*categories, record.seen.categories, errors);
  }
  if (const JsonValue* curve = value_unless_null(object, "over_step")) read_curve(*curve, memory, errors);
  object.finish(UnknownKeys::Ignore);
}

void read_all_collectives(const JsonValue& value, RehearsalRecord& record, JsonErrors& errors) {
  ObjectReader object(value, errors);
  if (const JsonValue* step = object.optional_value("steady_step")) {
    read_collectives(*step, record.collectives, errors);
  }
  object.finish(UnknownKeys::Ignore);
}

void check_version(ObjectReader& object) {
  std::string version;
  if (!object.required("format_version", version)) return;
  const std::string_view major = kRecordFormatVersion.substr(0, kRecordFormatVersion.find('.') + 1);
  if (!version.starts_with(major)) {
    object.fail("format_version", fmt::format("This is format \"{}\".", version),
                fmt::format("This program reads {}; its Python files have another version.", kRecordFormatVersion));
  }
}

}  // namespace

bool fits(const RehearsalRecord& record) {
  return record.end != "out_of_memory";
}

bool needs_more(const RehearsalRecord& a, const RehearsalRecord& b) {
  if (fits(a) != fits(b)) return !fits(a);
  return a.memory.peaks.device > b.memory.peaks.device;
}

Result<RehearsalRecord> read_record(const JsonDocument& document) {
  JsonErrors errors(document);
  RehearsalRecord record;
  ObjectReader object(document.root, errors);
  check_version(object);
  if (const JsonValue* end = object.required_value("end")) read_end(*end, record, errors);
  if (const JsonValue* value = value_unless_null(object, "environment")) read_environment(*value, record, errors);
  if (const JsonValue* value = value_unless_null(object, "job")) read_job(*value, record.job, errors);
  object.optional("steps", record.seen.steps, kRecordedCount);
  if (const JsonValue* value = value_unless_null(object, "seconds")) read_seconds(*value, record, errors);
  object.optional("host_peak_bytes", record.host_peak, kInBytes);
  if (const JsonValue* value = value_unless_null(object, "gpu")) read_gpu(*value, record, errors);
  if (const JsonValue* value = value_unless_null(object, "memory")) read_memory(*value, record, errors);
  if (const JsonValue* value = value_unless_null(object, "collectives")) read_all_collectives(*value, record, errors);
  if (const JsonValue* value = value_unless_null(object, "applied")) {
    read_applied(*value, record, errors);
  }
  if (const JsonValue* value = value_unless_null(object, "warnings")) {
    read_warnings(*value, record.seen.warnings, errors);
  }
  if (const JsonValue* value = value_unless_null(object, "limits")) read_limits(*value, record.seen.limits, errors);
  object.finish(UnknownKeys::Ignore);
  record.seen.rank = record.job.rank;
  return std::move(errors).result(std::move(record));
}

}  // namespace fsdp::runs
