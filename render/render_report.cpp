#include "render/render_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/json_writer.h"
#include "core/base/parse_units.h"
#include "core/report/device_verdict.h"
#include "planner/space/batches.h"
#include "render/render_brief.h"
#include "render/render_plan.h"
#include "text/curve_text.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

constexpr std::size_t kMostCategories = 6;
constexpr std::size_t kMostLiveTensors = 20;
/// From this number of parameters, other parallelism is usual: torchtitan 0.2.2 ships its Llama-3.1-8B with data
/// parallelism only, and 70B and 405B with tensor parallelism of 8 (torchtitan/models/llama3/train_configs).
constexpr std::int64_t kUsuallySplit = 30'000'000'000;

std::string join(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, text::kDot));
}

/// The largest categories with their bytes, then the rest as one.
std::string categories(const BytesByCategory& at_peak) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < at_peak.size(); ++i) {
    if (at_peak[i] > Bytes(0)) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return at_peak[a] > at_peak[b]; });
  std::vector<std::string> parts;
  Bytes rest;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Bytes bytes = at_peak[order[i]];
    if (i < kMostCategories || order.size() == kMostCategories + 1) {
      parts.push_back(fmt::format("{} {}", name_of(static_cast<MemoryCategory>(order[i])), format_bytes(bytes)));
    } else {
      rest += bytes;
    }
  }
  if (rest > Bytes(0)) parts.push_back(fmt::format("other {}", format_bytes(rest)));
  return join(parts);
}

/// "needs 572 GiB of host memory per node (not checked: give --host-mem)"; `nullopt` if the verdict has it.
std::optional<std::string> host_line(const StepReport& report) {
  if (!report.memory.host) return std::nullopt;
  const HostMemory& host = *report.memory.host;
  const std::string needs = fmt::format("needs {} of host memory per node", format_bytes(host.needed));
  if (!host.budget) return needs + " (not checked: give --host-mem)";
  if (host.missing() > Bytes(0)) return std::nullopt;
  return fmt::format("{}, of {}; {} headroom after a {} safety margin", needs, format_bytes(*host.budget),
                     format_bytes(*host.budget - host.needed - host.margin), format_bytes(host.margin));
}

/// "needs 578 GiB of host memory per node, 537 GiB short of 64.0 GiB (with a 23.1 GiB safety margin)"; empty if nothing
/// is missing.
std::string host_missing(const MemoryReport& memory) {
  if (!memory.host || memory.host->missing() == Bytes(0)) return "";
  const HostMemory& host = *memory.host;
  return fmt::format("needs {} of host memory per node, {} short of {} (with a {} safety margin)",
                     format_bytes(host.needed), format_bytes(host.missing()), format_bytes(*host.budget),
                     format_bytes(host.margin));
}

/// "files of 1.2 TiB on the NVMe drives of a node; reads 1.2 TiB and writes 1.2 TiB a step at 4.5 GB/s (assumed)".
std::optional<std::string> drive_line(const MemoryReport& memory) {
  if (!memory.drive) return std::nullopt;
  const DriveReport& drive = *memory.drive;
  const std::string of = drive.capacity ? fmt::format(" of {}", format_bytes(*drive.capacity)) : "";
  return fmt::format("{}{} in files on the NVMe drives of a node, which read {} and write {} in a step, at {} ({})",
                     format_bytes(drive.kept), of, format_bytes(drive.read), format_bytes(drive.written),
                     format_bandwidth(BytesPerSecond(static_cast<double>(drive.in_a_second.count()))),
                     name_of(drive.provenance));
}

/// "needs 1.2 TiB on the NVMe drives of a node, 200 GiB more than they hold"; empty if nothing is missing.
std::string drive_missing(const MemoryReport& memory) {
  if (!memory.drive || memory.drive->missing() == Bytes(0)) return "";
  return fmt::format("needs {} on the NVMe drives of a node, {} more than they hold", format_bytes(memory.drive->kept),
                     format_bytes(memory.drive->missing()));
}

