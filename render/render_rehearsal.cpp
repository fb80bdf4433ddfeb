#include "render/render_rehearsal.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/parse_units.h"
#include "core/report/device_verdict.h"
#include "render/rehearsal_remedies.h"
#include "render/render_applied.h"
#include "render/render_comparison.h"
#include "text/curve_text.h"
#include "text/figures.h"
#include "text/python_text.h"
#include "text/shell_text.h"

namespace fsdp::render {

namespace {

constexpr std::size_t kMostAllocations = 8;
constexpr std::size_t kMostComparedTerms = 6;
constexpr std::size_t kMostRankRows = 12;

/// "4.20 GiB", or "4.20 to 5.00 GiB" at the two bounds.
std::string range_text(const PeakRange& range) {
  const std::string low = format_bytes(range.low);
  const std::string high = format_bytes(range.high);
  if (low == high) return high;
  // If both have the same unit, prints it once.
  const std::size_t low_unit = low.find(' ');
  const std::size_t high_unit = high.find(' ');
  const bool same_unit =
      low_unit != std::string::npos && low.substr(low_unit) == high.substr(std::min(high_unit, high.size()));
  return fmt::format("{} to {}", same_unit ? low.substr(0, low_unit) : low, high);
}

std::string_view name_or_somewhere(StepPhase phase) {
  return phase == StepPhase::Unknown ? "somewhere" : name_of(phase);
}

/// "backward of step 2", "evaluation after step 2".
std::string_view between(StepPhase phase) {
  return phase == StepPhase::Evaluation || phase == StepPhase::Saving ? " after " : " of ";
}

/// "backward of step 2, in model.layers.3.mlp".
std::string moment(StepPhase phase, std::int64_t step, std::string_view module) {
  std::string text(name_or_somewhere(phase));
  if (step > 0 && phase != StepPhase::Initialization) text += fmt::format("{}step {}", between(phase), step);
  if (!module.empty()) text += fmt::format(", in {}", module);
  return text;
}

std::string ranks_text(const StepReport& report) {
  const Rehearsal& seen = *report.rehearsal;
  std::string text = fmt::format("rank {} of {}", seen.rank, report.gpus_per_node * report.nodes);
  if (seen.ranks.size() > 1) text += fmt::format(", the worst of {} run", seen.ranks.size());
  if (seen.unplayed.size() == 1) text += fmt::format(" · rank {} could not be run", seen.unplayed.front().rank);
  if (seen.unplayed.size() > 1) text += fmt::format(" · {} ranks could not be run", seen.unplayed.size());
  return text;
}

void add_out_of_memory(text::Document& document, const StepReport& report, const RehearsalView& view) {
  const Rehearsal& seen = *report.rehearsal;
  if (report.verdict != Verdict::DoesNotFit) return;
  if (seen.error) document.push_back(text::Entry{.label = "says", .lines = {seen.error->message}});
  if (!seen.failed) return;
  text::Entry entry{.label = "failed", .lines = {moment(seen.failed->phase, seen.failed->step, seen.failed->module)}};
  text::add_stack(entry.lines, seen.failed->at, seen.failed->stack, view.folder, view.view.verbose);
  document.push_back(std::move(entry));
}

void add_run(text::Document& document, const StepReport& report, const RunFacts& facts) {
  const Rehearsal& seen = *report.rehearsal;
  const std::string where = seen.measured_on == "GPU" ? report.gpu : "a stub " + report.gpu;
  document.push_back(text::Entry{
      .label = "ran",
      .lines = {
          text::command_text(seen.command),
          fmt::format("{} on {} · torch {}, Python {}", text::counted(seen.steps, "step"), where, seen.torch,
                      seen.python),
          fmt::format("took {} and {} of host memory", format_time(facts.seconds), format_bytes(facts.host_peak))}});
}

void add_peaks(text::Document& document, const StepReport& report) {
  // Without a finished or a failed step, there was no step.
  const bool has_steps = report.rehearsal->steps > 0 || report.verdict == Verdict::DoesNotFit;
  text::Table table{.name = "peaks",
                    .columns = {{"phase", "phase"},
                                {"requested", "live_peak_bytes", true},
                                {"allocated", "allocated_peak_bytes", true},
                                {"reserved", "reserved_peak_bytes", true},
                                {"device", "device_peak_bytes", true}}};
  for (const PhasePeaks& phase : report.memory.phases) {
    const MemoryPeaks& peaks = phase.peaks;
    const std::string name = !has_steps && phase.phase == RunPhase::FirstStep ? "after it" : title_of(phase.phase);
    table.rows.push_back({{name, std::string(name_of(phase.phase))},
                          text::cell(peaks.live),
                          text::cell(peaks.allocated),
                          text::cell(peaks.reserved),
                          text::cell(peaks.device)});
  }
  if (!table.rows.empty()) document.push_back(std::move(table));
}

void add_ranks(text::Document& document, const Rehearsal& seen, bool verbose) {
  if (seen.ranks.size() < 2 && !seen.both_bounds && seen.unplayed.empty()) return;
  text::Table table{.name = "ranks",
                    .columns = {{"rank", "rank", true},
                                {"allocated", "allocated_peak_bytes", true},
                                {"reserved", "reserved_peak_bytes", true},
                                {"device", "device_peak_bytes", true},
                                {"", "verdict"}}};
  // The ranks that need most, by number.
  std::vector<const RehearsedRank*> rows;
  for (const RehearsedRank& rank : seen.ranks) rows.push_back(&rank);
  std::stable_sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) {
    return a->fits != b->fits ? !a->fits : a->device.high > b->device.high;
  });
  const std::size_t shown = verbose ? rows.size() : std::min(rows.size(), kMostRankRows);
  const std::size_t left_out = rows.size() - shown;
  rows.resize(shown);
  std::stable_sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) { return a->rank < b->rank; });
  for (const RehearsedRank* rank : rows) {
    const text::Cell verdict = rank->fits ? text::Cell{"fits", "fits", text::Style::Good}
                                          : text::Cell{"out of memory", "does_not_fit", text::Style::Bad};
    table.rows.push_back({text::cell(rank->rank),
                          text::cell(rank->allocated),
                          {range_text(rank->reserved), fmt::format("{}", rank->reserved.high.count())},
                          {range_text(rank->device), fmt::format("{}", rank->device.high.count())},
                          verdict});
  }
  for (const UnplayedRank& each : seen.unplayed) {
    table.rows.push_back({text::cell(each.rank), "", "", "", text::Cell{"not played", "not_played", text::Style::Bad}});
  }
  document.push_back(std::move(table));
  if (left_out > 0) {
    document.push_back(text::Entry{.label = "", .lines = {fmt::format("{} more, which need no more", left_out)}});
  }
}

