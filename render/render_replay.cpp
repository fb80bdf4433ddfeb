#include "render/render_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/parse_units.h"
#include "text/curve_text.h"
#include "text/figures.h"
#include "text/python_text.h"

namespace fsdp::render {

namespace {

using simulator::TraceOperation;

constexpr int kCurveHeight = 5;

std::string settings_name(const std::string& text) {
  return text.empty() ? "the default settings" : text;
}

std::int64_t num_requests(const replay::Recording& recording) {
  return std::count_if(recording.trace.steps.begin(), recording.trace.steps.end(),
                       [](const auto& step) { return step.operation == TraceOperation::Malloc; });
}

/// "request 12 of 345"
std::string place_of(const replay::Recording& recording, std::size_t step) {
  const auto& steps = recording.trace.steps;
  const auto number = std::count_if(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(step) + 1,
                                    [](const auto& each) { return each.operation == TraceOperation::Malloc; });
  return fmt::format("request {} of {}", text::grouped(number), text::grouped(num_requests(recording)));
}

/// "3.2 s after the first event", or empty.
std::string time_of(const replay::Recording& recording, const replay::RecordedOrigin& origin) {
  if (!origin.time_us) return {};
  const auto first = std::find_if(recording.event_of_step.begin(), recording.event_of_step.end(),
                                  [](std::uint32_t event) { return event != replay::Recording::kNoEvent; });
  if (first == recording.event_of_step.end()) return {};
  const auto start = recording.origin(static_cast<std::size_t>(first - recording.event_of_step.begin())).time_us;
  if (!start || *origin.time_us < *start) return {};
  return fmt::format(", {} after the first event",
                     format_time(Seconds(static_cast<double>(*origin.time_us - *start) * 1e-6)));
}

std::string percent(Bytes part, Bytes whole) {
  return whole > Bytes(0) ? fmt::format("{:.0f} %", ratio(part, whole) * 100) : "-";
}

/// The moment of a step, with the line of Python that requested the memory.
text::Entry moment(std::string label, const replay::Recording& recording, std::size_t step, bool all,
                   const std::string& folder) {
  const replay::RecordedOrigin origin = recording.origin(step);
  text::Entry entry{.label = std::move(label), .lines = {place_of(recording, step) + time_of(recording, origin)}};
  text::add_stack(entry.lines, PythonFrame{}, origin.stack, folder, all);
  return entry;
}

void add_read(text::Document& document, const ReplayAnswer& answer) {
  const replay::Recording& recording = answer.recording;
  const std::string what = recording.is_snapshot
                               ? fmt::format("a memory snapshot of device {}", recording.device_number)
                               : std::string("a text trace");
  text::Entry entry{
      .label = "read",
      .lines = {fmt::format("{}: {} in {}, recorded with {}", what, text::counted(num_requests(recording), "request"),
                            text::counted(static_cast<std::int64_t>(recording.trace.steps.size()), "step"),
                            settings_name(recording.trace.settings_text))}};
  document.push_back(std::move(entry));
}

std::vector<text::Cell> row_of(const std::string& name, const replay::ReplayResult& result) {
  return {name,
          text::cell(result.requested_peak),
          text::cell(result.allocated_peak),
          text::cell(result.reserved_peak),
          text::cell(result.unused_at_peak),
          {percent(result.unused_at_peak, result.reserved_peak),
           fmt::format("{:.6f}",
                       result.reserved_peak > Bytes(0) ? ratio(result.unused_at_peak, result.reserved_peak) : 0.0)},
          text::cell(result.statistics.num_alloc_retries),
          text::cell(result.num_refused)};
}

void add_peaks(text::Document& document, const ReplayAnswer& answer) {
  text::Table table{.name = "peaks",
                    .columns = {{"", "run"},
                                {"requested", "requested_peak_bytes", true},
                                {"allocated", "allocated_peak_bytes", true},
                                {"reserved", "reserved_peak_bytes", true},
                                {"unused", "unused_at_reserved_peak_bytes", true},
                                {"share", "unused_share", true},
                                {"retries", "num_alloc_retries", true},
                                {"refused", "num_refused", true}}};
  table.rows.push_back(row_of("recorded", answer.recorded));
  if (answer.replayed) table.rows.push_back(row_of("replayed", *answer.replayed));
  document.push_back(std::move(table));
}

void add_driver(text::Document& document, const ReplayAnswer& answer) {
  text::Table table{.name = "driver",
                    .columns = {{"", "run"},
                                {"cudaMalloc", "num_cuda_malloc", true},
                                {"cudaFree", "num_cuda_free", true},
                                {"cuMemCreate", "num_cu_mem_create", true},
                                {"cuMemUnmap", "num_cu_mem_unmap", true},
                                {"most unused", "unused_peak_bytes", true}}};
  const auto add = [&](const char* name, const replay::ReplayResult& result) {
    const simulator::DriverCalls& calls = result.driver_calls;
    table.rows.push_back({name, text::cell(calls.num_malloc), text::cell(calls.num_free), text::cell(calls.num_create),
                          text::cell(calls.num_unmap), text::cell(result.unused_peak)});
  };
  add("recorded", answer.recorded);
  if (answer.replayed) add("replayed", *answer.replayed);
  document.push_back(std::move(table));
}

/// Blocks for memory in use; dots above for reserved but idle memory.
std::vector<std::string> curve(const replay::ReplayResult& result, Bytes top, int width) {
  const std::string label = format_bytes(top);
  const int columns =
      std::min({width - text::display_width(label) - 1, text::kMostColumns, static_cast<int>(result.reserved.size())});
  if (columns < 8 || top <= Bytes(0)) return {};
  const std::vector<Bytes> allocated = replay::highest_of_parts(result.allocated, static_cast<std::size_t>(columns));
  const std::vector<Bytes> reserved = replay::highest_of_parts(result.reserved, static_cast<std::size_t>(columns));
  std::vector<std::string> lines;
  for (int row = kCurveHeight - 1; row >= 0; --row) {
    const bool is_top = row == kCurveHeight - 1;
    std::string line =
        is_top ? label + "┤" : std::string(static_cast<std::size_t>(text::display_width(label)), ' ') + "│";
    for (std::size_t i = 0; i < allocated.size(); ++i) {
      const auto filled = [&](Bytes value) {
        const int eighths =
            static_cast<int>(ratio(value, top) * kCurveHeight * text::kEighths + 0.5) - row * text::kEighths;
        return std::clamp(eighths, 0, text::kEighths);
      };
      const int in_use = filled(allocated[i]);
      const bool is_idle = in_use == 0 && filled(reserved[i]) >= text::kEighths / 2;
      line += is_idle ? "░" : text::kBlocks[in_use];
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

void add_curves(text::Document& document, const ReplayAnswer& answer, const View& view) {
  if (!view.pictures) return;
  const Bytes top = std::max(answer.recorded.reserved_peak, answer.answer().reserved_peak);
  const auto add = [&](const char* label, const replay::ReplayResult& result) {
    std::vector<std::string> lines = curve(result, top, view.width - text::kCurveIndent);
    if (!lines.empty()) document.push_back(text::Entry{.label = label, .lines = std::move(lines), .is_picture = true});
  };
  add("recorded", answer.recorded);
  if (answer.replayed) add("replayed", *answer.replayed);
  document.push_back(text::Entry{.label = "", .lines = {"█ allocated, ░ reserved and not in use"}, .is_picture = true});
}

void add_limits(text::Document& document, const ReplayAnswer& answer) {
  std::vector<std::string> lines;
  const std::vector<Bytes>& said = answer.recording.reserved;
  const Bytes in_file = said.empty() ? answer.recorded.reserved_peak : *std::max_element(said.begin(), said.end());
  if (in_file != answer.recorded.reserved_peak) {
    lines.push_back(fmt::format("The recording itself reserved {} at most; replayed as it was recorded it comes to {}.",
                                format_bytes(in_file), format_bytes(answer.recorded.reserved_peak)));
  }
  for (const std::string& note : answer.recording.notes) lines.push_back(note);
  if (answer.answer().num_refused > 0) {
    lines.emplace_back("A program's reaction to a refusal is not known; the rest of the recording was replayed.");
  }
  if (!lines.empty()) {
    document.push_back(text::Entry{.label = "limits", .lines = std::move(lines), .style = text::Style::Warning});
  }
}

}  // namespace

text::Entry replay_verdict(const ReplayAnswer& answer) {
  const replay::ReplayResult& result = answer.answer();
  const Bytes device = answer.asked().device.total;
  const std::string with = answer.request ? " · with " + settings_name(answer.asked().settings_text) : "";
  if (result.first_refusal) {
    const simulator::OutOfMemory& failure = result.first_refusal->failure;
    return {.label = "OUT OF MEMORY",
            .lines = {fmt::format("{} asked for in {}, {} free of {}{}", format_bytes(failure.requested),
                                  place_of(answer.recording, result.first_refusal->step),
                                  format_bytes(failure.device_free), format_bytes(device), with)},
            .style = text::Style::Bad};
  }
  std::string than;
  if (answer.replayed && answer.replayed->reserved_peak != answer.recorded.reserved_peak) {
    const bool is_less = answer.replayed->reserved_peak < answer.recorded.reserved_peak;
    const Bytes low = std::min(answer.replayed->reserved_peak, answer.recorded.reserved_peak);
    const Bytes high = std::max(answer.replayed->reserved_peak, answer.recorded.reserved_peak);
    than = fmt::format(", {} {} than recorded", format_bytes(high - low), is_less ? "less" : "more");
  } else if (answer.replayed) {
    than = ", as recorded";
  }
  const std::string peak = format_bytes(result.reserved_peak);
  if (!answer.knows_device) {
    return {.label = "PEAK", .lines = {fmt::format("{} reserved{}{}", peak, than, with)}};
  }
  return {.label = "FITS",
          .lines = {fmt::format("{} reserved of {} ({}){}{}", peak, format_bytes(device),
                                percent(result.reserved_peak, device), than, with)},
          .style = text::Style::Good};
}

text::Document document_of(const ReplayAnswer& answer, const View& view, const std::string& folder) {
  const replay::Recording& recording = answer.recording;
  const replay::ReplayResult& result = answer.answer();
  text::Document document = {replay_verdict(answer)};
  add_read(document, answer);
  add_peaks(document, answer);
  if (result.first_refusal) {
    document.push_back(moment("failed", recording, result.first_refusal->step, view.verbose, folder));
  } else {
    document.push_back(moment("peak", recording, result.reserved_peak_step, view.verbose, folder));
  }
  add_curves(document, answer, view);
  if (view.verbose) add_driver(document, answer);
  add_limits(document, answer);
  if (!answer.request) {
    document.push_back(
        text::Entry{.label = "replayed", .lines = {"only as recorded: no other setting or device was given"}});
  }
  if (!answer.knows_device) {
    document.push_back(text::Entry{.label = "see", .lines = {"--device-memory 16G: whether it fits on such a device"}});
  }
  if (!answer.request) {
    const bool expands = recording.trace.settings.expandable_segments;
    document.push_back(
        text::Entry{.label = "see",
                    .lines = {fmt::format("--alloc-conf expandable_segments:{}: what another setting would "
                                          "have done",
                                          expands ? "False" : "True")}});
  }
  return document;
}

}  // namespace fsdp::render
