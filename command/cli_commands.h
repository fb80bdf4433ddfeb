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
using Outcome = tl::expected<ExitCode, Failure>;

/// The answer of a command that somebody has stopped.
Outcome interrupted(const Output& output);

Outcome plan_command(const CommandLine& line, const Output& output);
Outcome simulate_command(const CommandLine& line, const Output& output);
Outcome explain_command(const CommandLine& line, const Output& output);
Outcome fit_command(const CommandLine& line, const Output& output);
Outcome clock_command(const CommandLine& line, const Output& output);
Outcome capture_command(const CommandLine& line, const Output& output);
Outcome rehearse_command(const CommandLine& line, const Output& output);
Outcome run_command(const CommandLine& line, const Output& output);
Outcome measure_command(const CommandLine& line, const Output& output);
Outcome execute_command(const CommandLine& line, const Output& output);
Outcome calibrate_command(const CommandLine& line, const Output& output);
Outcome replay_command(const CommandLine& line, const Output& output);
Outcome compare_command(const CommandLine& line, const Output& output);
Outcome export_command(const CommandLine& line, const Output& output);
Outcome schema_command(const CommandLine& line, const Output& output);
Outcome models_command(const CommandLine& line, const Output& output);
Outcome gpus_command(const CommandLine& line, const Output& output);
Outcome doctor_command(const CommandLine& line, const Output& output);
Outcome completions_command(const CommandLine& line, const Output& output);

inline tl::unexpected<Failure> input_failure(Errors errors) {
  return tl::unexpected(Failure{std::move(errors), kExitInput});
}

}  // namespace fsdp::planner