void add_moment(text::Document& document, const StepReport& report, const RehearsalView& view) {
  const PeakMoment& peak = report.memory.peak;
  if (peak.phase == StepPhase::Unknown && report.rehearsal->peak_stack.empty()) return;
  std::string where(name_or_somewhere(peak.phase));
  if (!peak.instruction.empty() && peak.phase != StepPhase::Initialization)
    where += std::string(between(peak.phase)) + peak.instruction;
  if (!peak.op.empty()) where += ", in " + peak.op;
  text::Entry entry{.label = "peak", .lines = {std::move(where)}};
  text::add_stack(entry.lines, report.rehearsal->peak_at, report.rehearsal->peak_stack, view.folder, view.view.verbose);
  document.push_back(std::move(entry));
}

/// Merges sites with the same text: both moments of Adam are made in _init_group.
std::vector<AllocationSite> merged(const std::vector<AllocationSite>& sites, const std::string& folder) {
  std::vector<AllocationSite> result;
  for (const AllocationSite& site : sites) {
    const auto same = std::find_if(result.begin(), result.end(), [&](const AllocationSite& other) {
      return text::frame_text(other.frame, folder) == text::frame_text(site.frame, folder) &&
             text::through_text(other.through) == text::through_text(site.through);
    });
    if (same == result.end()) {
      result.push_back(site);
    } else {
      same->bytes += site.bytes;
      same->count += site.count;
    }
  }
  std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return result;
}

/// "parameters 4.00 GiB · activations 3.20 GiB".
void add_categories(text::Document& document, const Rehearsal& seen) {
  std::string line;
  for (const PeakCategory& each : seen.categories) {
    if (each.bytes <= Bytes(0)) continue;
    line += fmt::format("{}{} {}", line.empty() ? "" : " · ", each.name, format_bytes(each.bytes));
  }
  if (!line.empty()) document.push_back(text::Entry{.label = "at peak", .lines = {std::move(line)}});
}

