#pragma once

// The common start of commands on a plan file: read it, check the output paths, predict it.

#include <initializer_list>
#include <string>
#include <vector>

#include "command/cli_commands.h"
#include "core/base/files.h"
#include "core/plan/plan_file.h"
#include "core/spec/model_spec.h"
#include "runs/given_plan.h"
#include "simulator/predictor.h"

namespace fsdp::command {

/// Reads a plan file, its model and its machines; options about machines change them. Errors: all faults of the
/// files, a model or number of GPUs other than the plan's.
Result<runs::Given> read_given(const CommandLine& line, const std::string& path, const std::string& library);

/// The same without machines: leaves `cluster` unchanged and accepts any number of ranks.
Result<runs::Given> read_planned(const std::string& path, const std::string& library);

struct PlanPrediction {
  runs::Given given;
  simulator::Predictor predictor;
  StepReport report;
};

/// Reads the plan file that is the command's argument and predicts it for the requested rank.
tl::expected<PlanPrediction, Failure> predict_plan_file(const CommandLine& line, const Output& output);

/// The rank that the report describes, if the line names one. The caller checks whether the machines have it.
Result<std::optional<std::int64_t>> read_rank(const CommandLine& line);

/// Checks the output paths before anything is computed. Errors: missing folders, existing files, two answers in one
/// file.
Errors check_outputs(const CommandLine& line, std::initializer_list<Option> files);

/// The failure to write a file: kExitInput if another program created the file since check_outputs, otherwise
/// kExitRun.
Failure not_written(const Errors& errors, const std::string& path, Overwrite overwrite);

/// Writes the JSON of an answer to the file of -o, if there is one.
tl::expected<void, Failure> write_output_file(const CommandLine& line, const std::string& text);

/// Whether the answer goes to the standard output as JSON: --json, or "-o -".
bool prints_json(const CommandLine& line, const Output& output);

/// Notes once how sizes in powers of ten were read; users seldom mean them.
void note_decimal_sizes(const CommandLine& line, const Output& output);

}  // namespace fsdp::command
