#pragma once

// The commands of fsdp-plan, one function each. All print their result only when it is whole.

#include <string>

#include "command/cli.h"
#include "command/cli_options.h"
#include "core/base/result.h"
#include "render/render_report.h"
#include "text/document.h"

namespace fsdp::planner {

/// How a command is to answer.
struct Output {
  Console& console;
  Terminal out;
  Terminal err;
  Format format = Format::Table;
  bool verbose = false;
  bool quiet = false;

  View view() const;
  /// Prints a document in the format that was asked for. Not for JSON.
  void print(const Document& document) const;
  /// Prints the first `end` sections of a document ahead of the rest, which print_from prints. For a table for people.
  void print_up_to(const Document& document, std::size_t end) const;
  void print_from(const Document& document, std::size_t first) const;
  /// A sentence beside the result, on the error stream; not when --quiet.
  void note(const std::string& sentence) const;
};

/// The result of a command, or all its errors. Errors of the machine become exit code 3, others 2.
struct Failure {
  Errors errors;
  ExitCode code = kExitInput;
};
using CommandResult = tl::expected<ExitCode, Failure>;

/// The answer of a command that somebody has stopped.
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
CommandResult doctor_command(const CommandLine& line, const Output& output);
CommandResult completions_command(const CommandLine& line, const Output& output);

inline tl::unexpected<Failure> input_failure(Errors errors) {
  return tl::unexpected(Failure{std::move(errors), kExitInput});
}

}  // namespace fsdp::planner