void add_allocations(text::Document& document, const Rehearsal& seen, const RehearsalView& view) {
  text::Table table{
      .name = seen.categories.empty() ? "at peak" : "by line",
      .columns = {
          {"bytes", "bytes", true}, {"count", "count", true}, {"asked for by", "line"}, {"through", "through"}}};
  const std::size_t most = view.view.verbose ? seen.allocations.size() : kMostAllocations;
  Bytes rest;
  std::int64_t rest_count = 0;
  for (const AllocationSite& site : merged(seen.allocations, view.folder)) {
    if (site.frame.file.empty() || table.rows.size() >= most) {
      rest += site.bytes;
      rest_count += site.count;
    } else {
      table.rows.push_back({text::cell(site.bytes), text::cell(site.count), text::frame_text(site.frame, view.folder),
                            text::Cell{text::through_text(site.through), site.through}});
    }
  }
  if (rest > Bytes(0)) table.rows.push_back({text::cell(rest), text::cell(rest_count), "other lines", ""});
  if (!table.rows.empty()) document.push_back(std::move(table));
}

void add_device(text::Document& document, const MemoryReport& memory, bool verbose) {
  if (verbose) {
    text::Table table{
        .name = "device",
        .columns = {{"term", "term"}, {"bytes", "bytes", true}, {"provenance", "provenance"}, {"source", "source"}}};
    for (const DeviceTerm& term : memory.device_terms) {
      table.rows.push_back({term.name, text::cell(term.bytes), std::string(name_of(term.provenance)), term.source});
    }
    document.push_back(std::move(table));
    return;
  }
  std::string line;
  for (const DeviceTerm& term : memory.device_terms) {
    line += fmt::format("{}{} {}", line.empty() ? "" : " · ", term.name, format_bytes(term.bytes));
    if (term.provenance == Provenance::Assumed || term.provenance == Provenance::Given) {
      line += fmt::format(" ({})", name_of(term.provenance));
    }
  }
  document.push_back(text::Entry{.label = "device", .lines = {std::move(line)}});
}

void add_list(text::Document& document, const std::string& label, std::vector<std::string> lines, text::Style style) {
  if (!lines.empty()) document.push_back(text::Entry{.label = label, .lines = std::move(lines), .style = style});
}

void add_readbacks(text::Document& document, const RehearsalLimits& limits, const std::string& folder) {
  text::Table table{.name = "read",
                    .columns = {{"from the device by", "line"},
                                {"operation", "operation"},
                                {"count", "count", true},
                                {"sizes follow", "steers_sizes"}}};
  for (const Readback& each : limits.readbacks) {
    table.rows.push_back({text::frame_text({.file = each.file, .line = each.line}, folder), each.operation,
                          text::cell(each.count), each.steers_sizes ? "yes" : "no"});
  }
  if (!table.rows.empty()) document.push_back(std::move(table));
}

/// The subject of a warning, which decides its place in the answer.
enum class About : std::uint8_t { Script, Rehearsal, Writes, Plan };

About about(const RehearsalWarning& warning) {
  for (const std::string_view kind : {"ddp_pause", "spawned", "probe", "missing_function", "cudnn_ctc"}) {
    if (warning.kind == kind) return About::Rehearsal;
  }
  if (warning.kind == "plan_applied" || warning.kind == "plan_in_place") return About::Plan;
  return warning.kind == "writes" || warning.kind == "uploads" ? About::Writes : About::Script;
}

std::vector<std::string> warnings_of(const StepReport& report, const std::string& folder, About what) {
  std::vector<std::string> lines;
  for (const RehearsalWarning& warning : report.rehearsal->warnings) {
    if (about(warning) != what) continue;
    const std::string place = text::frame_text({.file = warning.file, .line = warning.line}, folder);
    lines.push_back(warning.file.empty() ? warning.text : fmt::format("{}: {}", place, warning.text));
  }
  return lines;
}

std::vector<std::string> hints(const StepReport& report) {
  const Rehearsal& seen = *report.rehearsal;
  std::vector<std::string> lines;
  if (seen.ranks.size() == 1 && report.gpus_per_node * report.nodes > 1) {
    lines.emplace_back("--rank worst runs the ranks that may need more");
  }
  lines.emplace_back("--snapshot out.pickle for PyTorch's memory viewer · --verbose · --json");
  return lines;
}