std::string missing_outside(const MemoryReport& memory) {
  const std::string host = host_missing(memory);
  const std::string drive = drive_missing(memory);
  return host + (host.empty() || drive.empty() ? "" : "; ") + drive;
}

void add_device(text::Document& document, const MemoryReport& memory, const View& view) {
  if (!view.verbose) {
    // Here "nccl shard group: ring" and similar terms are one.
    std::vector<std::pair<std::string, Bytes>> groups;
    for (const DeviceTerm& term : memory.device_terms) {
      const std::string name = term.name.substr(0, term.name.find(": "));
      if (groups.empty() || groups.back().first != name) groups.emplace_back(name, Bytes(0));
      groups.back().second += term.bytes;
    }
    std::vector<std::string> parts;
    for (const auto& [name, bytes] : groups) parts.push_back(fmt::format("{} {}", name, format_bytes(bytes)));
    document.push_back(text::Entry{.label = "device", .lines = {join(parts)}});
    return;
  }
  text::Table table{
      .name = "device",
      .columns = {{"term", "term"}, {"bytes", "bytes", true}, {"provenance", "provenance"}, {"source", "source"}}};
  for (const DeviceTerm& term : memory.device_terms) {
    table.rows.push_back({term.name, text::cell(term.bytes), std::string(name_of(term.provenance)), term.source});
  }
  document.push_back(std::move(table));
}

void add_phases(text::Document& document, const MemoryReport& memory) {
  text::Table table{.name = "phases",
                    .columns = {{"phase", "phase"},
                                {"live", "live_peak_bytes", true},
                                {"allocated", "allocated_peak_bytes", true},
                                {"reserved", "reserved_peak_bytes", true},
                                {"device", "device_peak_bytes", true}}};
  for (const PhasePeaks& phase : memory.phases) {
    const MemoryPeaks& peaks = phase.peaks;
    table.rows.push_back({std::string(name_of(phase.phase)), text::cell(peaks.live), text::cell(peaks.allocated),
                          text::cell(peaks.reserved), text::cell(peaks.device)});
  }
  if (!table.rows.empty()) document.push_back(std::move(table));
}

void add_live_tensors(text::Document& document, const MemoryReport& memory) {
  text::Table table{.name = "live",
                    .columns = {{"bytes", "bytes", true},
                                {"count", "count", true},
                                {"category", "category"},
                                {"tensor at the peak", "name"}}};
  Bytes rest;
  for (const LiveTensor& tensor : memory.live_at_peak) {
    if (table.rows.size() < kMostLiveTensors) {
      table.rows.push_back(
          {text::cell(tensor.bytes), text::cell(tensor.count), std::string(name_of(tensor.category)), tensor.name});
    } else {
      rest += tensor.bytes;
    }
  }
  if (rest > Bytes(0)) table.rows.push_back({text::cell(rest), "", "", "smaller ones"});
  if (!table.rows.empty()) document.push_back(std::move(table));
}

void add_collectives(text::Document& document, const TrafficReport& traffic) {
  text::Table table{.name = "issued",
                    .columns = {{"kind", "kind"},
                                {"unit", "unit"},
                                {"phase", "phase"},
                                {"dtype", "dtype"},
                                {"size", "payload_bytes", true},
                                {"count", "elements", true},
                                {"ranks", "group_size", true},
                                {"time", "time", true},
                                {"exposed", "exposed", true}}};
  for (const Collective& each : traffic.collectives) {
    table.rows.push_back(
        {std::string(name_of(each.kind)), each.unit.empty() ? text::Cell{"root", ""} : text::Cell{each.unit},
         std::string(name_of(each.phase)), std::string(name_of(each.dtype)), text::cell(each.payload),
         text::cell(each.elements), text::cell(each.group_size), text::cell(each.time), text::cell(each.exposed)});
  }
  if (!table.rows.empty()) document.push_back(std::move(table));
}

