#include "core/report/report_json.h"

#include <numeric>
#include <string>

#include "core/plan/plan_file.h"

namespace fsdp {

namespace {

std::optional<double> dimension(const Plan& plan, std::string_view name) {
  for (const Dimension& candidate : plan.dimensions) {
    if (candidate.name == name) return candidate.value;
  }
  return std::nullopt;
}

void write_model(JsonWriter& writer, const StepReport& report) {
  writer.key("model");
  writer.begin_object();
  writer.member("name", report.model);
  writer.member("parameters", report.parameters);
  writer.member("trainable_parameters", report.trainable_parameters);
  if (report.receives_gradient_parameters >= 0) {
    writer.member("receives_gradient_parameters", report.receives_gradient_parameters);
  }
  if (report.buffers >= Bytes(0)) writer.member("buffers_bytes", report.buffers.count());
  writer.end_object();
}

void write_machines(JsonWriter& writer, const StepReport& report) {
  writer.key("cluster");
  writer.begin_object();
  writer.member("gpu", report.gpu);
  writer.member("gpus_per_node", report.gpus_per_node);
  writer.member("nodes", report.nodes);
  writer.member("memory_bytes", report.memory.budget.count());
  writer.member("assumptions", report.assumptions);
  writer.end_object();
}

void write_workload(JsonWriter& writer, const Plan& plan) {
  writer.key("workload");
  writer.begin_object();
  if (const auto batch = dimension(plan, "batch")) writer.member("micro_batch", *batch);
  if (const auto seq = dimension(plan, "seq")) writer.member("sequence", *seq);
  writer.key("dimensions");
  writer.begin_object();
  for (const Dimension& each : plan.dimensions) writer.member(each.name, each.value);
  writer.end_object();
  writer.member("accumulation", plan.accumulation);
  writer.member("world_size", plan.mesh.world_size());
  writer.end_object();
}

void write_peaks(JsonWriter& writer, const MemoryPeaks& peaks) {
  const auto peak = [&](std::string_view name, Bytes bytes) {
    if (bytes >= Bytes(0)) writer.member(name, bytes.count());
  };
  peak("live_peak_bytes", peaks.live);
  peak("allocated_peak_bytes", peaks.allocated);
  peak("reserved_peak_bytes", peaks.reserved);
  peak("device_peak_bytes", peaks.device);
}

void write_live_at_peak(JsonWriter& writer, const std::vector<LiveTensor>& tensors) {
  writer.key("live_at_peak");
  writer.begin_array();
  for (const LiveTensor& tensor : tensors) {
    writer.begin_object(JsonLayout::OneLine);
    writer.member("name", tensor.name);
    writer.member("category", name_of(tensor.category));
    writer.member("count", tensor.count);
    writer.member("bytes", tensor.bytes.count());
    writer.end_object();
  }
  writer.end_array();
}

void write_terms(JsonWriter& writer, std::string_view key, const std::vector<DeviceTerm>& terms) {
  writer.key(key);
  writer.begin_array();
  for (const DeviceTerm& term : terms) {
    writer.begin_object(JsonLayout::OneLine);
    writer.member("name", term.name);
    writer.member("bytes", term.bytes.count());
    writer.member("provenance", name_of(term.provenance));
    writer.member("source", term.source);
    writer.end_object();
  }
  writer.end_array();
}

void write_host(JsonWriter& writer, const HostMemory& host) {
  writer.key("host");
  writer.begin_object();
  if (host.budget) writer.member("budget_bytes", host.budget->count());
  writer.member("margin_bytes", host.margin.count());
  writer.member("needed_bytes", host.needed.count());
  write_terms(writer, "terms", host.terms);
  writer.end_object();
}

void write_memory(JsonWriter& writer, const StepReport& report, bool has_categories) {
  const MemoryReport& memory = report.memory;
  writer.key("memory");
  writer.begin_object();
  if (report.kind == "predicted") writer.member("rank", memory.rank);
  writer.member("budget_bytes", memory.budget.count());
  writer.member("margin_bytes", memory.margin.count());
  write_peaks(writer, memory.peaks);
  writer.key("peak");
  writer.begin_object();
  writer.member("phase", memory.peak.phase);
  writer.member("instruction", memory.peak.instruction);
  writer.member("unit", memory.peak.unit);
  writer.member("op", memory.peak.op);
  writer.end_object();
  // Only a prediction knows what each tensor is for.
  if (has_categories) {
    writer.key("at_peak");
    writer.begin_object();
    for (int i = 0; i < kNumMemoryCategories; ++i) {
      writer.member(name_of(static_cast<MemoryCategory>(i)), memory.at_peak[i].count());
    }
    writer.end_object();
  }
  write_live_at_peak(writer, memory.live_at_peak);
  write_terms(writer, "device_terms", memory.device_terms);
  writer.key("phases");
  writer.begin_object();
  for (const PhasePeaks& phase : memory.phases) {
    writer.key(phase.phase);
    writer.begin_object(JsonLayout::OneLine);
    write_peaks(writer, phase.peaks);
    if (!phase.parts.empty()) {
      writer.key("live_peak_bytes_of");
      writer.begin_object(JsonLayout::OneLine);
      for (const PartPeak& part : phase.parts) writer.member(part.part, part.live.count());
      writer.end_object();
    }
    writer.end_object();
  }
  writer.end_object();
  writer.member("cache_flushes", memory.cache_flushes);
  writer.member("host_pinned_bytes", memory.host_pinned.count());
  if (memory.host) write_host(writer, *memory.host);
  writer.key("live_over_step_bytes");
  writer.begin_array(JsonLayout::OneLine);
  for (const Bytes live : memory.live_over_step) writer.value(live.count());
  writer.end_array();
  writer.key("phase_marks");
  writer.begin_array();
  for (const PhaseMark& mark : memory.phase_marks) {
    writer.begin_object(JsonLayout::OneLine);
    writer.member("phase", mark.phase);
    writer.member("index", mark.index);
    writer.end_object();
  }
  writer.end_array();
  writer.end_object();
}

void write_live(JsonWriter& writer, const Collective& collective) {
  writer.member("live_bytes", std::accumulate(collective.live.begin(), collective.live.end(), Bytes(0)).count());
  writer.member("first_step_live_bytes", collective.first_step_live.count());
  writer.key("live");
  writer.begin_object(JsonLayout::OneLine);
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    const Bytes bytes = collective.live[i];
    if (bytes > Bytes(0)) writer.member(name_of(static_cast<MemoryCategory>(i)), bytes.count());
  }
  writer.end_object();
}

void write_traffic(JsonWriter& writer, const TrafficReport& traffic, bool has_times, bool has_categories) {
  writer.key("traffic");
  writer.begin_object();
  writer.key("totals");
  writer.begin_object();
  for (std::size_t i = 0; i < traffic.totals.size(); ++i) {
    const bool always = i <= static_cast<std::size_t>(CollectiveKind::AllReduce);
    if (!always && traffic.totals[i].count == 0) continue;
    writer.key(name_of(static_cast<CollectiveKind>(i)));
    writer.begin_object(JsonLayout::OneLine);
    writer.member("count", traffic.totals[i].count);
    writer.member("payload_bytes", traffic.totals[i].payload.count());
    writer.member("sent_bytes_per_rank", traffic.totals[i].sent_per_rank.count());
    writer.end_object();
  }
  writer.end_object();
  if (traffic.sent_inside_node >= Bytes(0)) {
    writer.member("sent_inside_node_bytes_per_rank", traffic.sent_inside_node.count());
    writer.member("sent_between_nodes_bytes_per_rank", traffic.sent_between_nodes.count());
  }
  writer.key("collectives");
  writer.begin_array();
  for (const Collective& collective : traffic.collectives) {
    writer.begin_object(JsonLayout::OneLine);
    writer.member("kind", name_of(collective.kind));
    writer.member("unit", collective.unit);
    writer.member("phase", collective.phase);
    writer.member("dtype", name_of(collective.dtype));
    writer.member("elements", collective.elements);
    writer.member("payload_bytes", collective.payload.count());
    writer.member("group", name_of(collective.group));
    writer.member("group_size", collective.group_size);
    if (collective.reduce_op != ReduceOp::None) writer.member("reduce_op", name_of(collective.reduce_op));
    if (collective.micro_batch >= 0) writer.member("micro_batch_index", collective.micro_batch);
    if (has_times) {
      writer.member("time", collective.time.count());
      writer.member("exposed", collective.exposed.count());
    }
    if (has_categories) write_live(writer, collective);
    writer.end_object();
  }
  writer.end_array();
  writer.end_object();
}

void write_time(JsonWriter& writer, const TimeReport& time) {
  writer.key("time");
  writer.begin_object();
  writer.member("step", time.step.count());
  writer.member("compute", time.compute.count());
  writer.member("exposed_communication", time.exposed_communication.count());
  writer.member("optimizer", time.optimizer.count());
  writer.member("tokens_per_second_per_gpu", time.tokens_per_second_per_gpu);
  writer.member("mfu", time.mfu);
  writer.key("uncertainty");
  writer.begin_object(JsonLayout::OneLine);
  writer.member("low", time.low.count());
  writer.member("high", time.high.count());
  writer.end_object();
  writer.end_object();
}

}  // namespace

void write_report_members(JsonWriter& writer, const StepReport& report, const Cluster* cluster) {
  writer.member("format_version", kReportFormatVersion);
  writer.member("kind", report.kind);
  writer.member("runtime", report.runtime);
  writer.member("runtime_version", report.runtime_version);
  writer.member("verdict", name_of(report.verdict));
  write_model(writer, report);
  write_machines(writer, report);
  if (!report.plan.units.empty()) {
    write_workload(writer, report.plan);
    writer.key("plan");
    write_plan(writer, report.plan, cluster);
  }
  const bool has_times = report.time.step > Seconds(0);
  const bool has_categories = !report.rehearsal;
  write_memory(writer, report, has_categories);
  write_traffic(writer, report.traffic, has_times, has_categories);
  if (has_times) write_time(writer, report.time);
  if (report.rehearsal) write_rehearsal(writer, *report.rehearsal);
}

}  // namespace fsdp