text::Entry rehearsal_verdict(const StepReport& report) {
  const MemoryReport& memory = report.memory;
  const Rehearsal& seen = *report.rehearsal;
  if (report.verdict == Verdict::DoesNotFit) {
    std::string line = fmt::format("{} with {}", report.gpu, format_bytes(memory.budget));
    if (seen.failed) {
      line = fmt::format("{} asked for in the {}, {} free · {}", format_bytes(seen.failed->bytes),
                         moment(seen.failed->phase, seen.failed->step, ""), format_bytes(seen.failed->free), line);
    }
    line += " · " + ranks_text(report);
    if (seen.timing_decides) line += " · it depends on timing: see ranks";
    return {.label = "OUT OF MEMORY", .lines = {std::move(line)}, .style = text::Style::Bad};
  }
  const auto row =
      std::find_if(seen.ranks.begin(), seen.ranks.end(), [&](const auto& r) { return r.rank == seen.rank; });
  const PeakRange device = row == seen.ranks.end() ? PeakRange{memory.peaks.device, memory.peaks.device} : row->device;
  std::string line = fmt::format("peak {} of {} ({}), {} free · {}", range_text(device), format_bytes(memory.budget),
                                 text::percent(ratio(device.high, memory.budget)),
                                 format_bytes(memory.budget - device.high), ranks_text(report));
  if (memory.cache_flushes > 0) {
    line += fmt::format(" · the allocator emptied its cache {}", text::counted(memory.cache_flushes, "time"));
  }
  // Peaks of a run that never trained do not describe training.
  if (seen.steps == 0) line += " · no training step was observed";
  if (is_tight(report)) return {.label = "FITS, TIGHT", .lines = {std::move(line)}, .style = text::Style::Warning};
  return {.label = "FITS", .lines = {std::move(line)}, .style = text::Style::Good};
}

/// "all_gather count: 3 predicted, 25 measured (-88.0 %) · 4 more terms differ by more than they may"
text::Entry difference_of(const Comparison& comparison) {
  const auto first = std::find_if(comparison.terms.begin(), comparison.terms.end(),
                                  [&](const ComparedTerm& term) { return term.name == comparison.beyond.front(); });
  std::string line = comparison.beyond.front();
  if (first != comparison.terms.end()) {
    const auto figure = [&](std::int64_t value) {
      return first->unit == TermUnit::Bytes ? format_bytes(Bytes(value)) : text::grouped(value);
    };
    line = fmt::format("{}: {} predicted, {} measured ({})", first->name, figure(first->predicted),
                       figure(first->measured), relative_text(*first));
  }
  const auto others = static_cast<std::int64_t>(comparison.beyond.size()) - 1;
  if (others > 0)
    line +=
        fmt::format(" · {} more differ{} by more than allowed", text::counted(others, "term"), others == 1 ? "s" : "");
  return {.label = "DIFFERS", .lines = {std::move(line)}, .style = text::Style::Bad};
}

}  // namespace

std::vector<text::Entry> rehearsal_verdicts(const StepReport& report, const Comparison* comparison) {
  std::vector<text::Entry> entries = {rehearsal_verdict(report)};
  const bool differs = comparison != nullptr && !comparison->beyond.empty();
  if (differs && report.verdict != Verdict::DoesNotFit) entries.insert(entries.begin(), difference_of(*comparison));
  return entries;
}

text::Table rehearsal_summary(const StepReport& report) {
  const MemoryPeaks& peaks = report.memory.peaks;
  return {.name = "summary",
          .columns = {{"verdict", "verdict"},
                      {"budget", "budget_bytes", true},
                      {"live", "live_peak_bytes", true},
                      {"allocated", "allocated_peak_bytes", true},
                      {"reserved", "reserved_peak_bytes", true},
                      {"device", "device_peak_bytes", true},
                      {"rank", "rank", true},
                      {"ranks", "world_size", true}},
          .rows = {{std::string(name_of(report.verdict)), text::cell(report.memory.budget), text::cell(peaks.live),
                    text::cell(peaks.allocated), text::cell(peaks.reserved), text::cell(peaks.device),
                    text::cell(report.rehearsal->rank), text::cell(report.gpus_per_node * report.nodes)}},
          .only_for_scripts = true};
}

