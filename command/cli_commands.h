#pragma once

// The commands of fsdp-plan, one function each. Each prints its result only when the result is complete.

#include <string>

#include "command/cli.h"
#include "command/cli_options.h"
#include "core/base/result.h"
#include "render/render_report.h"
#include "text/document.h"

namespace fsdp::command {

/// The form of a command's answer.
struct Output {
  Console& console;
  text::Terminal out;
  text::Terminal err;
  text::Format format = text::Format::Table;
  bool verbose = false;
  bool quiet = false;

  render::View view() const;
  /// Prints a document in the requested format. Not for JSON.
  void print(const text::Document& document) const;
  /// Prints the first `end` sections of a table for people; print_from prints the rest.
  void print_up_to(const text::Document& document, std::size_t end) const;
  void print_from(const text::Document& document, std::size_t first) const;
  /// Prints a sentence on the error stream unless --quiet is set.
  void note(const std::string& sentence) const;
};

/// All errors of a command without a result. Errors of the machine become exit code 3, others 2.
struct Failure {
  Errors errors;
  ExitCode code = kExitInput;
};
using CommandResult = tl::expected<ExitCode, Failure>;

/// The answer of a command that the user stopped.
CommandResult interrupted(const Output& output);

CommandResult plan_command(const CommandLine& line, const Output& output);
CommandResult simulate_command(const CommandLine& line, const Output& output);
CommandResult explain_command(const CommandLine& line, const Output& output);
CommandResult fit_command(const CommandLine& line, const Output& output);
CommandResult clock_command(const CommandLine& line, const Output& output);
CommandResult capture_command(const CommandLine& line, const Output& output);
CommandResult rehearse_command(const CommandLine& line, const Output& output);
CommandResult run_command(const CommandLine& line, const Output& output);
CommandResult measure_command(const CommandLine& line, const Output& output);
CommandResult execute_command(const CommandLine& line, const Output& output);
CommandResult calibrate_command(const CommandLine& line, const Output& output);
CommandResult replay_command(const CommandLine& line, const Output& output);
CommandResult compare_command(const CommandLine& line, const Output& output);
CommandResult export_command(const CommandLine& line, const Output& output);
CommandResult schema_command(const CommandLine& line, const Output& output);
CommandResult models_command(const CommandLine& line, const Output& output);
CommandResult gpus_command(const CommandLine& line, const Output& output);
CommandResult check_command(const CommandLine& line, const Output& output);
CommandResult doctor_command(const CommandLine& line, const Output& output);
CommandResult completions_command(const CommandLine& line, const Output& output);

inline tl::unexpected<Failure> input_failure(Errors errors) {
  return tl::unexpected(Failure{std::move(errors), kExitInput});
}

}  // namespace fsdp::command
