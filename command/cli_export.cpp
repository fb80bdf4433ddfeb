// export: a plan as Python or as a trainer's configuration, or its predicted step in the formats of other tools.

#include <fmt/format.h>

#include <filesystem>

#include "command/cli_commands.h"
#include "command/cli_plan_file.h"
#include "command/cli_values.h"
#include "command/export_trainer.h"
#include "core/base/files.h"
#include "core/plan/plan_names.h"
#include "render/plan_code.h"
#include "replay/export_step.h"

namespace fsdp::command {

namespace {

enum class ExportFormat : std::uint8_t {
  Fsdp2,
  Fsdp1,
  Ddp,
  Accelerate,
  Trainer,
  Torchtitan,
  DeepSpeed,
  Chrome,
  MemoryViz,
  Csv
};
constexpr EnumName<ExportFormat> kExportFormats[] = {{ExportFormat::Fsdp2, "fsdp2"},
                                                     {ExportFormat::Fsdp1, "fsdp1"},
                                                     {ExportFormat::Ddp, "ddp"},
                                                     {ExportFormat::Accelerate, "accelerate"},
                                                     {ExportFormat::Trainer, "trainer"},
                                                     {ExportFormat::Torchtitan, "torchtitan"},
                                                     {ExportFormat::DeepSpeed, "deepspeed"},
                                                     {ExportFormat::Chrome, "chrome"},
                                                     {ExportFormat::MemoryViz, "memviz"},
                                                     {ExportFormat::Csv, "csv"}};
constexpr EnumTable<ExportFormat> kExportFormatTable{"format", kExportFormats};

std::optional<planner::Trainer> trainer_of(ExportFormat format) {
  switch (format) {
    case ExportFormat::Accelerate:
      return planner::Trainer::Accelerate;
    case ExportFormat::Trainer:
      return planner::Trainer::Transformers;
    case ExportFormat::Torchtitan:
      return planner::Trainer::Torchtitan;
    case ExportFormat::DeepSpeed:
      return planner::Trainer::DeepSpeed;
    default:
      return std::nullopt;
  }
}

/// The frameworks with a Python format.
struct PythonFormat {
  Framework framework;
  ExportFormat format;
};
constexpr PythonFormat kPythonFormats[] = {
    {Framework::Fsdp2, ExportFormat::Fsdp2},
    {Framework::Fsdp1, ExportFormat::Fsdp1},
    {Framework::Ddp, ExportFormat::Ddp},
};

std::optional<ExportFormat> python_format_of(Framework framework) {
  for (const PythonFormat& each : kPythonFormats) {
    if (each.framework == framework) return each.format;
  }
  return std::nullopt;
}

bool is_python(ExportFormat format) {
  return std::any_of(std::begin(kPythonFormats), std::end(kPythonFormats),
                     [&](const PythonFormat& each) { return each.format == format; });
}

std::string text_of(ExportFormat format, const StepReport& report, const simulator::StepCurves& curves,
                    std::int64_t rank) {
  switch (format) {
    case ExportFormat::Chrome:
      return to_chrome_trace(replay::trace_of(report, curves, rank));
    case ExportFormat::MemoryViz:
      return replay::to_memory_snapshot(curves);
    case ExportFormat::Csv:
      return replay::to_memory_csv(curves);
    default:
      return {};
  }
}

/// The program that reads such a file.
std::string_view opened_by(ExportFormat format) {
  switch (format) {
    case ExportFormat::Fsdp2:
    case ExportFormat::Fsdp1:
    case ExportFormat::Ddp:
      return "opens in any editor";
    case ExportFormat::Accelerate:
      return "is for accelerate launch --config_file";
    case ExportFormat::Trainer:
      return "is for the script that makes the Trainer";
    case ExportFormat::Torchtitan:
      return "is for torchtitan";
    case ExportFormat::DeepSpeed:
      return "is for deepspeed.initialize(config=...)";
    case ExportFormat::Chrome:
      return "opens in ui.perfetto.dev or chrome://tracing";
    case ExportFormat::MemoryViz:
      return "opens in pytorch.org/memory_viz";
    case ExportFormat::Csv:
      return "opens in any spreadsheet";
  }
  return {};
}

/// The format. Adds errors in the options about it to `errors`.
std::optional<ExportFormat> read_format(const CommandLine& line, Errors& errors) {
  if (!line.has(Option::ExportTo)) {
    errors.push_back({"--to", "The format is missing.",
                      "Write --to fsdp2, --to fsdp1, --to ddp, --to accelerate, --to trainer, --to torchtitan, --to "
                      "deepspeed, --to chrome, "
                      "--to memviz or --to csv."});
    return std::nullopt;
  }
  const auto format = OptionReader(line, errors).choice(Option::ExportTo, kExportFormatTable);
  if (!format) return format;
  if (line.has(Option::TrainerVersion) && !trainer_of(*format)) {
    errors.push_back({"--trainer-version", "It is for the configuration of a trainer.",
                      "Leave it out, or write --to accelerate, --to trainer, --to torchtitan or --to deepspeed."});
  }
  if (!line.has(Option::Nearest)) return format;
  if (!trainer_of(*format)) {
    errors.push_back({"--nearest", "It is for the configuration of a trainer.",
                      "Leave it out, or write --to accelerate, --to trainer, --to torchtitan or --to deepspeed."});
  } else if (line.value(Option::Nearest) == "-") {
    errors.push_back({"--nearest", "The plan needs a file of its own.", "Write --nearest nearest.json."});
  }
  return format;
}

tl::expected<std::string, Failure> exported(ExportFormat format, PlanPrediction& prediction, const CommandLine& line,
                                            const Output& output) {
  auto& [given, predictor, report] = prediction;
  if (const std::optional<planner::Trainer> trainer = trainer_of(format)) {
    const auto version = line.value(Option::TrainerVersion);
    const Result<planner::TrainerRelease> release =
        version ? planner::find_release(*trainer, *version, "--trainer-version") : *trainer;
    if (!release) return input_failure(release.error());
    return trainer_text(*release, prediction, line, output);
  }
  if (is_python(format) && given.file.plan.mesh.ep > 1) {
    return input_failure(
        {{std::string(flag_of(Option::ExportTo)),
          "transformers divides the experts of this plan when it loads the model, and such code is not "
          "written.",
          "Load it by DistributedConfig, as docs/how-to/expert-parallelism.md shows."}});
  }
  if (is_python(format)) {
    const Framework planned = given.file.plan.runtime.framework;
    if (python_format_of(planned).value_or(format) != format) {
      return input_failure({{std::string(flag_of(Option::ExportTo)),
                             fmt::format("The plan is for {}.", name_of(kFrameworkTable, planned)),
                             fmt::format("Write --to {}.", name_of(kRuntimeTable, planned))}});
    }
    Result<std::string> code =
        render::plan_code(given.file.plan, given.model, std::filesystem::path(given.path).filename().string());
    if (!code) return input_failure(in_plan_file(code.error(), given.path));
    return *std::move(code);
  }
  const std::int64_t rank = report.memory.rank;
  const Result<simulator::StepCurves> curves = predictor.curves(given.file.plan, rank);
  if (!curves) return input_failure(curves.error());
  return text_of(format, report, *curves, rank);
}

}  // namespace

CommandResult export_command(const CommandLine& line, const Output& output) {
  Errors errors;
  const std::optional<ExportFormat> format = read_format(line, errors);
  auto prediction = predict_plan_file(line, output);
  if (!prediction) {
    append(errors, prediction.error().errors);
    return tl::unexpected(Failure{std::move(errors), prediction.error().code});
  }
  if (!errors.empty()) return input_failure(std::move(errors));
  const auto text = exported(*format, *prediction, line, output);
  if (!text) return tl::unexpected(text.error());
  const std::string path = line.value(Option::Output).value_or("-");
  if (path == "-") {
    output.console.out << *text;
    return kExitYes;
  }
  const Overwrite overwrite = line.has(Option::Force) ? Overwrite::Allow : Overwrite::Refuse;
  const Result<void> written = write_file_atomically(path, *text, overwrite);
  if (!written) return tl::unexpected(not_written(written.error(), path, overwrite));
  output.note(fmt::format("{} {}.", path, opened_by(*format)));
  return kExitYes;
}

}  // namespace fsdp::command