std::vector<std::string> limits_of(const StepReport& report) {
  const RehearsalLimits& limits = report.rehearsal->limits;
  std::vector<std::string> lines;
  Bytes unproven;
  for (const DeviceTerm& term : report.memory.device_terms) {
    if (term.provenance == Provenance::Assumed) unproven += term.bytes;
  }
  const Bytes free = report.memory.budget - report.memory.peaks.device;
  if (report.verdict == Verdict::Fits && free < Bytes(unproven.count() / 4)) {
    lines.push_back(fmt::format("It is close: only {} are free, and {} of the peak are estimates.", format_bytes(free),
                                format_bytes(unproven)));
  }
  if (report.rehearsal->out_of_memory_errors > 0 && report.verdict == Verdict::Fits) {
    lines.push_back(fmt::format("PyTorch ran out of memory {}, and the script went on.",
                                text::counted(report.rehearsal->out_of_memory_errors, "time")));
  }
  if (limits.data_dependent_routing) {
    lines.push_back(
        fmt::format("Sizes of tensors depend on values on the device, which are not computed{}: a real run "
                    "differs.",
                    limits.routing == "none" ? "" : ", but for a balanced routing"));
  }
  if (limits.triton) {
    lines.emplace_back("Triton's kernels were compiled and did not run; autotuning may choose others on a GPU.");
  }
  if (limits.cuda_graphs) lines.emplace_back("CUDA graphs were captured; their private pools may differ on a GPU.");
  if (limits.cudnn_plans > 0) {
    lines.push_back(fmt::format("cuDNN ran {}; each is charged a workspace of {} (--cudnn-workspace), not cuDNN's own.",
                                text::counted(limits.cudnn_plans, "time"), format_bytes(limits.cudnn_workspace)));
  }
  if (limits.allocator_event_queries > 0) {
    lines.emplace_back(
        "PyTorch counts memory that waits for another stream (record_stream) as requested and not as allocated, so "
        "that requested may be the larger one.");
  }
  if (!report.rehearsal->both_bounds && limits.allocator_event_queries > 0) {
    lines.emplace_back("Reserved memory depends on when kernels finish (record_stream); only one bound was run.");
  }
  return lines;
}

text::Document document_of(const StepReport& report, const RunFacts& facts, const RehearsalView& view) {
  const Rehearsal& seen = *report.rehearsal;
  text::Document document;
  for (text::Entry& entry : rehearsal_verdicts(report, view.comparison)) document.push_back(std::move(entry));
  document.push_back(rehearsal_summary(report));
  add_out_of_memory(document, report, view);
  add_list(document, "try", remedies_of_rehearsal(report), text::Style::Plain);
  add_run(document, report, facts);
  add_applied(document, report, view.view.verbose);
  add_list(document, "plan", warnings_of(report, view.folder, About::Plan), text::Style::Strong);
  std::vector<std::string> warnings;
  for (const UnplayedRank& each : seen.unplayed) {
    warnings.push_back(fmt::format("Rank {} may need more: {}", each.rank, each.why));
  }
  for (std::string& line : warnings_of(report, view.folder, About::Script)) warnings.push_back(std::move(line));
  add_list(document, "warn", std::move(warnings), text::Style::Warning);
  add_peaks(document, report);
  add_ranks(document, seen, view.view.verbose);
  if (view.comparison != nullptr) {
    const std::size_t most = view.view.verbose ? view.comparison->terms.size() : kMostComparedTerms;
    add_comparison(document, *view.comparison, most);
  }
  if (view.view.pictures) {
    std::vector<std::string> curve = text::memory_curve(report.memory, view.view.width - text::kCurveIndent);
    if (!curve.empty())
      document.push_back(text::Entry{.label = "memory", .lines = std::move(curve), .is_picture = true});
  }
  // If the script caught the error and continued, the peak matters, not the earlier failure.
  if (!seen.failed || report.verdict == Verdict::Fits) add_moment(document, report, view);
  add_categories(document, seen);
  add_allocations(document, seen, view);
  add_device(document, report.memory, view.view.verbose);
  // A run without a second step does not show the traffic of a step.
  if (seen.steps > 0) add_measured_traffic(document, report.traffic, view.view.verbose);
  if (view.view.verbose) add_readbacks(document, seen.limits, view.folder);
  add_list(document, "wrote", warnings_of(report, view.folder, About::Writes), text::Style::Strong);
  std::vector<std::string> limits = limits_of(report);
  for (std::string& line : warnings_of(report, view.folder, About::Rehearsal)) limits.push_back(std::move(line));
  add_list(document, "limits", std::move(limits), text::Style::Warning);
  add_list(document, "assume", report.assumptions, text::Style::Strong);
  add_list(document, "see", hints(report), text::Style::Strong);
  return document;
}

}  // namespace fsdp::render
