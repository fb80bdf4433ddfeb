#include <string>

#include "core/report/report_json.h"

namespace fsdp {

namespace {

constexpr JsonLayout kOneLine = JsonLayout::OneLine;

void write_if(JsonWriter& writer, std::string_view key, const std::string& text) {
  if (!text.empty()) writer.member(key, text);
}

void write_if(JsonWriter& writer, std::string_view key, const std::optional<bool>& value) {
  if (value) writer.member(key, *value);
}

void write_place(JsonWriter& writer, const std::string& file, std::int64_t line) {
  if (file.empty()) return;
  writer.member("file", file);
  if (line > 0) writer.member("line", line);
}

void write_frame(JsonWriter& writer, const PythonFrame& frame) {
  write_place(writer, frame.file, frame.line);
  write_if(writer, "function", frame.function);
}

/// A line of Python, where there is one.
void write_frame_member(JsonWriter& writer, std::string_view key, const PythonFrame& frame) {
  if (frame.file.empty()) return;
  writer.key(key);
  writer.begin_object(kOneLine);
  write_frame(writer, frame);
  writer.end_object();
}

/// A list, an object on a line for each element.
template <class T, class Write>
void write_rows(JsonWriter& writer, std::string_view key, const std::vector<T>& rows, Write write) {
  writer.key(key);
  writer.begin_array();
  for (const T& row : rows) {
    writer.begin_object(kOneLine);
    write(row);
    writer.end_object();
  }
  writer.end_array();
}

void write_frames(JsonWriter& writer, std::string_view key, const std::vector<PythonFrame>& frames) {
  write_rows(writer, key, frames, [&](const PythonFrame& frame) { write_frame(writer, frame); });
}

void write_range(JsonWriter& writer, std::string_view key, const PeakRange& range) {
  writer.key(key);
  writer.begin_object(kOneLine);
  writer.member("low_bytes", range.low.count());
  writer.member("high_bytes", range.high.count());
  writer.end_object();
}

void write_environment(JsonWriter& writer, const Rehearsal& rehearsal) {
  writer.key("environment");
  writer.begin_object();
  writer.member("python", rehearsal.python);
  writer.member("torch", rehearsal.torch);
  write_if(writer, "cuda", rehearsal.cuda);
  writer.key("packages");
  writer.begin_object();
  for (const Package& package : rehearsal.packages) writer.member(package.name, package.version);
  writer.end_object();
  writer.end_object();
}

void write_ranks(JsonWriter& writer, const Rehearsal& rehearsal) {
  writer.member("rank", rehearsal.rank);
  writer.member("both_bounds", rehearsal.both_bounds);
  writer.member("timing_decides", rehearsal.timing_decides);
  write_rows(writer, "ranks", rehearsal.ranks, [&](const RehearsedRank& rank) {
    writer.member("rank", rank.rank);
    writer.member("fits", rank.fits);
    writer.member("allocated_peak_bytes", rank.allocated.count());
    write_range(writer, "reserved_peak", rank.reserved);
    write_range(writer, "device_peak", rank.device);
  });
}

void write_wrapper(JsonWriter& writer, const AppliedWrapper& wrapper) {
  writer.begin_object();
  writer.member("name", wrapper.name);
  write_if(writer, "model", wrapper.model);
  writer.member("class", wrapper.class_name);
  write_if(writer, "version", wrapper.version);
  write_if(writer, "strategy", wrapper.strategy);
  if (wrapper.zero_stage) writer.member("zero_stage", *wrapper.zero_stage);
  write_if(writer, "param_dtype", wrapper.param_dtype);
  write_if(writer, "reduce_dtype", wrapper.reduce_dtype);
  write_if(writer, "buffer_dtype", wrapper.buffer_dtype);
  write_if(writer, "reshard_after_forward", wrapper.reshard_after_forward);
  writer.member("offload", wrapper.offload);
  writer.member("autocast", wrapper.autocast);
  write_rows(writer, "units", wrapper.units, [&](const AppliedUnit& unit) {
    writer.member("name", unit.name);
    writer.member("class", unit.class_name);
    writer.member("parameters", unit.parameters);
    writer.member("elements", unit.elements);
  });
  writer.end_object();
}

void write_applied(JsonWriter& writer, const Rehearsal& rehearsal) {
  writer.key("applied");
  writer.begin_object();
  writer.key("wrappers");
  writer.begin_array();
  for (const AppliedWrapper& wrapper : rehearsal.wrappers) write_wrapper(writer, wrapper);
  writer.end_array();
  writer.key("parameter_dtypes");
  writer.begin_object(kOneLine);
  for (const ElementsOfDtype& each : rehearsal.parameter_dtypes) writer.member(each.dtype, each.elements);
  writer.end_object();
  write_rows(writer, "optimizers", rehearsal.optimizers, [&](const AppliedOptimizer& optimizer) {
    writer.member("class", optimizer.class_name);
    write_if(writer, "foreach", optimizer.foreach);
    write_if(writer, "fused", optimizer.fused);
    writer.member("parameters", optimizer.parameters);
  });
  if (!rehearsal.techniques.empty()) writer.member("techniques", rehearsal.techniques);
  writer.end_object();
}

void write_limits(JsonWriter& writer, const RehearsalLimits& limits) {
  writer.key("limits");
  writer.begin_object();
  write_rows(writer, "readbacks", limits.readbacks, [&](const Readback& readback) {
    writer.member("operation", readback.operation);
    write_place(writer, readback.file, readback.line);
    writer.member("count", readback.count);
    writer.member("steers_sizes", readback.steers_sizes);
  });
  writer.member("missing_functions", limits.missing_functions);
  writer.member("allocator_event_queries", limits.allocator_event_queries);
  writer.member("cudnn_plans", limits.cudnn_plans);
  writer.member("cudnn_workspace_bytes", limits.cudnn_workspace.count());
  writer.member("routing", limits.routing);
  writer.member("triton", limits.triton);
  writer.member("cuda_graphs", limits.cuda_graphs);
  writer.member("data_dependent_routing", limits.data_dependent_routing);
  writer.end_object();
}

void write_end(JsonWriter& writer, const Rehearsal& rehearsal) {
  writer.member("end", rehearsal.end);
  if (rehearsal.error) {
    writer.key("error");
    writer.begin_object();
    writer.member("type", rehearsal.error->type);
    writer.member("message", rehearsal.error->message);
    writer.member("traceback", rehearsal.error->traceback);
    writer.end_object();
  }
  if (!rehearsal.failed) return;
  writer.key("failed_allocation");
  writer.begin_object();
  writer.member("bytes", rehearsal.failed->bytes.count());
  writer.member("phase", rehearsal.failed->phase);
  writer.member("step", rehearsal.failed->step);
  writer.member("module", rehearsal.failed->module);
  writer.member("device_free_bytes", rehearsal.failed->free.count());
  write_frame_member(writer, "at", rehearsal.failed->at);
  write_frames(writer, "stack", rehearsal.failed->stack);
  writer.end_object();
}

}  // namespace

void write_rehearsal(JsonWriter& writer, const Rehearsal& rehearsal) {
  writer.key("rehearsal");
  writer.begin_object();
  writer.member("measured_on", rehearsal.measured_on);
  writer.member("command", rehearsal.command);
  write_end(writer, rehearsal);
  write_environment(writer, rehearsal);
  writer.member("steps", rehearsal.steps);
  write_ranks(writer, rehearsal);
  if (!rehearsal.unplayed.empty()) {
    write_rows(writer, "unplayed_ranks", rehearsal.unplayed, [&](const UnplayedRank& unplayed) {
      writer.member("rank", unplayed.rank);
      writer.member("why", unplayed.why);
    });
  }
  writer.member("out_of_memory_errors", rehearsal.out_of_memory_errors);
  writer.member("at_end_requested_bytes", rehearsal.at_end_requested.count());
  writer.member("at_end_allocated_bytes", rehearsal.at_end_allocated.count());
  write_applied(writer, rehearsal);
  write_frame_member(writer, "peak_at", rehearsal.peak_at);
  write_frames(writer, "peak_stack", rehearsal.peak_stack);
  if (!rehearsal.categories.empty()) {
    writer.key("categories_at_peak");
    writer.begin_object(kOneLine);
    for (const PeakCategory& each : rehearsal.categories) writer.member(each.name, each.bytes.count());
    writer.end_object();
  }
  write_rows(writer, "allocations_at_peak", rehearsal.allocations, [&](const AllocationSite& site) {
    write_frame(writer, site.frame);
    write_if(writer, "through", site.through);
    writer.member("count", site.count);
    writer.member("bytes", site.bytes.count());
  });
  write_rows(writer, "warnings", rehearsal.warnings, [&](const RehearsalWarning& warning) {
    writer.member("kind", warning.kind);
    writer.member("text", warning.text);
    write_place(writer, warning.file, warning.line);
  });
  write_limits(writer, rehearsal.limits);
  writer.end_object();
}

}  // namespace fsdp
