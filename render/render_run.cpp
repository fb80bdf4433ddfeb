#include "render/render_run.h"

#include <fmt/format.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/parse_units.h"
#include "render/render_comparison.h"
#include "render/render_report.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

text::Entry verdict_of(const MeasuredAnswer& answer) {
  const StepReport& measured = answer.measured;
  const std::string where = fmt::format("{} on {}", measured.model, text::counted(answer.num_ranks, "rank"));
  if (measured.verdict == Verdict::DoesNotFit) {
    return {.label = "OUT OF MEMORY", .lines = {where + " of " + measured.gpu}, .style = text::Style::Bad};
  }
  const bool failed = answer.ended != runs::ExitStatus{};
  std::vector<std::string> lines;
  const Seconds step = measured.time.step;
  lines.push_back(step > Seconds(0) ? fmt::format("{}: {} a step", where, format_time(step)) : where);
  if (failed) lines.push_back(fmt::format("The command {}.", describe(answer.ended)));
  if (answer.comparison != nullptr && !answer.comparison->terms.empty()) {
    const ComparedTerm& worst = answer.comparison->terms.front();
    lines.push_back(worst.difference() == 0
                        ? std::string("every compared term is as predicted")
                        : fmt::format("furthest from its prediction: {}, {}", worst.name, relative_text(worst)));
  }
  const std::string label = failed ? "FAILED" : answer.holds() ? "TRAINED" : "OUTSIDE";
  return {.label = label,
          .lines = std::move(lines),
          .style = answer.holds() && !failed ? text::Style::Good : text::Style::Bad};
}

std::string range_text(const TimeReport& time) {
  return time.low > Seconds(0) ? fmt::format(" ({})", band_of(time)) : "";
}

text::Entry time_of(const MeasuredAnswer& answer) {
  const TimeReport& measured = answer.measured.time;
  std::string text = fmt::format("measured on {}: {} a step, the median of {}", answer.measured.gpu,
                                 format_time(measured.step), text::counted(answer.record.seen.steps, "step"));
  if (measured.exposed_communication > Seconds(0)) {
    text += fmt::format(", {} of it waiting for collectives", format_time(measured.exposed_communication));
  }
  std::vector<std::string> lines = {std::move(text)};
  if (answer.predicted != nullptr) {
    const TimeReport& predicted = answer.predicted->time;
    lines.push_back(fmt::format("predicted for {}: {}{}", answer.predicted->gpu, format_time(predicted.step),
                                range_text(predicted)));
  }
  return {.label = "time", .lines = std::move(lines)};
}

/// Peaks and collectives, for an answer without a comparison.
text::Table measured_table(const StepReport& measured) {
  text::Table table{.name = "measured", .columns = {{"what", "term"}, {"measured", "measured", true}}};
  const MemoryPeaks& peaks = measured.memory.peaks;
  if (peaks.device >= Bytes(0)) {
    table.rows = {{"device peak", text::cell(peaks.device)},
                  {"reserved peak", text::cell(peaks.reserved)},
                  {"allocated peak", text::cell(peaks.allocated)},
                  {"live peak", text::cell(peaks.live)}};
  }
  for (std::size_t i = 0; i < measured.traffic.totals.size(); ++i) {
    const TrafficTotal& total = measured.traffic.totals[i];
    if (total.count == 0) continue;
    const std::string kind(name_of(static_cast<CollectiveKind>(i)));
    table.rows.push_back({kind + " count", text::cell(total.count)});
    table.rows.push_back({kind + " payload", text::cell(total.payload)});
  }
  return table;
}

}  // namespace

bool MeasuredAnswer::holds() const {
  return measured.verdict != Verdict::DoesNotFit && (comparison == nullptr || is_within(*comparison, tolerance));
}

text::Document document_of(const MeasuredAnswer& answer, bool only_verdict) {
  text::Document document = {verdict_of(answer)};
  if (only_verdict) return document;
  if (answer.measured.time.step > Seconds(0)) document.emplace_back(time_of(answer));
  if (answer.comparison != nullptr) {
    add_comparison(document, *answer.comparison, answer.tolerance, std::numeric_limits<std::size_t>::max());
  } else {
    document.emplace_back(measured_table(answer.measured));
  }
  if (answer.measured.memory.peaks.device < Bytes(0)) {
    document.emplace_back(text::Entry{.label = "limit", .lines = {"There was no GPU, so no memory was measured."}});
  }
  for (const RehearsalWarning& warning : answer.record.seen.warnings) {
    const std::string place = warning.file.empty() ? "" : fmt::format(" ({}:{})", warning.file, warning.line);
    document.emplace_back(text::Entry{.label = "note", .lines = {warning.text + place}});
  }
  return document;
}

}  // namespace fsdp::render
