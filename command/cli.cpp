#include "command/cli.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "command/cli_commands.h"
#include "command/cli_help.h"
#include "command/cli_job.h"
#include "command/cli_machines.h"
#include "core/base/nearest.h"
#include "core/base/object_reader.h"
#include "core/base/printable.h"
#include "core/library/model_library.h"
#include "core/version.h"

namespace fsdp::command {

namespace {

constexpr EnumName<text::Format> kFormats[] = {{text::Format::Table, "table"}, {text::Format::Table, "text"},
                                               {text::Format::Json, "json"},   {text::Format::Csv, "csv"},
                                               {text::Format::Markdown, "md"}, {text::Format::Trace, "trace"},
                                               {text::Format::Sarif, "sarif"}, {text::Format::Github, "github"}};
constexpr EnumName<text::ColorMode> kColorModes[] = {
    {text::ColorMode::Auto, "auto"}, {text::ColorMode::Always, "always"}, {text::ColorMode::Never, "never"}};

template <class E, std::size_t kSize>
std::optional<E> read_name(const CommandLine& line, Option option, const EnumName<E> (&names)[kSize], Errors& errors) {
  const std::optional<std::string> text = line.value(option);
  if (!text) return std::nullopt;
  std::vector<std::string_view> known;
  for (const EnumName<E>& entry : names) {
    if (*text == entry.name) return entry.value;
    known.push_back(entry.name);
  }
  errors.push_back(
      {std::string(flag_of(option)), fmt::format("\"{}\" is not a choice.", *text), suggest_name(*text, known)});
  return std::nullopt;
}

void print_errors(const Errors& errors, Console& console, const text::Terminal& terminal) {
  for (const Error& error : errors) {
    console.err << text::styled("error:", text::Style::Bad, terminal) << " " << to_string(error) << "\n";
  }
}

CommandResult answer_of(const CommandLine& line, const Output& output) {
  switch (line.command) {
    case Command::Plan:
      return plan_command(line, output);
    case Command::Simulate:
      return simulate_command(line, output);
    case Command::Explain:
      return explain_command(line, output);
    case Command::Fit:
      return fit_command(line, output);
    case Command::Clock:
      return clock_command(line, output);
    case Command::Capture:
      return capture_command(line, output);
    case Command::Rehearse:
      return rehearse_command(line, output);
    case Command::Run:
      return run_command(line, output);
    case Command::Measure:
      return measure_command(line, output);
    case Command::Execute:
      return execute_command(line, output);
    case Command::Calibrate:
      return calibrate_command(line, output);
    case Command::Replay:
      return replay_command(line, output);
    case Command::Compare:
      return compare_command(line, output);
    case Command::Export:
      return export_command(line, output);
    case Command::Schema:
      return schema_command(line, output);
    case Command::Models:
      return models_command(line, output);
    case Command::Gpus:
      return gpus_command(line, output);
    case Command::Check:
      return check_command(line, output);
    case Command::Doctor:
      return doctor_command(line, output);
    case Command::Completions:
      return completions_command(line, output);
  }
  return kExitInput;
}

text::Terminal terminal_of_out(const Console& console, text::ColorMode color) {
  return text::terminal_of(console.out_is_terminal, console.out_width, color, console.environment);
}

text::Terminal terminal_of_err(const Console& console, text::ColorMode color) {
  return text::terminal_of(console.err_is_terminal, console.err_width, color, console.environment);
}

}  // namespace

CommandResult interrupted(const Output& output) {
  output.note("Interrupted. Nothing is left running.");
  return kExitInterrupted;
}

render::View Output::view() const {
  // CSV is for scripts: it prints all tables.
  const bool is_brief = !verbose && format != text::Format::Csv;
  return {.width = out.width, .pictures = out.is_terminal && !quiet, .brief = is_brief, .verbose = verbose};
}

void Output::print(const text::Document& given) const {
  // Names come from files, and a terminal must not obey them.
  const text::Document document = printable(given);
  switch (format) {
    case text::Format::Markdown:
      console.out << to_markdown(document);
      return;
    case text::Format::Csv:
      console.out << to_csv(document);
      return;
    case text::Format::Table:
    case text::Format::Json:
    case text::Format::Trace:
    case text::Format::Sarif:
    case text::Format::Github:
      console.out << to_text(document, out);
      return;
  }
}

void Output::print_up_to(const text::Document& document, std::size_t end) const {
  console.out << to_text(printable(document), out, 0, end) << std::flush;
}

void Output::print_from(const text::Document& document, std::size_t first) const {
  console.out << to_text(printable(document), out, first, document.size());
}

void Output::note(const std::string& sentence) const {
  if (!quiet)
    console.err << text::styled("note:", text::Style::Warning, err) << " " << fsdp::printable(sentence) << "\n";
}

int run(std::span<const std::string> arguments, Console& console) {
  if (arguments.empty()) {
    console.err << short_help();
    return kExitInput;
  }
  const Result<CommandLine> line = parse_command_line(arguments);
  if (!line) {
    print_errors(line.error(), console, terminal_of_err(console, text::ColorMode::Auto));
    return kExitInput;
  }
  if (line->has(Option::HelpAll)) {
    console.out << long_help(line->command);
    return kExitYes;
  }
  if (line->has(Option::Help)) {
    console.out << help(line->command);
    return kExitYes;
  }
  if (line->has(Option::Version)) {
    console.out << "fsdp-plan " << kVersion << "\n";
    return kExitYes;
  }
  Errors errors;
  const text::ColorMode color = read_name(*line, Option::Color, kColorModes, errors).value_or(text::ColorMode::Auto);
  const text::Terminal err = terminal_of_err(console, color);
  Output output{.console = console, .out = terminal_of_out(console, color), .err = err};
  output.format = read_name(*line, Option::OutputFormat, kFormats, errors).value_or(text::Format::Table);
  if (line->has(Option::Json) && line->has(Option::OutputFormat) && output.format != text::Format::Json) {
    errors.push_back({"--json", "--format asks for another format.", "Give one of the two."});
  }
  if (output.format == text::Format::Trace && line->command != Command::Replay) {
    errors.push_back({"--format", "Only replay prints a trace.", "Choose table, json, csv or md."});
  }
  const bool is_of_check = output.format == text::Format::Sarif || output.format == text::Format::Github;
  if (is_of_check && line->command != Command::Check) {
    errors.push_back({"--format", "Only check prints sarif and github.", "Choose table, json, csv or md."});
  }
  if (line->has(Option::Json)) output.format = text::Format::Json;
  output.verbose = line->has(Option::Verbose);
  output.quiet = line->has(Option::Quiet);
  if (!errors.empty()) {
    print_errors(errors, console, err);
    return kExitInput;
  }
  for (const std::string& note : line->notes) output.note(note);
  const Result<LineOfJob> job = with_job(*line);
  if (!job) {
    print_errors(job.error(), console, err);
    return kExitInput;
  }
  for (const std::string& note : job->notes) output.note(note);
  const CommandLine meant = with_world_in_nodes(job->line, console.library, errors);
  if (!errors.empty()) {
    print_errors(errors, console, err);
    return kExitInput;
  }
  const CommandResult outcome = answer_of(meant, output);
  if (!outcome) {
    print_errors(outcome.error().errors, console, err);
    return outcome.error().code;
  }
  return *outcome;
}

Console console_of_process(std::ostream& out, std::ostream& err) {
  const std::optional<int> out_width = text::terminal_width(STDOUT_FILENO);
  const std::optional<int> err_width = text::terminal_width(STDERR_FILENO);
  return {.out = out,
          .err = err,
          .out_is_terminal = out_width.has_value(),
          .err_is_terminal = err_width.has_value(),
          .out_width = out_width,
          .err_width = err_width,
          .environment = text::environment_of_process(),
          .library = library_of_process()};
}

}  // namespace fsdp::command