/// The GPU is idle while the optimizer runs on the CPU.
std::string compute_of(const StepReport& report) {
  const TimeReport& time = report.time;
  if (!report.plan.cpu_offload) return fmt::format("compute {}", format_time(time.compute));
  return fmt::format("compute {} on the GPU, then {} of optimizer on the CPU",
                     format_time(time.compute - time.optimizer), format_time(time.optimizer));
}

}  // namespace

std::string band_of(const TimeReport& time) {
  if (const std::vector<std::string>& unknown = time.without_cost; !unknown.empty()) {
    const std::string others = unknown.size() > 1 ? fmt::format(" and {} more", unknown.size() - 1) : "";
    return fmt::format("{} or more: no cost is known of {}{}", format_time(time.low), unknown.front(), others);
  }
  return fmt::format("{} to {}", format_time(time.low), format_time(time.high));
}

std::string tightness_of(const MemoryReport& memory) {
  const std::string price =
      memory.flush_time > Seconds(0) ? fmt::format(", about {} more a step", format_time(memory.flush_time)) : "";
  const std::string flushes = text::counted(memory.step_flushes, "time");
  switch (memory.tightness) {
    case Tightness::Margin:
      return fmt::format("{} left of a {} safety margin", format_bytes(memory.budget - memory.peaks.device),
                         format_bytes(memory.margin));
    case Tightness::Streams: {
      std::string text = fmt::format("streams may hold {} longer", format_bytes(memory.held));
      return text + (memory.step_flushes > 0 ? fmt::format(": empties its cache up to {} a step{}", flushes, price)
                                             : ": the allocator waits for them");
    }
    case Tightness::Flushes:
      if (memory.step_flushes == 0) {
        return fmt::format("empties its cache {} in the first steps", text::counted(memory.cache_flushes, "time"));
      }
      return fmt::format("empties its cache {} a step{}", flushes, price);
    case Tightness::None:
      break;
  }
  return {};
}

namespace {

/// The missing memory of a plan that does not run; `peak`: with the budget, as text.
text::Entry refusal_of(const StepReport& report, bool no_plan_fits, const std::string& peak) {
  const MemoryReport& memory = report.memory;
  const std::string step = format_time(report.time.step);
  const std::string host = missing_outside(memory);
  std::string line;
  if (memory.peaks.device + memory.margin <= memory.budget && !host.empty()) {
    line = fmt::format("{}; peak {}", host, peak);
  } else {
    std::string missing = "but PyTorch's allocator runs out of memory before its peak";
    if (memory.peaks.device > memory.budget) {
      missing = fmt::format("{} above it; emptying the allocator's cache does not help",
                            format_bytes(memory.peaks.device - memory.budget));
    } else if (!host.empty()) {
      missing = fmt::format("{} of its {} safety margin short", format_bytes(missing_room(memory)),
                            format_bytes(memory.margin));
    }
    line = fmt::format("{} {}, {}{}", no_plan_fits ? "the smallest needs" : "peak", peak, missing,
                       host.empty() ? "" : "; " + host);
  }
  return {.label = no_plan_fits ? "NO PLAN FITS" : "DOES NOT FIT",
          .lines = {fmt::format("{} · step {}", line, step)},
          .style = text::Style::Bad};
}

}  // namespace

text::Entry verdict_of(const StepReport& report, bool no_plan_fits) {
  const MemoryReport& memory = report.memory;
  const Bytes peak = memory.peaks.device;
  const std::string step = fmt::format("step {} ({})", format_time(report.time.step), band_of(report.time));
  const std::string share = memory.budget > Bytes(0) ? text::percent(ratio(peak, memory.budget)) : "-";
  const std::string of = fmt::format("{} of {} ({})", format_bytes(peak), format_bytes(memory.budget), share);
  switch (report.verdict) {
    case Verdict::Fits:
      if (is_tight(report)) {
        // With room it would reserve more than the device has; here it flushes some of that.
        const std::string_view what = peak > memory.budget ? "would take" : "peak";
        return {.label = "FITS, TIGHT",
                .lines = {fmt::format("{} {}; {} · {}", what, of, tightness_of(memory), step)},
                .style = text::Style::Warning};
      }
      return {
          .label = "FITS",
          .lines = {fmt::format("peak {}, {} headroom after a {} safety margin · {}", of,
                                format_bytes(memory.budget - peak - memory.margin), format_bytes(memory.margin), step)},
          .style = text::Style::Good};
    case Verdict::DoesNotFit:
      return refusal_of(report, no_plan_fits, of);
    case Verdict::Unknown:
      break;
  }
  return {.label = "UNKNOWN", .lines = {fmt::format("peak {} · {}", of, step)}, .style = text::Style::Warning};
}

