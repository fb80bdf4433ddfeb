// export: a plan as Python, or its predicted step in the formats of other tools.

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "command/cli_commands.h"
#include "command/cli_plan_file.h"
#include "command/cli_values.h"
#include "core/base/files.h"
#include "render/fsdp2_code.h"
#include "replay/export_step.h"

namespace fsdp::planner {

namespace {

enum class ExportFormat : std::uint8_t { Fsdp2, Chrome, MemoryViz, Csv };
constexpr EnumName<ExportFormat> kExportFormats[] = {{ExportFormat::Fsdp2, "fsdp2"},
                                                     {ExportFormat::Chrome, "chrome"},
                                                     {ExportFormat::MemoryViz, "memviz"},
                                                     {ExportFormat::Csv, "csv"}};
constexpr EnumTable<ExportFormat> kExportFormatTable{"format", kExportFormats};

std::string text_of(ExportFormat format, const StepReport& report, const simulator::StepCurves& curves,
                    std::int64_t rank) {
  switch (format) {
    case ExportFormat::Fsdp2:
      break;
    case ExportFormat::Chrome:
      return to_chrome_trace(trace_of(report, curves, rank));
    case ExportFormat::MemoryViz:
      return to_memory_snapshot(curves);
    case ExportFormat::Csv:
      return to_memory_csv(curves);
  }
  return {};
}

}  // namespace

Outcome export_command(const CommandLine& line, const Output& output) {
  Errors errors;
  std::optional<ExportFormat> format;
  if (line.has(Option::ExportTo)) {
    format = OptionReader(line, errors).choice(Option::ExportTo, kExportFormatTable);
  } else {
    errors.push_back({"--to", "The format is missing.", "Write --to fsdp2, --to chrome, --to memviz or --to csv."});
  }
  auto prediction = predict_plan_file(line, output);
  if (!prediction) {
    append(errors, prediction.error().errors);
    return tl::unexpected(Failure{std::move(errors), prediction.error().code});
  }
  if (!errors.empty()) return input_failure(std::move(errors));
  auto& [given, predictor, report] = *prediction;
  const std::int64_t rank = report.memory.rank;
  std::string text;
  if (*format == ExportFormat::Fsdp2) {
    const Result<std::string> code = fsdp2_code(given.file.plan, std::filesystem::path(given.path).filename().string());
    if (!code) return input_failure(in_plan_file(code.error(), given.path));
    text = *code;
  } else {
    const Result<simulator::StepCurves> curves = predictor.curves(given.file.plan, rank);
    if (!curves) return input_failure(curves.error());
    text = text_of(*format, report, *curves, rank);
  }
  const std::string path = line.value(Option::Output).value_or("-");
  if (path == "-") {
    output.console.out << text;
    return kExitYes;
  }
  const Result<void> written =
      write_file_atomically(path, text, line.has(Option::Force) ? Overwrite::Allow : Overwrite::Refuse);
  if (!written) return tl::unexpected(Failure{written.error(), kExitRun});
  constexpr std::array<std::string_view, 4> kOpens = {"any editor", "ui.perfetto.dev or chrome://tracing",
                                                      "pytorch.org/memory_viz", "any spreadsheet"};
  output.note(fmt::format("{} opens in {}.", path, kOpens[static_cast<std::size_t>(*format)]));
  return kExitYes;
}

}  // namespace fsdp::planner
