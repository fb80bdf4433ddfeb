#include <algorithm>

#include "core/base/json_writer.h"
#include "core/report/report_json.h"
#include "render/render_replay.h"

namespace fsdp::render {

namespace {

void write_refusal(JsonWriter& writer, const replay::Recording& recording, const replay::ReplayRefusal& refusal) {
  writer.key("first_refusal");
  writer.begin_object();
  writer.member("step", refusal.step);
  writer.member("requested_bytes", refusal.failure.requested.count());
  writer.member("tried_bytes", refusal.failure.tried.count());
  writer.member("device_free_bytes", refusal.failure.device_free.count());
  writer.member("allocated_bytes", refusal.failure.allocated.count());
  writer.member("reserved_bytes", refusal.failure.reserved.count());
  const replay::RecordedOrigin origin = recording.origin(refusal.step);
  if (origin.time_us) writer.member("time_us", *origin.time_us);
  writer.key("stack");
  writer.begin_array();
  for (const PythonFrame& frame : origin.stack) {
    writer.begin_object(JsonLayout::OneLine);
    writer.member("file", frame.file);
    writer.member("line", frame.line);
    writer.member("function", frame.function);
    writer.end_object();
  }
  writer.end_array();
  writer.end_object();
}

void write_curve(JsonWriter& writer, std::string_view key, const std::vector<Bytes>& values) {
  std::vector<std::int64_t> bytes;
  bytes.reserve(values.size());
  for (const Bytes value : values) bytes.push_back(value.count());
  writer.member(key, bytes);
}

void write_run(JsonWriter& writer, std::string_view key, const replay::Recording& recording,
               const replay::ReplayRequest& request, const replay::ReplayResult& result, bool knows_device) {
  writer.key(key);
  writer.begin_object();
  writer.member("alloc_conf", request.settings_text);
  writer.key("device_bytes");
  if (knows_device) {
    writer.value(request.device.total.count());
  } else {
    writer.value(nullptr);
  }
  writer.member("requested_peak_bytes", result.requested_peak.count());
  writer.member("allocated_peak_bytes", result.allocated_peak.count());
  writer.member("active_peak_bytes", result.active_peak.count());
  writer.member("reserved_peak_bytes", result.reserved_peak.count());
  writer.member("reserved_peak_step", result.reserved_peak_step);
  writer.member("unused_at_reserved_peak_bytes", result.unused_at_peak.count());
  writer.member("unused_peak_bytes", result.unused_peak.count());
  writer.member("num_alloc_retries", result.statistics.num_alloc_retries);
  writer.member("num_refused", result.num_refused);
  writer.member("num_cuda_malloc", result.driver_calls.num_malloc);
  writer.member("num_cuda_free", result.driver_calls.num_free);
  writer.member("num_cu_mem_create", result.driver_calls.num_create);
  writer.member("num_cu_mem_unmap", result.driver_calls.num_unmap);
  if (result.first_refusal) write_refusal(writer, recording, *result.first_refusal);
  write_curve(writer, "allocated_over_time_bytes", result.allocated);
  write_curve(writer, "reserved_over_time_bytes", result.reserved);
  writer.end_object();
}

}  // namespace

std::string to_json(const ReplayAnswer& answer) {
  const replay::Recording& recording = answer.recording;
  JsonWriter writer;
  writer.begin_object();
  writer.member("format_version", kReportFormatVersion);
  writer.member("kind", "replay");
  writer.member("verdict", answer.answer().first_refusal ? "does_not_fit" : answer.knows_device ? "fits" : "unknown");
  writer.key("recording");
  writer.begin_object();
  writer.member("kind", recording.is_snapshot ? "snapshot" : "trace");
  writer.member("steps", recording.trace.steps.size());
  writer.member("blocks_before", recording.num_before);
  writer.member("bytes_before", recording.bytes_before.count());
  if (!recording.reserved.empty()) {
    const Bytes peak = *std::max_element(recording.reserved.begin(), recording.reserved.end());
    writer.member("reserved_peak_bytes", peak.count());
  }
  writer.member("notes", recording.notes);
  writer.end_object();
  write_run(writer, "recorded", recording, answer.as_was, answer.recorded, recording.knows_device);
  if (answer.replayed) {
    write_run(writer, "replayed", recording, *answer.request, *answer.replayed, answer.knows_device);
  }
  writer.end_object();
  return std::move(writer).take();
}

}  // namespace fsdp::render