std::string speed_of(const StepReport& report) {
  const TimeReport& time = report.time;
  if (time.step <= Seconds(0)) return "";
  std::vector<std::string> parts;
  const double samples = static_cast<double>(planner::samples_of(report.plan)) / time.step.count();
  const std::string figure =
      samples < 1000 ? fmt::format("{:.3g}", samples) : text::grouped(static_cast<std::int64_t>(samples + 0.5));
  parts.push_back(figure + " samples/s");
  if (time.tokens_per_second_per_gpu > 0) {
    parts.push_back(fmt::format("{} tokens/s per GPU",
                                text::grouped(static_cast<std::int64_t>(time.tokens_per_second_per_gpu + 0.5))));
  }
  parts.push_back("MFU " + text::percent(time.mfu));
  return join(parts);
}

std::string scope_of(const StepReport& report) {
  if (report.parameters < kUsuallySplit || report.plan.mesh.world_size() == 1) return "";
  if (report.plan.mesh.ep > 1) return "data and expert parallel: no tensor or pipeline parallelism";
  return "data parallel only: no tensor, pipeline or expert parallelism";
}

void add_speed(text::Document& document, const StepReport& report) {
  if (std::string speed = speed_of(report); !speed.empty()) {
    document.push_back(text::Entry{.label = "speed", .lines = {std::move(speed)}});
  }
  if (std::string scope = scope_of(report); !scope.empty()) {
    document.push_back(text::Entry{.label = "scope", .lines = {std::move(scope)}});
  }
}

text::Table summary_of(const StepReport& report) {
  return {.name = "summary",
          .columns = {{"verdict", "verdict"},
                      {"budget", "budget_bytes", true},
                      {"margin", "margin_bytes", true},
                      {"live", "live_peak_bytes", true},
                      {"allocated", "allocated_peak_bytes", true},
                      {"reserved", "reserved_peak_bytes", true},
                      {"device", "device_peak_bytes", true},
                      {"step", "step", true},
                      {"compute", "compute", true},
                      {"exposed", "exposed_communication", true},
                      {"tokens/s per GPU", "tokens_per_second_per_gpu", true},
                      {"MFU", "mfu", true},
                      {"host", "host_needed_bytes", true}},
          .rows = {{std::string(name_of(report.verdict)), text::cell(report.memory.budget),
                    text::cell(report.memory.margin), text::cell(report.memory.peaks.live),
                    text::cell(report.memory.peaks.allocated), text::cell(report.memory.peaks.reserved),
                    text::cell(report.memory.peaks.device), text::cell(report.time.step),
                    text::cell(report.time.compute), text::cell(report.time.exposed_communication),
                    shortest(report.time.tokens_per_second_per_gpu), shortest(report.time.mfu),
                    report.memory.host ? text::cell(report.memory.host->needed) : text::Cell{"", ""}}},
          .only_for_scripts = true};
}

void add_host(text::Document& document, const StepReport& report, const View& view) {
  if (const auto line = host_line(report)) document.push_back(text::Entry{.label = "host", .lines = {*line}});
  if (const auto line = drive_line(report.memory)) document.push_back(text::Entry{.label = "drive", .lines = {*line}});
  if (!view.verbose || !report.memory.host) return;
  text::Table table{
      .name = "host",
      .columns = {{"of a node", "term"}, {"bytes", "bytes", true}, {"provenance", "provenance"}, {"source", "source"}}};
  for (const DeviceTerm& term : report.memory.host->terms) {
    table.rows.push_back({term.name, text::cell(term.bytes), std::string(name_of(term.provenance)), term.source});
  }
  document.push_back(std::move(table));
}

