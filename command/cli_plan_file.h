#pragma once

// The common beginning of commands on a plan file: read it, check where the answers go, predict it.

#include <initializer_list>
#include <string>
#include <vector>

#include "command/cli_commands.h"
#include "core/base/files.h"
#include "core/plan/plan_file.h"
#include "core/spec/model_spec.h"
#include "runs/given_plan.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

/// Reads a plan file, its model and its machines; options about machines change them. Errors: everything that is wrong
/// with the files, another model than the plan's, another number of GPUs.
Result<Given> read_given(const CommandLine& line, const std::string& path, const std::string& library);

/// The same without machines: `cluster` is left as it is, and any number of ranks will do.
Result<Given> read_planned(const std::string& path, const std::string& library);

struct PlanPrediction {
  Given given;
  simulator::Predictor predictor;
  StepReport report;
};

/// Reads the plan file that is the argument of a command, and predicts it for the rank that was asked for.
tl::expected<PlanPrediction, Failure> predict_plan_file(const CommandLine& line, const Output& output);

/// The rank that the report is to be of, if the line says. Whether the machines have it is for those who know them.
Result<std::optional<std::int64_t>> read_rank(const CommandLine& line);

/// Where answers are to be written, checked before anything is computed: folders that are not there, files that are,
/// two answers in one file.
Errors check_outputs(const CommandLine& line, std::initializer_list<Option> files);

/// A file could not be written. One that is there by now, because another program was quicker, is the user's to mend,
/// as check_outputs has it: kExitInput; all else is kExitRun.
Failure not_written(const Errors& errors, const std::string& path, Overwrite overwrite);

/// Writes the JSON of an answer to the file of -o, if there is one.
tl::expected<void, Failure> write_output_file(const CommandLine& line, const std::string& text);

/// True when the answer goes to the standard output as JSON: --json, or "-o -".
bool prints_json(const CommandLine& line, const Output& output);

/// A size in powers of ten is seldom what was meant: says once what was understood.
void note_decimal_sizes(const CommandLine& line, const Output& output);

}  // namespace fsdp::planner