// "Qwen3-1.7B (root): 415 MiB live, 3.9 GiB more in its forward · gathers 3.2 GiB in 1 collective · 21 ms of the step"
std::vector<std::string> lines_of(const std::vector<OtherReport>& others) {
  std::vector<std::string> lines;
  for (const OtherReport& other : others) {
    std::string line = fmt::format("{}: {} live, {} more in its forward", other.how, format_bytes(other.resident),
                                   format_bytes(other.forward));
    if (other.host > Bytes(0))
      line += fmt::format("{}{} of host memory per node", text::kDot, format_bytes(other.host));
    if (other.gathers > 0) {
      line += fmt::format("{}gathers {} in {}", text::kDot, format_bytes(other.gathered),
                          text::counted(other.gathers, "collective"));
    }
    lines.push_back(line + fmt::format("{}{} of the step", text::kDot, format_time(other.time)));
  }
  return lines;
}

void add_plan_and_memory(text::Document& document, const StepReport& report, const planner::ModelFacts& facts,
                         const std::string& batch_origin, const View& view) {
  const MemoryReport& memory = report.memory;
  document.push_back(text::Entry{.label = "plan", .lines = describe(report.plan, facts, batch_origin)});
  document.push_back(text::Entry{.label = "peak", .lines = {moment_of(memory, true), categories(memory.at_peak)}});
  if (!report.others.empty()) {
    document.push_back(text::Entry{.label = "beside", .lines = lines_of(report.others)});
  }
  add_device(document, memory, view);
  add_host(document, report, view);
  if (view.pictures) {
    std::vector<std::string> curve = text::memory_curve(memory, view.width - text::kCurveIndent);
    if (!curve.empty())
      document.push_back(text::Entry{.label = "memory", .lines = std::move(curve), .is_picture = true});
  }
  if (!view.verbose) return;
  add_live_tensors(document, memory);
  add_phases(document, memory);
}

void add_traffic_and_time(text::Document& document, const StepReport& report, const View& view) {
  text::Table table{.name = "traffic",
                    .columns = {{"per step", "kind"},
                                {"count", "count", true},
                                {"payload", "payload_bytes", true},
                                {"sent per rank", "sent_bytes_per_rank", true}}};
  for (std::size_t i = 0; i < report.traffic.totals.size(); ++i) {
    const TrafficTotal& total = report.traffic.totals[i];
    if (total.count == 0) continue;
    table.rows.push_back({std::string(name_of(static_cast<CollectiveKind>(i))), text::cell(total.count),
                          text::cell(total.payload), text::cell(total.sent_per_rank)});
  }
  if (table.rows.empty()) {
    document.push_back(text::Entry{.label = "traffic", .lines = {"none"}});
  } else {
    document.push_back(std::move(table));
  }
  if (report.nodes > 1) {
    document.push_back(text::Entry{.label = "links",
                                   .lines = {fmt::format("sent per rank and step: {} inside a node, {} between nodes",
                                                         format_bytes(report.traffic.sent_inside_node),
                                                         format_bytes(report.traffic.sent_between_nodes))}});
  }
  if (view.verbose) add_collectives(document, report.traffic);
  const TimeReport& time = report.time;
  document.push_back(text::Entry{.label = "time",
                                 .lines = {fmt::format("{} · exposed communication {}", compute_of(report),
                                                       format_time(time.exposed_communication))}});
}

void add_assumptions(text::Document& document, const std::vector<std::string>& assumptions) {
  if (!assumptions.empty()) document.push_back(text::Entry{.label = "assume", .lines = assumptions});
}

}  // namespace fsdp::render
